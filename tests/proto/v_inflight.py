#!/usr/bin/env python3
"""vhost-user-blk: the daemon is killed with -9 and started again; the guest sees nothing of it.

The inflight area is the only thing that remembers. Each request ends exactly once for the guest (the
ring's driver refuses a second end), and the bytes in the targets' files are those of the last writes.
"""
import os
import random
import signal
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from runner import main, until
from vhost import *

_world = []
KINDS = [dict(packed=p, event_idx=e) for p in (False, True) for e in (False, True)]


def world():
    """One for all tests, dead daemon or not."""
    if not _world:
        _world.append(World(disks=2))
    return _world[0]


class Area:
    """The inflight area as the VMM could look at it: what is in flight, by line."""

    def __init__(self, disk):
        length, off, fd = disk.inflight
        self.map = mmap.mmap(fd, length, offset=off)
        self.size, self.packed = disk.rings[0].size, disk.rings[0].packed
        self.slice = max(-(-(16 + 16 * self.size) // 64) * 64, -(-(32 + 32 * self.size) // 64) * 64)

    def count(self, ring=0):
        head, line = (32, 32) if self.packed else (16, 16)
        at = ring * self.slice + head
        return sum(self.map[at + i * line] for i in range(self.size))


def pause(signum):
    for t in world().targets:
        t.signal(signum)


def test_requests_that_hang_in_the_network_survive_the_daemon():
    """Point: all were fetched and none is done, since the targets stand still."""
    for k, kind in enumerate(KINDS):
        d = world().disk(inflight=True, rings=2, **kind)
        area = Area(d)
        assert area.count() == 0
        pause(signal.SIGSTOP)
        want, reads = {}, []
        for i in range(40):
            data = pattern(4096 if i % 5 else 128 * 1024, (k, i))
            want[i * 300] = data
            d.submit(T_OUT, i * 300, data, ring=i % 2, indirect=bool(i % 3))
        reads = [d.submit(T_IN, 20000 + i, n=512, ring=i % 2) for i in range(4)]
        until(lambda: area.count(0) + area.count(1) == 44, "all are in flight")
        world().initiator.kill()
        pause(signal.SIGCONT)
        world().initiator.start()
        d.close()
        d = Disk(world().sockets[0], old=d)
        d.wait()
        assert area.count(0) == area.count(1) == 0
        for sector, data in want.items():
            assert world().flat(0, sector * 512, len(data)) == data, (kind, sector)
        flat = world().flat(0, 20000 * 512, 4 * 512)
        assert b"".join(q.bytes() for q in reads) == flat
        assert d.read(0, 4096) == world().flat(0, 0, 4096)
        d.reap()
        assert not d.waiting
        d.close()


def test_requests_that_nobody_had_fetched_are_fetched_by_the_next():
    """Point: they became available while there was no daemon at all."""
    for k, kind in enumerate(KINDS):
        d = world().disk(inflight=True, **kind)
        d.write(0, pattern(512, 1))
        d.idle()
        world().initiator.kill()
        for i in range(10):
            d.submit(T_OUT, 100 + i, pattern(512, (k, i)))
        d.close()
        world().initiator.start()
        d = Disk(world().sockets[0], old=d)
        d.wait()
        for i in range(10):
            assert world().flat(0, (100 + i) * 512, 512) == pattern(512, (k, i))
        d.close()


def load_until_death(d, rnd, model, busy, base):
    """Requests on slots of their own until the daemon is dead; a slot has one request at a time."""
    proc = world().initiator.proc
    while proc.poll() is None:
        d.reap()
        for s in [s for s, (q, _) in busy.items() if q.done]:
            settle(model, busy, s)
        free = [s for s in range(48) if s not in busy]
        ring = rnd.randrange(len(d.rings))
        if not free or not d.rings[ring].room(40):
            time.sleep(0.0005)
            continue
        s = rnd.choice(free)
        n = rnd.choice((1, 8, 8, 64))
        if rnd.random() < 0.7:
            data = rnd.randbytes(n * 512)
            req = d.submit(T_OUT, base + s * 64, data, ring=ring, indirect=rnd.random() < 0.5)
        else:
            data = None
            req = d.submit(T_IN, base + s * 64, n=n * 512, ring=ring, cut=4096)
        busy[s] = req, data


def settle(model, busy, s):
    req, data = busy.pop(s)
    assert req.status == S_OK, req.status
    at = s * 64 * 512
    if data is None:
        assert req.bytes() == model[at:at + req.n], f"a read of slot {s} has other bytes"
    else:
        model[at:at + len(data)] = data


def test_kills_under_load_lose_and_double_nothing():
    """Points: wherever it was after a few milliseconds of load, again and again, in every format."""
    for k, kind in enumerate(KINDS):
        rnd, base = random.Random(k), 4096
        d = world().disk(inflight=True, rings=2, size=128, **kind)
        model, busy = bytearray(world().flat(0, base * 512, 48 * 64 * 512)), {}
        for _ in range(3):
            killer = threading.Timer(rnd.uniform(0.02, 0.3), world().initiator.proc.kill)
            killer.start()
            load_until_death(d, rnd, model, busy, base)
            killer.join()
            d.close()
            world().crash()
            d = Disk(world().sockets[0], old=d)
            d.wait()
            for s in list(busy):
                settle(model, busy, s)
        assert world().flat(0, base * 512, len(model)) == model, f"{kind}: the disk differs from the model"
        assert Area(d).count() == 0
        d.close()


def test_a_vmm_that_comes_back_finds_its_requests():
    """QEMU was killed, or its connection broke: the daemon lives, and so do the requests."""
    for kind in KINDS:
        d = world().disk(inflight=True, **kind)
        area = Area(d)
        pause(signal.SIGSTOP)
        for i in range(10):
            d.submit(T_OUT, 500 + i * 8, pattern(4096, (kind, i)))
        until(lambda: area.count() == 10, "all are in flight")
        d.close()
        pause(signal.SIGCONT)
        d = Disk(world().sockets[0], old=d)
        d.wait()
        for i in range(10):
            assert world().flat(0, (500 + i * 8) * 512, 4096) == pattern(4096, (kind, i))
        d.close()


def test_an_area_of_nonsense_ends_that_connection_alone():
    other = world().disk(1)
    for packed in False, True:
        for seed in range(12):
            d = world().disk(inflight=True, packed=packed, size=16)
            d.write(0, pattern(512, seed))
            area = Area(d)
            rnd = random.Random(seed)
            d.close()
            if seed == 0:
                area.map[8:12] = b"\x07\x00\x10\x00"  # version
            elif seed == 1:
                area.map[8:12] = b"\x01\x00\x11\x00"  # size
            else:
                for _ in range(40):
                    area.map[rnd.randrange(12, area.slice)] = rnd.randrange(256)
            try:
                d = Disk(world().sockets[0], old=d)
                d.quiet(0.02)
                d.close()
            except (Gone, AssertionError):
                assert seed < 2 or "inflight" in world().log()
            else:
                assert seed >= 2, "it was taken"
    assert other.read(0, 512) == world().flat(1, 0, 512)
    other.close()


def test_an_area_that_cannot_be_is_refused():
    d = world().disk(inflight=True, size=64)
    length, off, fd = d.inflight
    small = os.memfd_create("small", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(small, 64)
    d.close()
    rows = [(length, off, small, 1, 64), (length, off, fd, 0, 64), (length, off, fd, 1, 0),
            (length, off, fd, 300, 64), (length, 1, fd, 1, 64), (length, 1 << 63, fd, 1, 64),
            (length, off, fd, 4, 32768), (length, off, d.rings[0].kick, 1, 64)]
    for row in rows:
        m = Disk(world().sockets[0], mem=d.mem, start=False)
        m.set_protocol(m.protocol & ~P_REPLY_ACK)
        m.set_inflight(*row)
        m.gone()
    for queues, size in (0, 64), (1, 0), (300, 64), (65535, 65535):
        m = Disk(world().sockets[0], mem=d.mem, start=False)
        m.set_protocol(m.protocol)
        m.send(GET_INFLIGHT_FD, struct.pack("<QQHHI", 0, 0, queues, size, 0))
        m.gone()


main(globals())
