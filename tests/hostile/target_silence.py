#!/usr/bin/env python3
"""A target that falls silent, against the whole sluice-initiator: at each stage of set-up and of I/O.

Every row is a volume on a scripted controller of its own that reads on, or does not, and answers nothing more
after its one evil thing. All rows run at once, so the longest limit (30 s of a command) is the whole run's.
Nobody else may wait: a volume on an honest target works all the time. When a limit is over the path is made
again and the command is sent again.
"""
import os
import re
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from controller import *
from daemon import SCALE
from initiator import Initiator
from rawshm import Client, Guarded
from runner import main, until
from wire import *

READ_SIZES, WRITE_SIZES = [5, 4091, 12288], [77, 131072 - 77]
ROWS = []


class Row:
    """In set-up the log says words; of I/O, cid has not ended."""

    def __init__(self, name, stage, evil, words, op=READ, **settings):
        self.name, self.stage, self.evil, self.words, self.op, self.settings = name, stage, evil, words, op, settings
        ROWS.append(self)


def nothing(link, c):
    link.silence()


def forgets(link, c):
    """Nothing but this command: Keep Alive is still answered."""


def deaf(link, c):
    """Does not even read."""
    while link in link.ctrl.links and not link.ctrl.over:
        time.sleep(0.05)
    link.close()


def after(make):
    def evil(link, c):
        link.send(make(link, c))
        link.silence()
    return evil


Row("icresp", "icreq", nothing, "no ICResp in time")
Row("icresp_that_stops_in_the_middle", "icreq", after(lambda link, d: icresp()[:100]), "no ICResp in time")
Row("connect", "connect", nothing, "no answer to Connect in time")
Row("connect_that_is_not_even_read", "connect", deaf, "no answer to Connect in time")
for _stage, _what in (("cap", "Property Get CAP"), ("cc", "Property Set CC"), ("csts", "Property Get CSTS"),
                      ("identify_ctrl", "Identify Controller"), ("set_features", "Set Features Number of Queues"),
                      ("ns_list", "Identify Active Namespaces"), ("identify_ns", "Identify Namespace"),
                      ("ns_descriptors", "Identify Namespace Descriptors")):
    Row(_stage, _stage, forgets, _what + " was not answered within 10 s")
Row("identify_that_stops_in_its_data", "identify_ctrl", after(lambda link, c: link.c2h_pdu(c.cid, 0, bytes(4096), last=True)[:3000]),
    "no answer to Keep Alive for 5 s")
Row("keep_alive", "keep_alive", nothing, "no answer to Keep Alive for 2 s", keep_alive_tmo=2)
Row("connect_of_a_queue", "io_connect", nothing, "no answer to Connect in time")

LOST = r"cid [0-9a-f]{4} \(opcode 0[12]h\) has not ended for 30000 ms"
Row("read", "read", nothing, LOST)
Row("read_that_stops_in_its_data", "read", after(lambda link, c: link.c2h_pdu(c.cid, 0, link.ctrl.blocks(c), last=True)[:5000]),
    LOST)
