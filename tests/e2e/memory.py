#!/usr/bin/env python3
"""Resident memory does not follow what is in flight: 256 x 1 MiB needs no more than 8 MiB beyond 1 x 4 KiB.

Stopped targets keep the commands in flight while we look; then they go on and we look while the payload moves. What
counts is memory of the daemon's own (RssAnon, RssFile). RssShmem is the clients' memory, which the daemon maps too:
the kernel counts a page there once payload was moved to or from it, and it is the client that owns it.
"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from nvmetcp import *
import runner
import signal
from initiator import Initiator, hosts, volume

M = 1 << 20
A, B = "nqn.2026-11.io.sluice:a", "nqn.2026-11.io.sluice:b"


def own(memory):
    return memory["anon"] + memory["file"]


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        rows = dict(line.split(":", 1) for line in f)
    return {kind[3:].lower(): int(rows[kind].split()[0]) << 10 for kind in ("RssAnon", "RssFile", "RssShmem")}


def allowance(pid):
    """The sanitizers have shadow, red zones and freed memory of their own."""
    with open(f"/proc/{pid}/maps", encoding="ascii") as f:
        return 64 * M if "asan" in f.read() else 8 * M


def granted(i):
    g = i.ctl("grants")
    assert g["not_listed"] == 0, g["not_listed"]
    return sum(row["granted_bytes"] for row in g["grants"])


def watch(load, *pids):
    """The most that each process has of its own until the load ends."""
    most = [0] * len(pids)
    while load.running():
        most = [max(m, own(resident(pid))) for m, pid in zip(most, pids)]
        time.sleep(0.01)
    rc, result, err = load.finish()
    assert rc == 0, (err, result)
    return most


def initiator_of(targets, **settings):
    return Initiator({"hosts": hosts(*targets, keep_alive_tmo=600, queue_size=1024, **settings),
                      "volumes": [volume("v", *targets, max_part="1M")],
                      "vms": [{"name": "me", "disks": ["v"]}]})


def in_flight(targets, kind, bs, depth, **settings):
    """(while all of it stands still, the most while it moves) of a new initiator."""
    with initiator_of(targets, **settings) as i:
        rc, _, err = i.perf("v", "--rw", "randrw", "--bs", "64k", "--qd", 4, "--count", 50)  # opens the queues
        assert rc == 0, err
        for t in targets:
            t.signal(signal.SIGSTOP)
        try:
            load = i.load("v", "--rw", kind, "--bs", bs, "--qd", depth, "--count", depth)
            until(lambda: granted(i) == bs * depth, f"{depth} x {bs} bytes in flight", 40)
            stands = resident(i.pid)
        finally:
            for t in targets:
                t.signal(signal.SIGCONT)
        moves, = watch(load, i.pid)
        until(lambda: resident(i.pid)["shmem"] == 0, "the client's memory to be unmapped", 10)
        return stands, moves, allowance(i.pid)


def compare(kind, **settings):
    targets = [Target(config({1: "ram:64M"}, nqn=nqn), nqn=nqn) for nqn in (A, B)]
    small, _, _ = in_flight(targets, kind, 4096, 1, **settings)
    stands, moves, more = in_flight(targets, kind, M, 256, **settings)
    print(f"     {own(small) >> 10} KiB with 1 x 4 KiB, {own(stands) >> 10} KiB with 256 x 1 MiB, at most "
          f"{moves >> 10} KiB while they move")
    assert max(own(stands), moves) <= own(small) + more, (kind, small, stands, moves)
    problem = "".join(t.stop() for t in targets)
    assert not problem, problem


def test_resident_memory_does_not_follow_reads_in_flight():
    compare("randread")


def test_resident_memory_does_not_follow_writes_in_flight():
    compare("randwrite")


def test_resident_memory_does_not_follow_reads_in_flight_with_data_digests():
    compare("randread", hdr_digest=True, data_digest=True)


def test_resident_memory_does_not_follow_writes_in_flight_with_data_digests():
    compare("randwrite", hdr_digest=True, data_digest=True)


def test_target_resident_memory_is_bounded_by_its_buffers():
    """An initiator that stands still takes nothing of what it asked for, and sends nothing of what it announced."""
    with Target(config(nqn=A, sluice={"buffers": "32M"}), nqn=A, start=False) as t:
        t.add_file(1, "64M", direct="off")
        t.start()
        most = {}
        for bs, depth in ((4096, 1), (M, 256)):
            with initiator_of([t]) as i:
                for kind in ("randread", "randwrite"):
                    load = i.load("v", "--rw", kind, "--bs", bs, "--qd", depth, "--count", depth)
                    until(lambda: granted(i) > 0 or not load.running(), "load", 20, 0.001)
                    i.signal(signal.SIGSTOP)
                    time.sleep(0.3)
                    stands = own(resident(t.pid))
                    i.signal(signal.SIGCONT)
                    moves, = watch(load, t.pid)
                    most[bs] = max(most.get(bs, 0), stands, moves)
        print(f"     {most[4096] >> 10} KiB with 1 x 4 KiB, at most {most[M] >> 10} KiB with 256 x 1 MiB")
        assert most[M] <= most[4096] + allowance(t.pid), most


# A busy machine takes its time to come up with 256 MiB.
runner.LIMIT *= 3
if __name__ == "__main__":
    main(globals())
