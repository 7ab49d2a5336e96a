#!/usr/bin/env python3
"""A hostile discovery controller against the whole sluice-initiator.

Every row is a scripted discovery controller of its own that alone knows the way to an honest target with a volume;
all run at once in one daemon. "again": it does one evil thing, the log of the daemon says so in these words, and the
next attempt finds the way. "fine": its log is strange, and what can be used of it is used. After that each volume
serves a read.
"""
import os
import re
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from controller import *
from daemon import SCALE
from initiator import Initiator
from rawshm import Client, Guarded
from runner import main, until
from wire import *

DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"
CHANGED = 0x70F002  # asynchronous event: notice, discovery log changed, log 70h
SIZES = [5, 4091, 4096]
ROWS = []


def record(nqn, addr, *, trtype=3, adrfam=1, subtype=2, treq=0, svc=None, traddr=None, sectype=0):
    """An entry of the log; what is named replaces what would be right."""
    e = bytearray(1024)
    struct.pack_into("<BBBBHHHH", e, 0, trtype, adrfam, subtype, treq, 1, 0xFFFF, 32, 0)
    for at, size, text in ((32, 32, str(addr[1]) if svc is None else svc), (256, 256, nqn),
                           (512, 256, addr[0] if traddr is None else traddr)):
        raw = text if isinstance(text, bytes) else text.encode()
        e[at:at + len(raw[:size])] = raw[:size]
    e[768] = sectype
    return bytes(e)


class Discovery(Controller):
    """A discovery controller. records and genctr may be changed at any time; what answers for a log may be, too."""

    def __init__(self):
        super().__init__(DISCOVERY, size=BLOCK, ctrl_fields={92: struct.pack("<I", 1 << 31), 111: b"\2"})
        self.records, self.genctr, self.headers, self.evil_log, self.times = [], 1, 0, None, 0
        self.body = None, b""
        self.arm("log", Discovery.answer, 1 << 30)

    def raw(self, numrec=None, recfmt=0, records=None):
        numrec = len(self.records) if numrec is None else numrec
        return struct.pack("<QQH", self.genctr, numrec, recfmt).ljust(1024, b"\0") + \
            b"".join(self.records if records is None else records)

    @staticmethod
    def answer(link, c):
        d = link.ctrl
        at, n = c.cdw12, c.len
        must(c.cdw10 & 0xFF == 0x70 and n == ((c.cdw10 >> 16) + 1) * 4, "%r: cdw10 %08x", c, c.cdw10)
        d.headers += at == 0 and n == 1024
        if d.times > 0:
            d.times -= 1
            d.evil_log(link, c, at, n)
        else:
            link.give(c, d.piece(at, n).ljust(n, b"\0"))

    def piece(self, at, n):
        """Of raw(), without making all of it each time."""
        if self.body[0] is not self.records:
            self.body = self.records, b"".join(self.records)
        return (self.raw(len(self.records), 0, ()) + self.body[1][:n])[:n] if at == 0 else self.body[1][at - 1024:at - 1024 + n]

    def change(self, *records):
        self.records = list(records)
        self.genctr += 1
        return self.event(CHANGED)


class Row:
    def __init__(self, outcome, name, words="", *, log=None, times=1, records=None, unusable=0, kind=None, settings=None):
        self.outcome, self.name, self.words, self.log, self.times = outcome, name, words, log, times
        self.records, self.unusable, self.kind, self.settings = records, unusable, kind, settings or {}
        ROWS.append(self)


def again(name, words, log, **kw):
    Row("again", name, words, log=log, **kw)


def fine(name, records, **kw):
    Row("fine", name, records=records, **kw)


def status(value):
    return lambda link, c, at, n: link.resp(c.cid, value, bits=0x8000)


def header(**kw):
    return lambda link, c, at, n: link.give(c, link.ctrl.raw(**kw)[at:at + n].ljust(n, b"\0"))


def restless(link, c, at, n):
    """Another generation for everyone who looks."""
    link.ctrl.genctr += 1
    link.give(c, link.ctrl.raw()[at:at + n].ljust(n, b"\0"))


def shrinking(link, c, at, n):
    """Another number of records each time, one generation."""
    link.give(c, link.ctrl.raw(numrec=3 + link.ctrl.times % 2)[at:at + n].ljust(n, b"\0"))


def closing(link, c, at, n):
    link.send(link.c2h_pdu(c.cid, 0, link.ctrl.raw()[at:at + n].ljust(n, b"\0"), last=True)[:500])
    link.close()


