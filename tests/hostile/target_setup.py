#!/usr/bin/env python3
"""A hostile target against the whole sluice-initiator: what it does while it is being set up.

Every row is a volume on a scripted controller of its own. "again": it does one evil thing once, the attempt
fails with these words in the log, and the next one makes the volume ready. "dead": it can never be used, the path
says why and is not tried again; when it has become honest and the volume is added again, it works. "without": the
controller works, its namespace does not, until an event says that it is another one. "fine": strange, and nothing
comes of it. Then each of them serves a read.
"""
import os
import re
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from controller import *
from controller import Gone
from daemon import SCALE
from initiator import Initiator
from rawshm import Client, Guarded
from runner import main, until
from wire import *

ROWS, DNR = [], 0x8000
SIZES = [3, 4093, 4096]


class Row:
    """outcome: see above; words: what the log says; kind: the violation, fes and fei: what our TermReq says."""

    def __init__(self, outcome, name, words="", *, arm=None, times=1, kind=None, term=None, settings=None, **ctrl):
        self.outcome, self.name, self.words, self.kind, self.term = outcome, name, words, kind, term
        self.arm, self.times, self.settings, self.ctrl = arm, times, settings or {}, ctrl
        ROWS.append(self)


def again(name, stage, evil, words="", **kw):
    Row("again", name, words, arm=(stage, evil), **kw)


def dead(name, words, stage=None, evil=None, **kw):
    Row("dead", name, words, arm=(stage, evil) if stage else None, times=1000, **kw)


def without(name, words, stage=None, evil=None, **kw):
    Row("without", name, words, arm=(stage, evil) if stage else None, times=1000, **kw)


def fine(name, stage=None, evil=None, words="", **kw):
    Row("fine", name, words, arm=(stage, evil) if stage else None, **kw)


def sends(*raw):
    """Bytes in place of an answer, then silence."""
    def evil(link, c):
        link.send(b"".join(r(link, c) if callable(r) else r for r in raw))
        link.silence()
    return evil


def status(value, dw0=0):
    return lambda link, c: link.resp(c.cid, value & 0x7FF, dw0=dw0, bits=value & DNR)


def gives(data):
    return lambda link, c: link.give(c, data)


# ---- ICResp ----

def icresp_row(name, fei, **fields):
    again("icresp_with_" + name, "icreq", sends(icresp(**fields)), kind="pdu", term=(1, fei))


