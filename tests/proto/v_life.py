#!/usr/bin/env python3
"""vhost-user-blk: stop and go on, memory and eventfds that change under load, growth, coming and going."""
import os
import random
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from daemon import Shared
from runner import main, until
from vhost import *

world = Shared(lambda: World(disks=2, size="16M"))
KINDS = [dict(packed=p, event_idx=e) for p in (False, True) for e in (False, True)]


def load(d, rnd, n):
    """Requests that are not waited for."""
    for _ in range(n):
        s = rnd.randrange(2000)
        if rnd.random() < 0.5:
            d.submit(T_OUT, s * 8, pattern(4096, s), ring=rnd.randrange(len(d.rings)))
        else:
            d.submit(T_IN, s * 8, n=4096, ring=rnd.randrange(len(d.rings)))
        if rnd.random() < 0.3:
            d.reap()


def check_load(d):
    """Every block was written with one pattern of its own, or never."""
    d.wait()
    for s in range(0, 2000, 37):
        got = world().flat(0, s * 4096, 4096)
        assert got in (pattern(4096, s), bytes(4096)), s


def zero():
    d = world().disk()
    for s in range(0, 16000, 4000):
        d.wait(*[d.submit(T_WRITE_ZEROES, 0, struct.pack("<QII", s, 4000, 0))])
    d.close()


def test_a_stop_waits_for_what_is_in_flight_and_tells_where_to_go_on():
    for k, kind in enumerate(KINDS):
        d = world().disk(rings=2, size=16, **kind)
        total = 0
        for lap in range(12):
            for i in range(5):
                d.submit(T_OUT, i * 8, pattern(4096, (k, lap, i)))
            base = d.stop(0)
            d.reap()
            assert not d.waiting, "it was answered before its requests ended"
            total += 5
            if not kind["packed"]:
                assert base == total
            else:
                r = d.rings[0]
                want = r.avail_idx | r.avail_wrap << 15
                assert base == want | want << 16, hex(base)
            d.io(T_IN, 0, n=512, ring=1)
            d.start(0, base)
            assert d.read(8, 4096) == pattern(4096, (k, lap, 1))
            total += 1
        d.close()


def test_a_stop_while_the_targets_stand_still_is_answered_when_they_go_on():
    for kind in KINDS:
        d, other = world().disk(**kind), world().disk(1)
        for t in world().targets:
            t.signal(signal.SIGSTOP)
        try:
            for i in range(6):
                d.submit(T_OUT, i * 8, pattern(4096, (kind, i)))
            d.send(GET_VRING_BASE, struct.pack("<II", 0, 0))
            d.quiet(0.2)
            assert other.get_config(8)  # the other one is not held up
        finally:
            for t in world().targets:
                t.signal(signal.SIGCONT)
        d.recv(GET_VRING_BASE)
        d.reap()
        assert not d.waiting
        for i in range(6):
            assert world().flat(0, i * 4096, 4096) == pattern(4096, (kind, i))
        d.close()
        other.close()


def test_a_stop_lets_what_a_limit_holds_go():
    """Held requests were taken from the ring: they end well, and are paid for later."""
    i = world().initiator
    i.ctl("qos.set", name="vm0", limits={"iops": 2, "burst_ms": 0})
    try:
        d = world().disk(size=32)
        sent = [d.submit(T_OUT, n * 8, pattern(4096, ("held", n))) for n in range(20)]
        until(lambda: i.ctl("qos.show", name="vm0")[0]["waiting"] == 1, "the limit to hold one")
        base = d.stop(0)
        d.reap()
        ended = [r for r in sent if r.done]
        assert base == len(ended) > 0, "it was answered before its requests ended"
        assert all(r.status == S_OK for r in ended), [r.status for r in ended]
        assert world().flat(0, 0, base * 4096) == b"".join(pattern(4096, ("held", n)) for n in range(base))
        d.close()
    finally:
        i.ctl("qos.clear", name="vm0")
    zero()


def test_memory_changes_under_load():
    zero()
    for k, kind in enumerate(KINDS):
        rnd = random.Random(k)
        d = world().disk(rings=2, slots=True, **kind)
        extra = [Region((100 + i) * MIB, MIB, 0x600000000000 + i * MIB) for i in range(3)]
        for lap in range(12):
            load(d, rnd, 20)
            if lap % 2 == 0:
                for r in extra:
                    d.add_mem(r)
                    d.mem.regions.append(r)
            else:
                for r in extra:
                    d.submit(T_IN, 0, n=65536, at=r.gpa)  # in flight when its memory goes
                for r in extra:
                    d.rem_mem(r)
                    d.mem.regions.remove(r)
        d.wait(status=None)
        check_load(d)
        d.close()


