#!/usr/bin/env python3
"""A hostile target against the whole sluice-initiator: what it does to reads and writes.

Every row is a volume of its own on a scripted controller of its own, which does its one evil thing to the
first command and is honest ever after; all rows run at once, beside each other in one daemon. The client's
memory is random bytes with the command's extents at odd places in it. What costs the path runs twice: once with
paths that wait and once with paths that fail fast. A command that the target broke a rule with ends with one error
either way, and the client goes on; any other is sent again where paths wait, and the client sees nothing of it.
"""
import os
import re
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from controller import *
from daemon import SCALE, Control
from initiator import Initiator
from runner import main, until
from rawshm import Client, Guarded
from wire import *

EVIL = b"\xeeEvil\xff\xfe!"  # a mark that the bytes of a violation carry
READ_SIZES = [1, 4095, 777, 2000, 512, 3, 8997 - 1]  # 16 KiB - 1, and one more:
READ_SIZES.append(16384 - sum(READ_SIZES))
WRITE_SIZES = [65536 - 12345, 345, 12000]
PATH_ERROR = 0x370
TRANSFER_ERROR = 0x004
ROWS = []


def evil(n):
    return (EVIL * (n // len(EVIL) + 1))[:n]


class Row:
    """What a target does, and what is to come of it. kind: the violation; fes, fei: what our TermReq says.
    named: it says with which command. fails: what the client sees else where paths fail fast. lands: bytes
    of the target's own making may be in the extents then. n: commands at a time."""

    def __init__(self, fn, op, kind=None, *, fes=None, fei=None, sizes=None, times=1, fails=PATH_ERROR,
                 retried=0, lands=False, n=1, lost=True, settings=None, named=None, **ctrl):
        self.fn, self.op, self.kind, self.fes, self.fei = fn, op, kind, fes, fei
        self.sizes = sizes or (WRITE_SIZES if op == "write" else READ_SIZES)
        self.times, self.fails, self.retried, self.lands, self.n = times, fails, retried, lands, n
        self.lost, self.settings, self.ctrl = lost, settings or {}, ctrl
        self.name = fn.__name__
        self.named = kind not in (None, "unknown-tag", "pdu") if named is None else named

    def status(self, fast):
        """What the client sees of the evil."""
        if self.named:
            return TRANSFER_ERROR
        return self.fails if fast or not self.lost else 0


def row(op, kind=None, **kw):
    def add(fn):
        ROWS.append(Row(fn, op, kind, **kw))
        return fn
    return add


def beside(cid):
    """Another cid, of the same row of any table but of another generation."""
    return cid ^ 0x8000


# ---- C2HData that was not granted ----

@row("read", "unknown-tag", fes=1, fei=8)
def data_for_a_cid_that_is_not_outstanding(link, c):
    link.c2h(beside(c.cid), 0, evil(c.len), last=True)


@row("read", "unknown-tag", fes=1, fei=8)
def data_for_cid_ffff(link, c):
    link.c2h(0xFFFF, 0, evil(c.len), last=True)


@row("read", "range", fes=4, fei=12)
def data_behind_the_end(link, c):
    link.c2h(c.cid, c.len, evil(4096), last=True)


@row("read", "range", fes=4, fei=12)
def data_at_an_offset_that_wraps(link, c):
    link.c2h(c.cid, 0xFFFFF000, evil(8192), last=True)


@row("read", "range", fes=4, fei=12)
def data_longer_than_due(link, c):
    link.c2h(c.cid, 0, evil(c.len + 512), last=True)


@row("read", "range", fes=4, fei=12)
def data_whose_second_half_is_too_long(link, c):
    half = c.len // 2
    link.send(link.c2h_pdu(c.cid, 0, link.ctrl.blocks(c)[:half])
              + link.c2h_pdu(c.cid, half, evil(half + 4), last=True))


@row("read", "range", fes=4, fei=12)
def data_of_4_gib(link, c):
    link.c2h(c.cid, 0, evil(c.len), datal=0xFFFFFF00, plen=0xFFFFFF18)


@row("read", "order", fes=2, fei=12)
def data_behind_a_gap(link, c):
    link.c2h(c.cid, 4096, evil(c.len - 4096), last=True)


@row("read", "order", fes=2, fei=12)
def gap_and_then_success(link, c):
    half = c.len // 2
    link.send(link.c2h_pdu(c.cid, 0, link.ctrl.blocks(c)[:4096])
              + link.c2h_pdu(c.cid, half, evil(half), last=True, success=True))


@row("read", "order", fes=2, fei=12)
def data_that_comes_twice(link, c):
    first = link.c2h_pdu(c.cid, 0, link.ctrl.blocks(c)[:4096])
    link.send(first + link.c2h_pdu(c.cid, 0, evil(4096)))


@row("read", "order", fes=2, fei=12)
def data_that_overlaps(link, c):
    link.send(link.c2h_pdu(c.cid, 0, link.ctrl.blocks(c)[:4096])
              + link.c2h_pdu(c.cid, 4092, evil(c.len - 4092), last=True))


@row("read", "short", fes=2, fei=1)
def half_of_the_data_as_the_last(link, c):
    link.c2h(c.cid, 0, link.ctrl.blocks(c)[:c.len // 2], last=True, success=True)


@row("read", "short", fes=2, fei=22)
def success_after_half_of_the_data(link, c):
    link.send(link.c2h_pdu(c.cid, 0, link.ctrl.blocks(c)[:c.len // 2]) + link.resp_pdu(c.cid))


@row("read", "short", fes=2, fei=22)
def success_without_data(link, c):
    link.resp(c.cid)


@row("read", "pdu", fes=2, fei=1, named=True)
def whole_data_without_the_last_flag(link, c):
    link.c2h(c.cid, 0, link.ctrl.blocks(c))


@row("read", "pdu")
def data_of_no_bytes(link, c):
    psh = struct.pack("<HHIII", c.cid, 0, 0, 0, 0)
    link.send(link.pdu(C2H_DATA, psh, flags=F_LAST))


@row("read", "pdu", fes=1, fei=16, named=True)
def datal_that_is_not_what_comes(link, c):
    link.c2h(c.cid, 0, evil(c.len), datal=c.len - 4, last=True)


@row("read", "unknown-tag", fes=1, fei=8, fails=0, retried=1)
def data_for_a_finished_command(link, c):
    link.do_read(c)
    link.c2h(c.cid, 0, evil(c.len), last=True)


@row("read", "unknown-tag", fes=1, fei=20, fails=0, retried=1)
def response_that_comes_twice(link, c):
    link.send(link.c2h_pdu(c.cid, 0, link.ctrl.blocks(c), last=True) + link.resp_pdu(c.cid) * 2)


@row("read", "unknown-tag", fes=1, fei=20)
def response_for_a_cid_that_is_not_outstanding(link, c):
    link.resp(beside(c.cid))


@row("read", "direction", fes=2, fei=8)
def r2t_for_a_read(link, c):
    link.r2t(c.cid, 0x42, 0, 4096)


# ---- PDUs that cannot be ----

def pdu_row(name, make, fes=None, fei=None, **kw):
    def fn(link, c):
        link.send(make(link, c))
    fn.__name__ = name
    ROWS.append(Row(fn, "read", "pdu", fes=fes, fei=fei, **kw))


pdu_row("second_icresp", lambda link, c: icresp(), 2, 0)
pdu_row("command_capsule_from_a_target", lambda link, c: link.pdu(CMD, bytes(64)), 2, 0)
pdu_row("h2c_data_from_a_target", lambda link, c: h2c_data(c.cid, 0, 0, evil(4096)), 2, 0)
pdu_row("icreq_from_a_target", lambda link, c: icreq(), 2, 0)
pdu_row("h2c_term_from_a_target", lambda link, c: term(), 2, 0)
pdu_row("pdu_of_type_8", lambda link, c: pdu(8, bytes(16)), 1, 0)
pdu_row("pdu_of_type_ff", lambda link, c: pdu(0xFF, bytes(16)), 1, 0)
pdu_row("response_with_a_wrong_hlen", lambda link, c: link.resp_pdu(c.cid, hlen=28), 1, 2)
pdu_row("response_with_a_long_plen", lambda link, c: link.resp_pdu(c.cid, plen=1 << 30), 1, 4)
pdu_row("response_with_plen_0", lambda link, c: link.resp_pdu(c.cid, plen=0), 1, 4)
pdu_row("response_with_data_flags", lambda link, c: link.resp_pdu(c.cid, set_flags=0x0C), 1, 1)
pdu_row("data_with_a_pdo_inside_the_header", lambda link, c: link.c2h_pdu(c.cid, 0, evil(c.len), pdo=8), 1, 3)
pdu_row("data_with_a_pdo_behind_the_end", lambda link, c: link.c2h_pdu(c.cid, 0, evil(64), pdo=124), 1, 3)
pdu_row("success_flag_without_last", lambda link, c: link.c2h_pdu(c.cid, 0, evil(c.len), success=True))
pdu_row("digest_flag_that_was_not_agreed", lambda link, c: link.resp_pdu(c.cid, hdgst=True), 1, 1)
pdu_row("header_without_the_agreed_digest", lambda link, c: link.resp_pdu(c.cid, hdgst=False), 1, 1,
        settings={"hdr_digest": True})
pdu_row("header_digest_that_is_wrong",
        lambda link, c: link.c2h_pdu(c.cid, 0, evil(c.len), last=True, hdgst_value=0xDEADBEEF), 3, None,
        settings={"hdr_digest": True})
pdu_row("response_digest_that_is_wrong", lambda link, c: link.resp_pdu(c.cid, hdgst_value=1), 3, None,
        settings={"hdr_digest": True, "data_digest": True})


# ---- R2Ts that cannot be ----

@row("write", "range", fes=4, fei=12)
def r2t_behind_the_end(link, c):
    link.r2t(c.cid, 1, 0, c.len + 4096)


@row("write", "range", fes=4, fei=12)
def r2t_at_an_offset_that_wraps(link, c):
    link.r2t(c.cid, 1, 0xFFFFF000, 8192)


@row("write", "range", fes=4, fei=12)
def second_r2t_behind_the_end(link, c):
    link.ask(c, 0, 4096)
    link.r2t(c.cid, 1, 4096, c.len)


@row("write", "pdu", fes=1, fei=16, named=True)
def r2t_of_no_bytes(link, c):
    link.r2t(c.cid, 1, 0, 0)


@row("write", "order", fes=2, fei=12)
def r2t_behind_a_gap(link, c):
    link.r2t(c.cid, 1, 4096, 4096)


@row("write", "order", fes=2, fei=12)
def r2t_that_comes_twice(link, c):
    link.collect(link.ask(c, 0, c.len // 2))
    link.r2t(c.cid, 1, 0, c.len // 2)


@row("write", "unknown-tag", fes=1, fei=8)
def r2t_for_a_cid_that_is_not_outstanding(link, c):
    link.r2t(beside(c.cid), 1, 0, 4096)


@row("write", "unknown-tag", fes=1, fei=8, fails=0, retried=1)
def r2t_for_a_finished_command(link, c):
    link.do_write(c)
    link.r2t(c.cid, 1, 0, 4096)


@row("write", "r2t-limit", fes=5)
def more_r2ts_at_a_time_than_maxr2t(link, c):
    tags = [0x100 + i for i in range(6)]
    for i, t in enumerate(tags):
        link.asked[t] = [c, i * 4096, (i + 1) * 4096]
    link.send(b"".join(link.r2t_pdu(c.cid, t, i * 4096, 4096) for i, t in enumerate(tags)))


@row("write", "order", sizes=[1, 4095])
def r2t_for_data_that_was_in_the_capsule(link, c):
    must(len(c.data) == c.len, "the capsule has %d bytes of data", len(c.data))
    link.r2t(c.cid, 1, 0, 4096)


@row("write", "direction", fes=2, fei=8)
def data_for_a_write(link, c):
    link.c2h(c.cid, 0, evil(c.len), last=True)


@row("write", "short", fes=2, fei=22)
def success_before_any_r2t(link, c):
    link.resp(c.cid)


@row("write", "short", fes=2, fei=22, settings={"data_digest": True})
def success_after_half_of_the_r2ts(link, c):
    link.collect(link.ask(c, 0, c.len // 2))
    link.resp(c.cid)


# ---- ends ----

@row("read")
def close_in_mid_payload(link, c):
    link.send(link.c2h_pdu(c.cid, 0, link.ctrl.blocks(c), last=True)[:6000])
    link.close()


@row("read")
def reset_in_mid_payload(link, c):
    link.send(link.c2h_pdu(c.cid, 0, link.ctrl.blocks(c), last=True)[:6000])
    link.reset()


@row("read")
def close_in_a_header(link, c):
    link.send(link.c2h_pdu(c.cid, 0, link.ctrl.blocks(c), last=True)[:13])
    link.close()


@row("read")
def close_in_a_digest(link, c):
    link.send(link.c2h_pdu(c.cid, 0, link.ctrl.blocks(c), last=True)[:-2])
    link.close()


ROWS[-1].settings = {"data_digest": True}


@row("write")
def close_in_mid_write(link, c):
    link.ask(c, 0, c.len)
    link.recv(2000)
    link.reset()


@row("read")
def term_request(link, c):
    link.send(term(FES_SEQUENCE, 8, ptype=C2H_TERM))
    link.silence()


@row("read", lands=True, fails=0, retried=1, lost=False, settings={"data_digest": True})
def data_digest_that_is_wrong_once(link, c):
    link.c2h(c.cid, 0, evil(c.len), last=True, success=True, ddgst_value=0xBAD)


@row("read", lands=True, times=100, fails=0x022, retried=5, lost=False,
     settings={"data_digest": True, "hdr_digest": True})
def data_digest_that_is_always_wrong(link, c):
    link.send(link.c2h_pdu(c.cid, 0, evil(c.len), last=True, ddgst_value=0xBAD) + link.resp_pdu(c.cid))


# ---- strange, and legal: nothing may come of it ----

@row("read", fails=0, lost=False, sizes=[700, 1, 1347])
def bytes_that_trickle(link, c):
    data = link.ctrl.blocks(c)
    link.trickle(link.c2h_pdu(c.cid, 0, data[:512]) + link.c2h_pdu(c.cid, 512, data[512:], last=True)
                 + link.resp_pdu(c.cid))


@row("write", fails=0, lost=False, sizes=[300, 16384 - 300])
def r2t_that_trickles(link, c):
    for off in range(0, c.len, 512):
        tag = link.next_tag
        link.next_tag += 1
        link.asked[tag] = [c, off, off + 512]
        (link.send if off else link.trickle)(link.r2t_pdu(c.cid, tag, off, 512))
        link.collect(tag)
    link.ctrl.store(c, b"".join(d for _, d in link.ctrl.written)[-c.len:])
    link.resp(c.cid)


@row("read", fails=0, lost=False, n=4)
def data_of_commands_that_interleave(link, c):
    cmds = [c] + [link.next_cmd() for _ in range(3)]
    step = 2048
    for at in range(0, c.len, step):
        link.send(b"".join(link.c2h_pdu(x.cid, at, link.ctrl.blocks(x)[at:at + step], last=at + step == x.len)
                           for x in reversed(cmds)))
    link.send(b"".join(link.resp_pdu(x.cid) for x in (cmds[2], cmds[0], cmds[3], cmds[1])))


@row("write", fails=0, lost=False, n=4)
def r2ts_of_commands_that_interleave(link, c):
    cmds = [c] + [link.next_cmd() for _ in range(3)]
    for at in range(0, c.len, c.len // 4):
        link.collect(*[link.ask(x, at, c.len // 4) for x in reversed(cmds)])
    for x in cmds:
        mine = [d for o, d in link.ctrl.written if x.slba * BLOCK <= o < x.slba * BLOCK + x.len]
        link.ctrl.store(x, b"".join(mine))
    link.send(b"".join(link.resp_pdu(x.cid) for x in reversed(cmds)))


@row("read", fails=0, lost=False)
def sqhd_sqid_and_reserved_bits_that_mean_nothing(link, c):
    link.send(link.c2h_pdu(c.cid, 0, link.ctrl.blocks(c), last=True)
              + link.resp_pdu(c.cid, sqhd=0xFFFF, sqid=0xABCD, dw0=0xFFFFFFFF, dw1=0xFFFFFFFF, bits=1))


@row("read", fails=0x281, retried=None, lost=False)
def error_after_half_of_the_data(link, c):
    link.send(link.c2h_pdu(c.cid, 0, link.ctrl.blocks(c)[:4096])
              + link.resp_pdu(c.cid, SC_UNRECOVERED, bits=0x8000))


@row("write", fails=0x280, retried=None, lost=False)
def error_before_any_r2t(link, c):
    link.resp(c.cid, SC_WRITE_FAULT, bits=0x8000)


@row("write", fails=0x7FF, retried=None, lost=False, settings={"data_digest": True})
def status_that_does_not_exist(link, c):
    link.collect(link.ask(c, 0, 4096))
    link.resp(c.cid, 0x7FF, bits=0xF801)


@row("read", fails=0, lost=False, cpda=31)
def cpda_31_reads(link, c):
    link.do_read(c)


@row("write", fails=0, lost=False, cpda=31, maxh2cdata=4096, settings={"hdr_digest": True, "data_digest": True})
def cpda_31_with_digests_in_pieces_of_4_kib(link, c):
    link.do_write(c)


@row("write", fails=0, lost=False, maxh2cdata=0xFFFFFFFC)
def maxh2cdata_without_end(link, c):
    link.do_write(c)


@row("read", fails=0, lost=False, n=3)
def responses_in_another_order(link, c):
    for x in reversed([c, link.next_cmd(), link.next_cmd()]):
        link.do_read(x)


# ---- the campaign ----

class Fixture:
    """A row at work: its controller, its volume, its memory."""

    def __init__(self, r, number):
        self.row, self.number = r, number
        self.nqn = f"nqn.2026-11.io.sluice:{r.name}"
        self.ctrl = Controller(self.nqn, **r.ctrl)
        self.ctrl.arm(r.op, r.fn, r.times)
        self.said = []

    def conf(self, fast):
        return self.ctrl.entry(**({"reconnect_delay": 3, "fast_io_fail_tmo": 1} if fast else {}), **self.row.settings)

    def prepare(self, client):
        r = self.row
        self.nsid = client.volume(f"v{self.number}").nsid
        self.length = sum(r.sizes)
        self.mem = [Guarded(client, r.sizes, f"{r.name} {i}") for i in range(r.n)]
        self.lba = [8 + i * self.length // BLOCK for i in range(r.n)]

    def submit(self, q, op=None):
        code = READ if (op or self.row.op) == "read" else WRITE
        return [q.submit(code, self.nsid, lba, self.length // BLOCK, m.sg)
                for m, lba in zip(self.mem, self.lba)]

    def on_disk(self, i):
        at = self.lba[i] * BLOCK
        return bytes(self.ctrl.disk[at:at + self.length])

    def judge_memory(self, i):
        """After the evil: nothing outside of the extents, and in them nothing that was not granted."""
        m, r = self.mem[i], self.row
        m.untouched()
        if not r.lands:
            assert EVIL not in m.map[:], "bytes that were not granted are in the client's memory"
        if r.op == "write":
            assert m.map[:] == m.before, "a write has changed the client's memory"

    def judge_writes(self):
        """What the target was sent is the client's data at its place, nothing else."""
        for off, data in self.ctrl.written:
            i = next(k for k, lba in enumerate(self.lba)
                     if lba * BLOCK <= off < lba * BLOCK + self.length)
            at = off - self.lba[i] * BLOCK
            assert self.mem[i].data[at:at + len(data)] == data, f"other bytes at offset {at}"


class Campaign:
    """Some rows, at most 64, at once in one daemon."""

    def __init__(self, rows, fast):
        self.fast, self.faults = fast, {}
        self.fixtures = {r.name: Fixture(r, n) for n, r in enumerate(rows)}
        everyone = list(self.fixtures.values())
        self.i = Initiator({
            "hosts": hosts_json(*[f.conf(fast) for f in everyone]),
            "volumes": [{"name": f"v{f.number}", "members": [f.nqn + "/1"]} for f in everyone],
            "vms": [{"name": "m", "disks": [{"volume": f"v{f.number}"} for f in everyone]}]})
        self.events = Control(self.i.control, timeout=30 * SCALE)
        self.events.call("subscribe")
        until(lambda: all(v["state"] == "ready" for v in self.i.ctl("volumes")), "all volumes", 20 * SCALE)
        self.client = Client(self.i.shm)
        self.q = self.client.queue(256)
        for f in everyone:
            f.prepare(self.client)
        self.run(everyone)

    def run(self, everyone):
        """The evil, then the same again from targets that are honest."""
        cids = {f: f.submit(self.q) for f in everyone}
        for f in everyone:
            f.said = [self.q.wait(c) for c in cids[f]]
            self.note(f, self.judge_evil)
            f.retries = self.retries(f)
        until(self.all_live, "all paths to be live again", 20 * SCALE)
        self.stats = self.i.ctl("stats")
        for f in everyone:
            f.ctrl.arm(f.row.op, None, 0)
            f.after, f.terms = f.ctrl.accepted, list(f.ctrl.terms)
        cids = {f: f.submit(self.q, "write") for f in everyone}
        for f in everyone:
            f.then = [self.q.wait(c) for c in cids[f]]
        cids = {f: f.submit(self.q, "read") for f in everyone}
        for f in everyone:
            f.then += [self.q.wait(c) for c in cids[f]]
            self.note(f, self.judge_after)
        self.final = self.i.ctl("stats")

    def all_live(self):
        return all(p["state"] == "live" for p in self.i.ctl("paths"))

    def retries(self, f):
        return next(p for p in self.i.ctl("stats")["paths"] if p["nqn"] == f.nqn)

    def note(self, f, judge):
        """A failure belongs to its row's test."""
        try:
            judge(f)
        except AssertionError as e:
            self.faults.setdefault(f.row.name, str(e))

    def judge_evil(self, f):
        r = f.row
        for i in range(r.n):
            f.judge_memory(i)
            want = r.status(self.fast)
            assert f.said[i] == want, f"status {f.said[i]:03x}h, expected {want:03x}h"
            if f.said[i] == 0 and r.op == "read":
                assert f.mem[i].data == f.on_disk(i), "the read succeeded with wrong data"
            if f.said[i] == 0 and r.op == "write":
                assert f.mem[i].data == f.on_disk(i), "the write succeeded, the disk has other data"
        f.judge_writes()

    def judge_after(self, f):
        """It goes on: what was written then is what was read, in the same places."""
        assert not any(f.then), f"honest again, but commands end with {f.then}"
        for i in range(f.row.n):
            f.mem[i].untouched()
            assert f.mem[i].data == f.on_disk(i), "honest again, but the data is wrong"

    # what the tests ask

    def check(self, name):
        f, r = self.fixtures[name], self.fixtures[name].row
        assert name not in self.faults, self.faults[name]
        assert not f.ctrl.problems, f.ctrl.problems
        path = next(p for p in self.stats["paths"] if p["nqn"] == f.nqn)
        assert path["violations"] == (1 if r.kind else 0), path
        if r.kind:
            self.check_words(f, r)
        if r.fes is not None:
            assert len(f.terms) == 1, f"TermReqs: {f.terms}"
            fes, fei = f.terms[0]
            assert fes == r.fes and r.fei in (None, fei), f"TermReq says {fes} at byte {fei}"
        if r.lost:
            assert f.after > 1, "the path was not reset"
        else:
            assert f.after == 2, f"{f.after} connections were made, not 2"
        if "ddgst" in name or "data_digest" in name:
            assert path["ddgst_errors"] == r.retried + (r.fails != 0), path

    def check_words(self, f, r):
        """The log names path, kind, cid, offset and length; an event said the same."""
        lines = [s for s in self.i.log().splitlines() if f.nqn + " at" in s and "violation (" in s]
        assert len(lines) == 1, lines
        assert re.search(rf"violation \({r.kind}\) by \w+, cid [0-9a-f]{{4}}, offset \d+, length \d+",
                         lines[0]), lines[0]


COSTLY, LEGAL = [r for r in ROWS if r.lost], [r for r in ROWS if not r.lost]
waiting = Once(lambda: Campaign(COSTLY, False))
failing = Once(lambda: Campaign(COSTLY, True))
legal = Once(lambda: Campaign(LEGAL, False))


def add_test(r, campaign, outcome):
    def test():
        campaign().check(r.name)
    globals()[f"test_{r.name}_{outcome}"] = test


def outcome(status):
    return "fails_once" if status else "is_sent_again"


for _row in COSTLY:
    add_test(_row, waiting, outcome(_row.status(False)))
for _row in COSTLY:
    add_test(_row, failing, (outcome(_row.status(True)) if _row.named or _row.fails else "fails_nothing_that_had_ended")
             + "_where_paths_fail_fast")
for _row in LEGAL:
    add_test(_row, legal, "ends_with_its_status" if _row.fails else "changes_nothing")


def check_sums(c):
    """Counters by kind add up, and every violation was an event."""
    by_kind = {v["kind"]: v["count"] for v in c.final["violations"]}
    want = {}
    for f in c.fixtures.values():
        if f.row.kind:
            want[f.row.kind] = want.get(f.row.kind, 0) + 1
    assert {k: n for k, n in by_kind.items() if n} == want, by_kind
    seen = []
    deadline = time.monotonic() + 10 * SCALE
    while len(seen) < sum(want.values()) and time.monotonic() < deadline:
        line = c.events.file.readline().decode()
        if '"violation"' in line:
            seen.append(line)
    for f in c.fixtures.values():
        if f.row.kind:
            mine = [s for s in seen if f.nqn + " at" in s]
            assert len(mine) == 1 and f.row.kind in mine[0], (f.nqn, mine)


def test_violations_are_counted_by_kind_and_told_as_events_where_paths_wait():
    check_sums(waiting())


def test_violations_are_counted_by_kind_and_told_as_events_where_paths_fail_fast():
    check_sums(failing())


main(globals())