again("log_that_is_refused", "Get Log Page Discovery failed with status 109h", status(SC_LOG_PAGE))
again("log_of_4097_records", "more than 4096 records", header(numrec=4097))
again("log_of_2_to_the_64_records", "more than 4096 records", header(numrec=(1 << 64) - 1))
again("log_of_another_format", "unknown format", header(recfmt=7))
again("log_that_changes_all_the_time", "changes all the time", restless, times=40)
again("log_whose_length_changes_all_the_time", "changes all the time", shrinking, times=40)
again("log_shorter_than_asked_for", "", lambda link, c, at, n: link.resp(c.cid), kind="short")
again("log_longer_than_asked_for", "", lambda link, c, at, n: link.c2h(c.cid, 0, bytes(n + 512), last=True), kind="range")
again("log_for_another_command", "", lambda link, c, at, n: link.c2h(c.cid ^ 0x8000, 0, bytes(n), last=True), kind="unknown-tag")
again("close_in_the_log", "the target closed the connection|reset by peer", closing)
again("log_that_does_not_come", "Get Log Page Discovery was not answered within 10 s", lambda link, c, at, n: None)
again("silence_at_the_log", "no answer to Keep Alive for 2 s", lambda link, c, at, n: link.silence(), settings={"keep_alive_tmo": 2})

NOWHERE = ("127.0.0.1", 9)


def strange(me, to):
    return [
        record(me, NOWHERE, trtype=1), record(me, NOWHERE, trtype=254), record(me, NOWHERE, adrfam=4),
        record(me, NOWHERE, subtype=0), record(me, NOWHERE, subtype=77), record(me, NOWHERE, treq=1),
        record(me, NOWHERE, sectype=2), record(me, NOWHERE, svc="0"), record(me, NOWHERE, svc="65536"),
        record(me, NOWHERE, svc=""), record(me, NOWHERE, svc="-1"), record(me, NOWHERE, svc=b"4" * 32),
        record(me, NOWHERE, traddr="disks.example"), record(me, NOWHERE, traddr="::1"), record(me, NOWHERE, traddr=b"1" * 256),
        record(me, NOWHERE, traddr="127.0.0.1 \n"), record(b"n" * 256, to), record("", to), record(b"\xff\xfe" * 9, to),
        record("nqn with a blank", to)]


fine("records_that_cannot_be", lambda d, me, to: [*strange(me, to), record(me, to)], unusable=20)
fine("record_with_blanks_behind_its_fields", lambda d, me, to: [
    record(me, to, svc=str(to[1]).ljust(32), traddr=to[0].ljust(256))])
fine("log_of_4096_records", lambda d, me, to: [record(f"nqn.x:{i}", to) for i in range(4095)] + [record(me, to)])
fine("record_that_comes_100_times", lambda d, me, to: [record(me, to)] * 100)
fine("more_ways_than_a_member_can_have", lambda d, me, to: [record(me, to)] + [
    record(me, ("127.0.0.1", 10 + i)) for i in range(100)])
fine("referral_to_itself", lambda d, me, to: [
    record(DISCOVERY, d.addr, subtype=1), record(DISCOVERY, d.addr, subtype=3), record(me, to)])
fine("hundred_referrals_to_nowhere", lambda d, me, to: [
    record(DISCOVERY, ("127.0.0.1", 10 + i), subtype=1) for i in range(100)] + [record(me, to)], unusable=84)


class Fixture:
    def __init__(self, r, number):
        self.row, self.volume = r, f"v{number}"
        self.nqn = f"nqn.2026-11.io.sluice:{r.name}"
        self.target, self.disc = Controller(self.nqn), Discovery()
        make = r.records or (lambda d, me, to: [record("nqn.x:other", to), record(me, to)])
        self.disc.records = make(self.disc, self.nqn, self.target.addr)
        self.disc.evil_log, self.disc.times = r.log, r.times if r.log else 0
        self.name = f"discovery at {self.disc.addr[0]}:{self.disc.addr[1]}"

    def conf(self):
        return self.disc.entry(**self.row.settings)