def test_a_new_table_is_followed_under_load():
    """Everything is mapped anew, and so lies elsewhere in the daemon."""
    zero()
    for k, kind in enumerate(KINDS):
        rnd = random.Random(k)
        d = world().disk(rings=2, **kind)
        for lap in range(10):
            load(d, rnd, 20)
            if lap % 2:
                d.mem.regions.insert(lap % 3, Region(100 * MIB, MIB, 0x600000000000))
            d.mem_table(d.mem)
            if lap % 2:
                d.mem.regions.pop(lap % 3)
        check_load(d)
        d.close()


def test_eventfds_change_under_load():
    zero()
    for k, kind in enumerate(KINDS):
        rnd = random.Random(k)
        d = world().disk(rings=2, **kind)
        for lap in range(10):
            load(d, rnd, 10)
            r = d.rings[lap % 2]
            old, r.call = r.call, os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK * (lap % 3 > 0))
            d.u64(SET_VRING_CALL, lap % 2, [r.call])
            os.close(old)
            if lap % 3 == 2:
                old, r.kick = r.kick, os.eventfd(0, os.EFD_CLOEXEC)
                d.u64(SET_VRING_KICK, lap % 2, [r.kick])
                os.close(old)
                os.eventfd_write(r.kick, 1)
            d.wait()
        d.u64(SET_VRING_CALL, NO_FD)
        req = d.submit(T_IN, n=512)
        until(lambda: d.reap() or req.done, "it ends without an interrupt")
        check_load(d)
        d.close()


def test_a_guest_that_never_reads_its_eventfd_is_served():
    """A full eventfd that blocks whoever writes to it."""
    d = world().disk()
    full = os.eventfd(0, os.EFD_CLOEXEC)
    os.eventfd_write(full, (1 << 64) - 2)
    d.u64(SET_VRING_CALL, 0, [full])
    for i in range(20):
        d.rings[0].want()
        req = d.submit(T_IN, i, n=512)
        until(lambda: d.reap() or req.done, "it ends")
    d.close()
    d = world().disk()
    d.io(T_FLUSH)
    d.close()


def test_growth_is_told_on_the_channel_back_and_is_usable():
    with World(disks=2, size="8M") as w:
        d, deaf = w.disk(0), w.disk(1)  # one has no channel back: nothing blocks
        d.open_back()
        old, = struct.unpack("<Q", d.get_config(8))
        assert old == 2 * 8 * MIB // 512
        d.io(T_IN, old, n=512, status=S_IOERR)
        for nsid in 1, 2:
            for t in w.targets:
                t.ctl("ns.resize", nqn=t.nqn, nsid=nsid, size="12M")
        head = d.back.recv(12)
        assert struct.unpack("<III", head) == (BACKEND_CONFIG_CHANGE, VERSION, 0), head
        new, = struct.unpack("<Q", d.get_config(8))
        assert new > old
        until(lambda: struct.unpack("<Q", d.get_config(8))[0] == 2 * 12 * MIB // 512, "all of it")
        d.write(old + 8, pattern(4096, 1))
        assert w.flat(0, (old + 8) * 512, 4096) == pattern(4096, 1)
        until(lambda: struct.unpack("<Q", deaf.get_config(8))[0] == 2 * 12 * MIB // 512, "the other's")
        deaf.write(old, pattern(512, 2))
        d.close()
        deaf.close()


def test_coming_and_going_leaves_nothing_behind():
    w = world()
    for _ in range(3):
        w.disk(rings=4).close()
    until(lambda: w.initiator.ctl("status"), "it settles")
    fds = w.initiator.fds()
    for i in range(40):
        d = w.disk(rings=4, packed=i % 2 == 1, inflight=i % 3 == 0)
        d.open_back()
        d.submit(T_IN, n=65536, ring=i % 4)
        if i % 4:
            d.wait()
        d.close()
        for r in d.rings:
            r.close()
    until(lambda: w.initiator.fds() <= fds, f"descriptors go; there were {fds}")
    until(lambda: "guest" not in open(f"/proc/{w.initiator.pid}/maps", encoding="ascii").read(),
          "guest memory is unmapped")


def test_an_idle_device_costs_no_time():
    d = world().disk(rings=4)
    d.io(T_FLUSH)
    d.idle()
    time.sleep(0.1)
    before = world().initiator.cpu_ticks()
    time.sleep(0.5)
    assert world().initiator.cpu_ticks() - before <= 5, "the daemon is busy"
    d.close()


main(globals())