icresp_row("pfv_1", 8, pfv=1)
icresp_row("cpda_32", 10, cpda=32)
icresp_row("cpda_255", 10, cpda=255)
icresp_row("digests_that_nobody_asked_for", 11, dgst=3)
icresp_row("maxh2cdata_0", 12, maxh2cdata=0)
icresp_row("maxh2cdata_4092", 12, maxh2cdata=4092)
icresp_row("maxh2cdata_4098", 12, maxh2cdata=4098)
icresp_row("maxh2cdata_ffffffff", 12, maxh2cdata=0xFFFFFFFF)
icresp_row("hlen_24", 2, hlen=24)
icresp_row("plen_0", 4, plen=0)
icresp_row("plen_132", 4, plen=132)
icresp_row("plen_of_4_gib", 4, plen=0xFFFFFFFF)
icresp_row("digest_flags", 1, set_flags=3)
again("response_before_icresp", "icreq", sends(lambda link, d: link.resp_pdu(0)), kind="pdu", term=(2, 0))
again("r2t_before_icresp", "icreq", sends(lambda link, d: link.r2t_pdu(0, 0, 0, 4096)), kind="pdu", term=(2, 0))
again("data_before_icresp", "icreq", sends(lambda link, d: link.c2h_pdu(0, 0, bytes(512))), kind="pdu", term=(2, 0))
again("icreq_echoed", "icreq", sends(icreq()), kind="pdu", term=(2, 0))
again("web_server", "icreq", sends(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n" * 4), kind="pdu")
again("icresp_twice", "icreq", sends(icresp(), icresp()), kind="pdu", term=(2, 0))
again("term_in_place_of_icresp", "icreq", sends(term(6, 11, ptype=C2H_TERM)), "C2HTermReq: unsupported parameter at byte 11")
again("close_in_place_of_icresp", "icreq", lambda link, d: link.close(), "the target closed the connection|reset by peer")
again("reset_in_place_of_icresp", "icreq", lambda link, d: link.reset(), "reset by peer")


def half_icresp(link, _):
    link.send(icresp()[:77])
    link.close()


def refuse_digests(link, _):
    link.send(icresp(dgst=0))
    link.silence()


def slow_icresp(link, dgst):
    link.trickle(icresp(dgst=dgst, rsvd=b"\xff" * 112))
    link.agree(dgst)


again("close_in_icresp", "icreq", half_icresp, "the target closed the connection")
again("digests_refused", "icreq", refuse_digests, "the target refuses data digests",
      settings={"data_digest": True, "hdr_digest": True})
fine("icresp_that_trickles_with_reserved_bytes", "icreq", slow_icresp)

# ---- Connect ----

again("connect_answered_for_another_cid", "connect", sends(lambda link, c: link.resp_pdu(c.cid ^ 1)),
      kind="unknown-tag", term=(1, 20))
again("connect_answered_with_data", "connect", sends(lambda link, c: link.c2h_pdu(c.cid, 0, bytes(1024), last=True)),
      kind="direction", term=(2, 8))
again("connect_answered_with_r2t", "connect", sends(lambda link, c: link.r2t_pdu(c.cid, 1, 0, 1024)), kind="order")
again("connect_answered_twice", "connect", sends(lambda link, c: link.resp_pdu(c.cid, dw0=1) + link.resp_pdu(c.cid)),
      kind="unknown-tag")
again("connect_refused_as_busy", "connect", status(SC_BUSY), r"Connect: controller busy")
again("connect_to_a_queue_refused_for_good", "io_connect", status(SC_PARAM | DNR, 42), "Connect: invalid parameters")
again("connect_to_a_queue_closed", "io_connect", lambda link, c: link.close(), "the target closed the connection")
dead("connect_refused_for_a_parameter", "Connect: invalid parameters .*: subnqn, byte 256 of the data", "connect",
     status(SC_PARAM | DNR, 1 << 16 | 256))
dead("connect_refused_for_nonsense", "Connect: invalid parameters .*unknown field", "connect",
     status(SC_PARAM | DNR, 0xFFFFFFFF))
dead("connect_refused_for_the_host", "Connect: host not allowed", "connect", status(SC_HOST | DNR))
dead("connect_refused_by_no_known_status", r"Connect: failed \(status type 7 code ffh\)", "connect", status(0x7FF | DNR))
dead("authentication_asked_for", "asks for authentication", "connect", status(0, 1 | 1 << 17))
dead("controller_that_changes_its_id", "Identify says controller 1, Connect said 65535", "connect", status(0, 0xFFFF))

# ---- properties ----

dead("cap_of_zeros", "no NVM command set", cap=0)
fine("cap_of_ones", cap=(1 << 64) - 1)
fine("queue_of_one_entry", cap=CAP & ~0xFFFF)
dead("property_refused_for_good", "Property Get CAP failed with status 002h", "cap", status(SC_FIELD | DNR))
again("property_refused", "vs", status(SC_INTERNAL), "Property Get VS failed with status 006h")
again("fatal_status", "csts", status(0, 2), "fatal status")
Row("again", "never_ready", "did not become ready", arm=("csts", status(0, 0)), times=14, cap=CAP & ~(0xFF << 24) | 1 << 24)
Row("fine", "ready_late", arm=("csts", status(0, 0)), times=4)
again("property_with_data", "vs", sends(lambda link, c: link.c2h_pdu(c.cid, 0, bytes(8), last=True)), kind="direction")

# ---- Identify Controller and what hangs on it ----

again("identify_without_data", "identify_ctrl", status(0), kind="short", term=(2, 22))
again("identify_of_half_its_data", "identify_ctrl",
      sends(lambda link, c: link.c2h_pdu(c.cid, 0, bytes(2048)) + link.resp_pdu(c.cid)), kind="short")
again("identify_of_twice_its_data", "identify_ctrl", sends(lambda link, c: link.c2h_pdu(c.cid, 0, bytes(8192), last=True)),
      kind="range", term=(4, 12))
again("identify_answered_by_r2t", "identify_ctrl", sends(lambda link, c: link.r2t_pdu(c.cid, 1, 0, 4096)),
      kind="direction")
dead("identify_of_zeros", "Identify says controller 0", "identify_ctrl", gives(bytes(4096)))
dead("identify_of_ones", "Identify says controller 65535", "identify_ctrl", gives(b"\xff" * 4096))
dead("discovery_controller", "it is a discovery controller", ctrl_fields={111: b"\2"})
dead("no_keep_alive", "no Keep Alive", ctrl_fields={320: b"\0\0"})
dead("ioccsz_0", "IOCCSZ 0 is shorter", ctrl_fields={1792: bytes(4)})
dead("ioccsz_3", "IOCCSZ 3 is shorter", ctrl_fields={1792: b"\3\0\0\0"})
fine("ioccsz_4", ctrl_fields={1792: b"\4\0\0\0"})
fine("ioccsz_ffffffff", ctrl_fields={1792: b"\xff\xff\xff\xff"})
dead("iorcsz_0", "IORCSZ 0 is shorter", ctrl_fields={1796: bytes(4)})
dead("icdoff_1", "ICDOFF is 1", ctrl_fields={1800: b"\1\0"})
dead("no_sgls", "no SGLs", ctrl_fields={536: bytes(4)})
fine("mdts_1", ctrl_fields={77: b"\1"})
fine("mdts_255", ctrl_fields={77: b"\xff"})
fine("maxcmd_0", ctrl_fields={514: b"\0\0"}, words="does not tell MAXCMD")
fine("maxcmd_1", ctrl_fields={514: b"\1\0"})
dead("queues_refused", "Number of Queues failed with status 002h", "set_features", status(SC_FIELD | DNR))
fine("queues_without_end", "set_features", status(0, 0xFFFFFFFF))

# ---- namespaces ----

again("namespace_list_out_of_order", "ns_list", gives(struct.pack("<3I", 1, 7, 3).ljust(4096, b"\0")), "not in order")
again("namespace_list_with_one_twice", "ns_list", gives(struct.pack("<3I", 1, 1, 0).ljust(4096, b"\0")), "not in order")
without("namespace_list_that_is_empty", "has no namespace 1", "ns_list", gives(bytes(4096)))
fine("namespace_list_with_nsid_ffffffff", "ns_list", gives(struct.pack("<3I", 1, 2, 0xFFFFFFFF).ljust(4096, b"\0")))
Row("fine", "namespace_list_without_end", "the rest is left out", times=1000,
    arm=("ns_list", lambda link, c: link.give(c, struct.pack("<1024I", *range(c.nsid + 1, c.nsid + 1025)))))
without("namespace_that_is_not_identified", "does not let itself be identified", "identify_ns", status(SC_NS | DNR))
without("namespace_without_blocks", "it has no blocks", ns_fields={0: bytes(8)})
for ds in (0, 8, 17, 40, 255):
    without(f"namespace_with_blocks_of_2_to_the_{ds}", "block size is not 512 bytes to 64 KiB",
            ns_fields={130: bytes([ds])})
without("namespace_with_blocks_of_64_kib", "have blocks of 65536 bytes, 512 to 4096 are possible",
        ns_fields={130: bytes([16])})
without("namespace_with_metadata", "it has metadata", ns_fields={128: b"\x08\0"})
without("namespace_in_a_format_that_is_not_there", "block size is not", ns_fields={26: b"\x7f"})
without("namespace_larger_than_numbers", "its size cannot be", ns_fields={0: b"\xff" * 8})
fine("namespace_as_large_as_numbers_go", ns_fields={0: struct.pack("<Q", (1 << 55) - 1)})
fine("descriptors_that_are_refused", "ns_descriptors", status(SC_FIELD | DNR))
fine("descriptors_that_run_over_the_page", "ns_descriptors", gives(bytes([3, 255, 0, 0]) * 1024))
fine("descriptors_of_no_length_without_end", "ns_descriptors", gives(bytes([3, 0, 0, 0]) * 1024))
fine("descriptors_of_ones", "ns_descriptors", gives(b"\xff" * 4096))
fine("events_refused", "aer", status(SC_AER_LIMIT | DNR), words="no events from the controller")


# ---- the campaign ----

class Fixture:
    def __init__(self, r, number):
        self.row, self.volume = r, f"v{number}"
        self.nqn = f"nqn.2026-11.io.sluice:{r.name}"
        self.ctrl = Controller(self.nqn, **r.ctrl)
        if r.arm:
            self.ctrl.arm(*r.arm, r.times)

    def reform(self):
        """From now on it is honest."""
        if self.row.arm and self.row.outcome != "again":
            self.ctrl.arm(self.row.arm[0], None, 0)
        self.ctrl.ctrl_fields, self.ctrl.ns_fields, self.ctrl.cap = {}, {}, CAP


class Campaign:
    """Some rows, at most 64, at once in one daemon."""

    def __init__(self, rows):
        self.faults = {}
        self.fixtures = {r.name: Fixture(r, n) for n, r in enumerate(rows)}
        self.everyone = list(self.fixtures.values())
        self.i = Initiator({
            "hosts": hosts_json(*[f.ctrl.entry(**f.row.settings) for f in self.everyone]),
            "volumes": [{"name": f.volume, "members": [f.nqn + "/1"]} for f in self.everyone]})
        until(self.settled, "every path to be decided", 30 * SCALE)
        self.stats = self.i.ctl("stats")
        self.log = self.i.log()
        paths, volumes = self.paths(), self.volumes()
        for f in self.everyone:
            self.note(f, lambda f: self.judge(f, paths[f.nqn], volumes[f.volume]))
        self.reform()
        self.read_all()

    def paths(self):
        return {p["nqn"]: p for p in self.i.ctl("paths")}

    def volumes(self):
        return {v["name"]: v for v in self.i.ctl("volumes")}

    def settled(self):
        paths, volumes = self.paths(), self.volumes()
        want = {"again": lambda p, v: v["state"] == "ready", "fine": lambda p, v: v["state"] == "ready",
                "dead": lambda p, v: p["state"] == "dead",
                "without": lambda p, v: p["state"] == "live" and v["state"] in ("waiting", "failed")}
        self.late = [f.row.name for f in self.everyone
                     if not want[f.row.outcome](paths[f.nqn], volumes[f.volume])]
        return not self.late

    def note(self, f, judge):
        """A failure belongs to its row's test."""
        try:
            judge(f)
        except AssertionError as e:
            self.faults.setdefault(f.row.name, str(e))

    def lines(self, f):
        return [s for s in self.i.log().splitlines() if f.nqn in s or f" {f.volume}:" in s]

    def judge(self, f, path, volume):
        r = f.row
        if r.outcome == "dead":
            assert re.search(r.words, path["why"]), path
            assert volume["state"] == "waiting" and re.search(r.words[:20], volume["why"]), volume
            assert f.ctrl.accepted == 1, f"it was tried {f.ctrl.accepted} times"
        elif r.outcome == "without":
            assert volume["why"], volume
        elif r.outcome == "fine":
            assert f.ctrl.accepted == 1, f"{f.ctrl.accepted} connections were made"

    def reform(self):
        """All are honest: the dead are added again, the others are told of by an event."""
        for f in self.everyone:
            f.reform()
            if f.row.outcome == "dead":
                self.i.ctl("volume.remove", name=f.volume)
                self.i.ctl("volume.add", name=f.volume, members=[f.nqn + "/1"])
            elif f.row.outcome == "without":
                assert f.ctrl.event(), f.row.name
        until(lambda: all(v["state"] == "ready" for v in self.i.ctl("volumes")), "all volumes", 20 * SCALE)

    def read_all(self):
        self.i.ctl("vm.add", name="m", disks=[f.volume for f in self.everyone])
        client = Client(self.i.shm)
        q, n = client.queue(128), sum(SIZES) // BLOCK
        mem = {f: Guarded(client, SIZES, f.nqn) for f in self.everyone}
        cids = {f: q.submit(READ, client.volume(f.volume).nsid, 64, n, mem[f].sg) for f in self.everyone}
        for f in self.everyone:
            self.note(f, lambda f: self.judge_read(f, mem[f], q.wait(cids[f])))
        self.final = self.i.ctl("stats")
        client.close()

    @staticmethod
    def judge_read(f, mem, got):
        assert got == 0, f"a read ends with {got:03x}h"
        mem.untouched()
        assert mem.data == f.ctrl.disk[64 * BLOCK:64 * BLOCK + sum(SIZES)], "the data is wrong"

    def check(self, r):
        f = self.fixtures[r.name]
        assert r.name not in self.faults, self.faults[r.name] + "\n" + "\n".join(self.lines(f))
        assert not f.ctrl.problems, f.ctrl.problems
        path = next(p for p in self.final["paths"] if p["nqn"] == f.nqn)
        assert path["violations"] == (r.kind is not None), path
        words = rf"violation \({r.kind}\)" if r.kind else r.words
        assert re.search(words, "\n".join(self.lines(f))), f"no '{words}' in\n" + "\n".join(self.lines(f))
        if r.term:
            assert f.ctrl.terms == [r.term], f"TermReqs: {f.ctrl.terms}"
        if r.outcome == "again":
            assert f.ctrl.accepted >= 2, "there was no second attempt"


ENDS = {"again": "fails_that_attempt_only", "dead": "is_given_up_with_a_reason", "without": "has_no_disk_until_it_does",
        "fine": "is_taken"}


def add_test(r, campaign):
    def test():
        campaign().check(r)
    globals()[f"test_{r.name}_{ENDS[r.outcome]}"] = test


for _outcome in (("again",), ("dead", "without", "fine")):
    _rows = [r for r in ROWS if r.outcome in _outcome]
    _campaign = Once(lambda rows=_rows: Campaign(rows))
    for _row in _rows:
        add_test(_row, _campaign)


# ---- afterwards: events, keep alive, a disk that becomes another ----

class One:
    """A daemon with one volume on one controller."""

    def __init__(self, name, conf=None, **settings):
        self.ctrl = Controller(f"nqn.2026-11.io.sluice:{name}")
        self.i = Initiator({
            **(conf or {}),
            "hosts": hosts_json(self.ctrl.entry(**settings)),
            "volumes": [{"name": "v", "members": [self.ctrl.nqn + "/1"]}],
            "vms": [{"name": "m", "disks": [{"volume": "v"}]}]})
        until(lambda: self.volume()["state"] == "ready", "the volume", 10 * SCALE)

    def volume(self):
        return self.i.ctl("volumes")[0]

    def read(self):
        """One read by a client of its own: its status, and whether the data is right."""
        client = Client(self.i.shm)
        mem = Guarded(client, SIZES)
        got = client.queue(4).io(READ, client.volume("v").nsid, 0, sum(SIZES) // BLOCK, mem.sg)
        mem.untouched()
        client.close()
        return got, mem.data == self.ctrl.disk[:sum(SIZES)]

    def __enter__(self):
        return self

    def __exit__(self, etype, *_):
        problem = self.i.stop()
        self.ctrl.close()
        assert etype or not problem, problem
        assert etype or not self.ctrl.problems, self.ctrl.problems


def storm(o, dw0, seconds=1.5):
    """Events as fast as the host asks for them, and reads meanwhile; events heard, and how many may be."""
    began = time.monotonic()
    o.ctrl.arm("aer", lambda link, c: link.resp(c.cid, dw0=dw0), 1 << 30)
    assert o.ctrl.event(dw0)
    while time.monotonic() < began + seconds:
        assert o.read() == (0, True)
    heard = (1 << 30) - o.ctrl.evil["aer"][1]
    o.ctrl.arm("aer", None, 0)
    may = 12 * (time.monotonic() - began) + 2  # a tenth of a second lies between them
    assert 3 < heard < may, f"the host has asked for {heard} events, {may:.0f} may be"
    assert o.i.ctl("stats")["paths"][0]["violations"] == 0
    return heard


def test_a_storm_of_namespace_events_delays_nobody():
    with One("ns-storm") as o:
        storm(o, NS_CHANGED)
        o.ctrl.nr_blocks *= 2
        until(o.ctrl.event, "the host to ask for events", 5 * SCALE)
        until(lambda: o.volume()["size"] == 2 << 20, "the volume to grow", 5 * SCALE)
        assert o.ctrl.accepted == 2, f"{o.ctrl.accepted} connections"


def test_a_storm_of_events_that_mean_nothing_is_heard_in_drops():
    with One("event-storm") as o:
        heard = storm(o, 0x0077EE05)
        told = sum("the controller reports event" in s for s in o.i.log().splitlines())
        assert 1 <= told <= heard + 1, f"{told} lines of log for {heard} events"
        assert o.ctrl.accepted == 2, f"{o.ctrl.accepted} connections"


def test_an_event_that_comes_twice_costs_the_path_and_no_more():
    with One("event-twice") as o:
        link = next(k for k in o.ctrl.links if k.aers)
        cid = link.aers[0]
        o.ctrl.arm("aer", lambda link, c: link.silence())
        link.resp(cid, dw0=0x77EE05)
        link.resp(cid, dw0=0x77EE05)
        until(lambda: "violation (unknown-tag)" in o.i.log(), "the violation", 5 * SCALE)
        assert o.read() == (0, True)
        until(lambda: o.i.ctl("paths")[0]["state"] == "live", "the path", 5 * SCALE)
        assert o.i.ctl("stats")["paths"][0]["violations"] == 1


def test_a_changed_list_that_cannot_be_read_hides_no_change():
    with One("no-log") as o:
        o.ctrl.arm("log", status(SC_LOG_PAGE | DNR), 100)
        o.ctrl.nr_blocks *= 4
        assert o.ctrl.event()
        until(lambda: o.volume()["size"] == 4 << 20, "the volume to grow", 5 * SCALE)
        assert o.read() == (0, True)


def test_a_disk_that_becomes_another_is_not_used_until_it_is_back():
    with One("other-disk") as o:
        was = o.ctrl.uuid
        o.ctrl.uuid = bytes(range(16))
        assert o.ctrl.event()
        until(lambda: o.volume()["state"] == "failed", "it to be refused", 5 * SCALE)
        assert "is another disk now" in o.volume()["why"], o.volume()
        assert o.read()[0] == 0x082
        o.ctrl.uuid = was
        until(o.ctrl.event, "the host to ask for events", 5 * SCALE)
        until(lambda: o.volume()["state"] == "ready", "it to be used again", 5 * SCALE)
        assert o.read() == (0, True)


def test_a_write_that_waits_is_not_sent_to_a_disk_that_became_another():
    with One("other-disk-back", reconnect_delay=2) as o:
        disk = bytes(o.ctrl.disk)
        o.ctrl.uuid = bytes(range(16))
        for link in list(o.ctrl.links):
            link.sock.shutdown(socket.SHUT_RDWR)
        until(lambda: o.i.ctl("paths")[0]["state"] != "live", "the path to be lost", 5 * SCALE)
        client = Client(o.i.shm)
        got = client.queue(4).io(WRITE, client.volume("v").nsid, 0, sum(SIZES) // BLOCK, Guarded(client, SIZES).sg)
        client.close()
        assert got & 0x7FF == 0x082, f"status {got:#x}"
        assert bytes(o.ctrl.disk) == disk, "it was written to"
        assert f"ended with status 082h of member 0, {o.ctrl.nqn}/1" in o.i.log(), o.i.log()
        assert "is another disk now" in o.volume()["why"], o.volume()


def test_a_namespace_that_shrinks_or_goes_away_costs_nobody_else_anything():
    with One("shrinking") as o:
        o.ctrl.nr_blocks //= 2
        assert o.ctrl.event()
        until(lambda: "room for 512 KiB only" in o.i.log(), "it to be told", 5 * SCALE)
        o.ctrl.arm("ns_list", gives(bytes(4096)), 1)
        until(o.ctrl.event, "the host to ask for events", 5 * SCALE)
        until(lambda: "has no namespace 1" in o.i.log(), "it to be told", 5 * SCALE)
        assert o.read() == (0, True)


def test_keep_alive_that_is_refused_costs_the_path_and_no_more():
    with One("keep-alive", keep_alive_tmo=1) as o:
        o.ctrl.arm("keep_alive", status(SC_INTERNAL))
        until(lambda: "Keep Alive failed with status 006h" in o.i.log(), "it to be told", 10 * SCALE)
        assert o.read() == (0, True)
        until(lambda: o.i.ctl("paths")[0]["state"] == "live", "the path", 5 * SCALE)


def test_a_response_for_nothing_on_the_admin_queue_costs_the_path_and_no_more():
    with One("admin-resp") as o:
        next(k for k in o.ctrl.links if k.aers).resp(0x1234)
        until(lambda: "violation (unknown-tag)" in o.i.log(), "the violation", 5 * SCALE)
        assert o.read() == (0, True)
        assert o.i.ctl("stats")["paths"][0]["violations"] == 1


# ---- a connection that was given up ----

LATER = b"written much later, "


def stale(zero_copy):
    """The target asks for data and does not read it, then its admin queue falls silent: the path is made again and
    the writes end on it. What the first connection still carries was there before."""
    with One("stale-" + zero_copy, {"zero_copy": zero_copy}, keep_alive_tmo=1) as o:
        o.ctrl.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        go, read, carried = threading.Event(), threading.Event(), bytearray()

        def evil(link, c):
            for x in [c] + [link.next_cmd() for _ in range(3)]:
                link.ask(x, 0, x.len)
            o.ctrl.arm("keep_alive", lambda link, c: link.silence())
            go.wait(30 * SCALE)
            try:
                while got := link.sock.recv(65536):
                    carried.extend(got)
            except OSError:
                pass
            read.set()
            raise Gone("read")

        o.ctrl.arm("write", evil)
        client = Client(o.i.shm)
        q, nsid, mem = client.queue(8), client.volume("v").nsid, Guarded(client, [131072] * 4)
        cids = [q.submit(WRITE, nsid, i * 256, 256, [sg]) for i, sg in enumerate(mem.sg)]
        assert [q.wait(cid) for cid in cids] == [0] * 4
        assert mem.data == o.ctrl.disk[:4 * 131072], "the disk has other data"
        mem.map[:] = (LATER * (mem.size // len(LATER) + 1))[:mem.size]
        time.sleep(0.3)
        go.set()
        assert read.wait(20 * SCALE)
        assert LATER not in carried, "bytes that the client wrote later were sent on the old connection"
        assert o.ctrl.accepted >= 4, f"{o.ctrl.accepted} connections"
        client.close()


def test_a_connection_that_was_given_up_carries_nothing_that_was_written_later():
    stale("never")


def test_a_connection_that_was_given_up_carries_nothing_that_was_written_later_with_zero_copy():
    stale("always")


main(globals())