class Campaign:
    """All rows, until all volumes are ready."""

    def __init__(self):
        self.fixtures = {r.name: Fixture(r, n) for n, r in enumerate(ROWS)}
        every = list(self.fixtures.values())
        self.i = Initiator({
            "hosts": hosts_json(*[f.conf() for f in every]),
            "volumes": [{"name": f.volume, "members": [f.nqn + "/1"]} for f in every],
            "vms": [{"name": "m", "disks": [{"volume": f.volume} for f in every]}]})
        until(lambda: all(v["state"] == "ready" for v in self.i.ctl("volumes")), "all volumes", 40 * SCALE)
        self.client = Client(self.i.shm)
        self.q = self.client.queue(8)
        self.rows = {"discovery at " + r["addr"]: r for r in self.i.ctl("discoveries") if not r["referred_by"]}
        self.log = self.i.log()

    def check(self, r):
        f = self.fixtures[r.name]
        mem = Guarded(self.client, SIZES, f.nqn)
        nsid = self.client.volume(f.volume).nsid
        assert self.q.io(READ, nsid, 0, sum(SIZES) // BLOCK, mem.sg) == 0
        mem.untouched()
        assert mem.data == f.target.disk[:sum(SIZES)], "the data is wrong"
        assert not f.disc.problems and not f.target.problems, f.disc.problems + f.target.problems
        row = self.rows[f.name]
        assert row["state"] == "live" and row["unusable"] == r.unusable, row
        said = "\n".join(s for s in self.log.splitlines() if f.name in s)
        assert re.search(r.words, said), f"no '{r.words}' in\n{said}"
        if r.kind:
            assert f"violation ({r.kind})" in said, said
        assert f.disc.accepted == (2 if r.outcome == "again" else 1), f"{f.disc.accepted} connections"


campaign = Once(Campaign)


def add_test(r):
    def test():
        campaign().check(r)
    what = "is_told_and_made_good" if r.outcome == "again" else "does_no_harm"
    globals()[f"test_{r.name}_{what}"] = test


for _row in ROWS:
    add_test(_row)


class One:
    """A daemon with one volume that one discovery controller knows the way to."""

    def __init__(self, name, **settings):
        self.disc, self.target = Discovery(), Controller(f"nqn.2026-11.io.sluice:{name}")
        self.record = record(self.target.nqn, self.target.addr)
        self.disc.records = [self.record]
        self.i = Initiator({"hosts": hosts_json(self.disc.entry(**settings)),
                            "volumes": [{"name": "v", "members": [self.target.nqn + "/1"]}],
                            "vms": [{"name": "m", "disks": [{"volume": "v"}]}]})
        until(lambda: self.i.state("v") == "ready", "the volume", 10 * SCALE)

    def read(self):
        client = Client(self.i.shm)
        mem = Guarded(client, SIZES)
        got = client.queue(4).io(READ, client.volume("v").nsid, 0, sum(SIZES) // BLOCK, mem.sg)
        client.close()
        return got == 0 and mem.data == self.target.disk[:sum(SIZES)]

    def __enter__(self):
        return self

    def __exit__(self, etype, *_):
        problem = self.i.stop()
        self.disc.close()
        self.target.close()
        assert etype or not problem, problem
        assert etype or not self.disc.problems + self.target.problems, self.disc.problems + self.target.problems


def test_a_storm_of_changes_costs_one_reading_a_second():
    with One("storm") as o:
        def evil(link, c):
            o.disc.genctr += 1
            link.resp(c.cid, dw0=CHANGED)
        was, began = o.disc.headers, time.monotonic()
        o.disc.arm("aer", evil, 1 << 30)
        until(lambda: o.disc.event(CHANGED), "the host to ask for events", 5 * SCALE)
        while time.monotonic() < began + 3:
            assert o.read()
        o.disc.arm("aer", None, 0)
        # two headers a reading, more where the generation changes within it
        may = 12 * (time.monotonic() - began + 2)
        assert 2 <= o.disc.headers - was <= may, f"{o.disc.headers - was} headers, {may:.0f} may be"
        assert o.target.accepted == 2 and o.disc.accepted == 1


def test_a_log_that_becomes_empty_costs_nobody_a_working_path():
    with One("empty") as o:
        until(o.disc.change, "the host to ask for events", 5 * SCALE)
        until(lambda: o.i.ctl("discoveries")[0]["ways"] == 0, "it to be read", 5 * SCALE)
        assert o.read() and len(o.i.ctl("paths")) == 1


def test_a_way_that_leads_elsewhere_is_not_taken_while_another_one_works():
    """A record names a port where nobody listens, then the right one again."""
    with One("elsewhere") as o:
        wrong = record(o.target.nqn, NOWHERE)
        until(lambda: o.disc.change(wrong, o.record), "the host to ask for events", 5 * SCALE)
        until(lambda: len(o.i.ctl("paths")) == 2, "the second path", 5 * SCALE)
        assert o.read()
        until(lambda: o.disc.change(o.record), "the host to ask for events", 5 * SCALE)
        until(lambda: len(o.i.ctl("paths")) == 1, "the second path to go", 5 * SCALE)
        assert o.read() and o.i.ctl("paths")[0]["state"] == "live"


def test_an_event_of_namespaces_means_nothing_here():
    with One("ns-event") as o:
        until(o.disc.event, "the host to ask for events", 5 * SCALE)
        until(lambda: "the controller reports event 040002h" in o.i.log(), "it to be told", 5 * SCALE)
        assert o.read() and o.disc.accepted == 1


def test_the_connection_is_an_explicit_persistent_one_and_is_kept_alive():
    with One("persistent", keep_alive_tmo=1) as o:
        seen = []

        def look(link, c):
            seen.append(struct.unpack_from("<I", c.sqe, 48)[0])
            Link.do_connect(link, c)
        beats = []
        o.disc.arm("keep_alive", lambda link, c: (beats.append(1), link.resp(c.cid)), 1 << 30)
        until(lambda: len(beats) >= 2, "two keep-alives", 10 * SCALE)
        o.disc.arm("connect", look)
        o.disc.arm("keep_alive", lambda link, c: link.reset())
        until(lambda: seen, "another Connect", 10 * SCALE)
        assert seen == [1000], seen
        assert o.read()


main(globals())
