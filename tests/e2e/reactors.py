#!/usr/bin/env python3
"""Several reactors, many connections: data is right whoever serves it."""
import os
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from nvmetcp import *


def conf(n):
    return config({1: "ram:64M,bs=512", 2: "ram:64M,bs=512"}, sluice={"reactors": n})


def test_many_connections_over_several_reactors_keep_their_data():
    for reactors in (2, 4):
        with Target(conf(reactors)) as t:
            hosts = [Host(t, hostnqn=f"h{i}", queues=8, hdgst=bool(i & 1), ddgst=bool(i & 2))
                     for i in range(6)]
            ios = [h.io() for h in hosts for _ in range(4)]
            for round_ in range(4):
                flight = []
                for i, io in enumerate(ios):
                    for j in range(6):
                        flight.append((io, io.rw(WRITE, (i * 6 + j) * 64, 64, mode="r2t",
                                                 data=pattern((round_, i, j).__repr__(), 32768))))
                for io, c in flight:
                    assert io.wait(c).status == 0
                for i in range(len(ios)):
                    reader = ios[(i + 7) % len(ios)]
                    for j in range(6):
                        assert reader.read((i * 6 + j) * 64, 64) == \
                            pattern((round_, i, j).__repr__(), 32768)
            for h in hosts:
                h.close()
            until(lambda: t.count() == 0, "all gone")


def test_connections_are_spread_over_the_reactors():
    with Target(conf(2)) as t:
        host = Host(t, queues=8)
        for _ in range(7):
            host.io()
        where = [c["reactor"] for c in t.connections()]
        assert sorted(set(where)) == [0, 1] and 3 <= where.count(0) <= 5, where
        host.close()


def test_namespace_changes_reach_every_reactor_at_once():
    with Target(conf(3)) as t:
        host = Host(t, queues=8)
        ios = [host.io() for _ in range(6)]
        for _ in range(6):
            flight = [(io, io.rw(WRITE, i * 8, 8, data=bytes(4096), nsid=2, mode="r2t"))
                      for i in range(8) for io in ios]
            t.ctl("ns.remove", nqn=t.nqn, nsid=2)
            late = [io.io(READ, 0, 1, read=512, nsid=2) for io in ios]
            assert all(c.status == SC_NS and c.dnr for c in late), late
            for io, c in flight:
                assert io.wait(c).status in (0, SC_NS)
            t.ctl("ns.add", nqn=t.nqn, nsid=2, device="ram:64M,bs=512")
            for io in ios:
                io.write(0, bytes(512), nsid=2)
        host.close()


def test_admin_and_io_queues_on_different_reactors_end_together():
    with Target(conf(4)) as t:
        for _ in range(10):
            host = Host(t, queues=8)
            ios = [host.io() for _ in range(7)]
            for io in ios:
                io.rw(WRITE, 0, 64, data=bytes(32768), mode="r2t", hold=True)
            host.admin.reset()
            for io in ios:
                io.expect_closed()
        until(lambda: t.count() == 0 and not t.controllers(), "all gone")


def test_lists_may_be_asked_for_while_hosts_come_and_go():
    """A connection that is listed lives on another reactor and may just be beginning."""
    with Target(conf(4)) as t:
        done = threading.Event()

        def come_and_go():
            while not done.is_set():
                host = Host(t, queues=8)
                for _ in range(7):
                    host.io()
                host.close()
        guests = [threading.Thread(target=come_and_go) for _ in range(3)]
        for guest in guests:
            guest.start()
        try:
            asked = Control(t.control)
            end = time.monotonic() + 3
            while time.monotonic() < end:
                for row in asked.call("connections"):
                    assert row["cntlid"] > 0 and row["qid"] < 9, row
                asked.call("controllers")
                asked.call("stats")
            asked.close()
        finally:
            done.set()
            for guest in guests:
                guest.join()


main(globals())