Row("read_without_its_response", "read", after(lambda link, c: link.c2h_pdu(c.cid, 0, link.ctrl.blocks(c), last=True)), LOST)
Row("write_that_is_never_asked_for", "write", nothing, LOST, WRITE)
Row("write_that_is_asked_for_half", "write", lambda link, c: (link.ask(c, 0, c.len // 2), nothing(link, c)), LOST, WRITE)
Row("write_without_its_response", "write", lambda link, c: (link.ask(c, 0, c.len), nothing(link, c)), LOST, WRITE)


def ask_and_turn_deaf(link, c):
    link.ask(c, 0, c.len)
    deaf(link, c)


Row("write_whose_data_is_not_read", "write", ask_and_turn_deaf, LOST, WRITE)
Row("write_whose_data_is_not_read_with_digests", "write", ask_and_turn_deaf, LOST, WRITE,
    hdr_digest=True, data_digest=True)


class Fixture:
    def __init__(self, r, number):
        self.row, self.volume = r, f"v{number}"
        self.ctrl = Controller(f"nqn.2026-11.io.sluice:{r.name if r else 'honest'}", over=False)
        self.nqn = self.ctrl.nqn
        if r:
            self.ctrl.arm(r.stage, r.evil)

    def conf(self):
        return self.ctrl.entry(**(self.row.settings if self.row else {}))


class Campaign:
    def __init__(self):
        self.fixtures = {r.name: Fixture(r, n) for n, r in enumerate(ROWS)}
        self.everyone, self.honest = list(self.fixtures.values()), Fixture(None, len(ROWS))
        every = self.everyone + [self.honest]
        self.i = Initiator({
            "hosts": hosts_json(*[f.conf() for f in every]),
            "volumes": [{"name": f.volume, "members": [f.nqn + "/1"]} for f in every],
            "vms": [{"name": "m", "disks": [{"volume": f.volume} for f in every]}]})
        self.client = Client(self.i.shm)
        self.q, self.slowest = self.client.queue(128), 0.0
        self.io, self.said = {}, {}
        self.own = Guarded(self.client, READ_SIZES, "honest")
        self.began = time.monotonic()
        while len(self.said) < len(self.everyone):
            self.turn()
        self.took = time.monotonic() - self.began
        self.stats, self.log = self.i.ctl("stats"), self.i.log()

    def turn(self):
        """What is ready is used, what has ended is noted, and the honest volume has to work in between."""
        for f in self.everyone:
            if f not in self.io:
                self.begin(f)
        for cid, got in list(self.q.reap().items()):
            for f, (c, _) in self.io.items():
                if c == cid and f not in self.said:
                    self.said[f] = self.q.done.pop(cid)
        self.honest_read()
        assert time.monotonic() - self.began < 50 * SCALE, [f.row.name for f in self.everyone if f not in self.said]
        time.sleep(0.05)

    def begin(self, f):
        v = self.client.volume(f.volume)
        if not v.blocks:
            return
        sizes = WRITE_SIZES if f.row.op == WRITE else READ_SIZES
        mem = Guarded(self.client, sizes, f.nqn)
        self.io[f] = self.q.submit(f.row.op, v.nsid, 0, sum(sizes) // BLOCK, mem.sg), mem

    def honest_read(self):
        v = self.client.volume(self.honest.volume)
        if not v.blocks:
            return
        began = time.monotonic()
        assert self.q.io(READ, v.nsid, 0, sum(READ_SIZES) // BLOCK, self.own.sg) == 0
        self.slowest = max(self.slowest, time.monotonic() - began)
        assert self.own.data == self.honest.ctrl.disk[:sum(READ_SIZES)]

    def check(self, r):
        f = self.fixtures[r.name]
        mem = self.io[f][1]
        assert self.said[f] == [0], f"statuses {self.said[f]}"
        mem.untouched()
        n = sum(n for _, n in mem.spans)
        assert mem.data == f.ctrl.disk[:n], "the data is wrong"
        lines = [s for s in self.log.splitlines() if f.nqn in s]
        assert re.search(r.words, "\n".join(lines)), f"no '{r.words}' in\n" + "\n".join(lines)
        assert not f.ctrl.problems, f.ctrl.problems
        path = next(p for p in self.stats["paths"] if p["nqn"] == f.nqn)
        assert path["violations"] == 0, path
        assert path["lost"] == (r.words == LOST), path


campaign = Once(Campaign)


def add_test(r):
    def test():
        campaign().check(r)
    globals()[f"test_silence_at_{r.name}_ends_at_its_limit_and_is_made_good"] = test


for _row in ROWS:
    add_test(_row)


def test_others_do_not_wait_for_a_silent_target():
    c = campaign()
    assert c.slowest < 5 * SCALE, f"a read of the honest volume took {c.slowest:.1f} s"
    path = next(p for p in c.stats["paths"] if p["nqn"] == c.honest.nqn)
    assert path["lost"] == 0 and c.honest.ctrl.accepted == 2, path


def test_a_target_that_does_not_take_the_connection_is_given_up_at_its_limit():
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    waiting = [socket.socket() for _ in range(3)]
    for s in waiting:
        s.setblocking(False)
        s.connect_ex(full.getsockname())
    addr, port = full.getsockname()
    nqn = "nqn.2026-11.io.sluice:full"
    with Initiator({
            "hosts": hosts_json({"nqn": nqn, "ports": [{"transport": "tcp", "traddr": addr, "trsvcid": str(port)}]}),
            "volumes": [{"name": "v", "members": [nqn + "/1"]}]}) as i:
        until(lambda: "TCP connect: no answer in time" in i.log(), "the limit", 15 * SCALE)
    for s in waiting + [full]:
        s.close()


main(globals())
