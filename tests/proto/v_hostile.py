#!/usr/bin/env python3
"""vhost-user-blk: every descriptor is hostile. One guest misbehaves; its request or its ring ends, with a
sentence in the log; the guest beside it notices nothing, and a reset makes the ring whole again."""
import os
import random
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from daemon import Shared
from runner import main, until
from vhost import *

world = Shared(lambda: World(disks=2))
FORMATS = False, True
OUTSIDE = 1 << 40


def beside():
    """A guest on another disk of the same daemon is served."""
    d = world().disk(1)
    data = os.urandom(4096)
    d.write(8, data)
    assert world().flat(1, 8 * 512, 4096) == data
    d.close()


def broken(spoil, says, packed=False, indirect=False, **kw):
    """One good request, spoilt, breaks the ring; the next life of the ring works."""
    d = world().disk(packed=packed, size=8, **kw)
    ring, before = d.rings[0], world().log().count(says)
    d.io(T_IN, 0, n=512)
    req = d.prepare(T_IN, 0, n=512)
    ring.add(d.segs(req), indirect)
    spoil(d, ring, req)
    os.eventfd_write(ring.kick, 1)
    assert d.err_signalled(), f"{says}: the err eventfd is silent"
    assert world().log().count(says) == before + 1, f"'{says}' is not in the log\n{world().log()[-600:]}"
    assert req.status == S_NONE
    d.stop(0)
    os.eventfd_read(ring.err)
    ring.reset()
    d.waiting.clear()
    d.start(0, ring.start_base())
    d.io(T_IN, 0, n=512)
    d.close()


def last(ring):
    """The first descriptor of the chain that was made available last."""
    if ring.packed:
        n = list(ring.chains.values())[-1]
        return (ring.avail_idx - n) % ring.size
    return list(ring.chains.values())[-1][0]


def desc_at(ring, i):
    return ring.desc + 16 * i


def flags_at(ring, at):
    return at + (14 if ring.packed else 12)


def chain(ring, k):
    """Where the k-th descriptor of the last chain lies."""
    if ring.packed:
        return desc_at(ring, (last(ring) + k) % ring.size)
    return desc_at(ring, list(ring.chains.values())[-1][k])


def add_flags(ring, at, flags):
    ring.mem.put("<H", flags_at(ring, at), ring.mem.get("<H", flags_at(ring, at)) | flags)


def table(ring, k=0):
    return ring.mem.get("<Q", desc_at(ring, last(ring))) + 16 * k


def test_loops_and_bad_indices_break_a_split_ring():
    put = lambda fmt, at, v: lambda d, r, q: d.mem.put(fmt, at(r), v)
    broken(put("<H", lambda r: r.avail + 2, 1000), "more than its size ahead")
    broken(put("<H", lambda r: r.avail + 2, 0), "more than its size ahead")
    broken(put("<H", lambda r: r.avail + 4 + 2 * 1, 8), "a head is beyond the ring")
    broken(put("<H", lambda r: r.avail + 4 + 2 * 1, 0xFFFF), "a head is beyond the ring")
    broken(put("<H", lambda r: chain(r, 0) + 14, 8), "next is beyond the ring")
    broken(lambda d, r, q: d.mem.put("<H", chain(r, 0) + 14, last(r)), "goes round")
    broken(lambda d, r, q: (add_flags(r, chain(r, 2), D_NEXT), d.mem.put("<H", chain(r, 2) + 14, last(r))),
           "follows one to be written")


def test_an_endless_chain_breaks_a_packed_ring():
    def endless(_, r, __):
        for i in range(r.size):
            add_flags(r, desc_at(r, i), D_NEXT)
            r.mem.put("<I", desc_at(r, i) + 8, 0)
    broken(endless, "longer than the places that are free", packed=True)


def test_a_head_that_is_in_flight_is_not_taken_again():
    for t in world().targets:  # so that the first is in flight for certain
        t.signal(19)
    d = world().disk(size=8)
    req = d.prepare(T_IN, 0, n=512)
    d.rings[0].add(d.segs(req))
    d.rings[0].publish(last(d.rings[0]))
    os.eventfd_write(d.rings[0].kick, 1)
    try:
        assert d.err_signalled()
        assert "that is in flight" in world().log()
    finally:
        for t in world().targets:
            t.signal(18)
    d.close()
    beside()


def test_flags_and_tables_that_cannot_be_break_the_ring():
    for packed in FORMATS:
        kw = dict(packed=packed)
        broken(lambda d, r, q: add_flags(r, chain(r, 0), D_WRITE) or
               d.mem.put("<H", flags_at(r, chain(r, 2)), d.mem.get("<H", flags_at(r, chain(r, 2))) & ~D_WRITE),
               "follows one to be written", **kw)
        broken(lambda d, r, q: d.mem.put("<Q", chain(r, 1), (1 << 64) - 256), "beyond the last address", **kw)
        kw["indirect"] = True
        for n in 0, 15, 17, 0xFFFFFFF0, 0xFFFFFFFF:
            broken(lambda d, r, q: d.mem.put("<I", chain(r, 0) + 8, n), "impossible length", **kw)
        for at in OUTSIDE, (1 << 64) - 16, 0x3000000 - 16:
            broken(lambda d, r, q: d.mem.put("<Q", chain(r, 0), at), "outside the memory", **kw)
        broken(lambda d, r, q: add_flags(r, chain(r, 0), D_NEXT), "follows an indirect one", **kw)
        broken(lambda d, r, q: add_flags(r, table(r, 1), D_INDIRECT), "in a table of them", **kw)
        broken(lambda d, r, q: d.mem.put("<H", flags_at(r, table(r, 2)), 0), "follows one to be written", **kw)
        if not packed:
            broken(lambda d, r, q: d.mem.put("<H", table(r, 0) + 14, 3), "next is beyond its table", **kw)
            broken(lambda d, r, q: d.mem.put("<H", table(r, 0) + 14, 0), "goes round", **kw)
    beside()


def test_an_indirect_descriptor_that_was_not_negotiated_breaks_the_ring():
    for packed in FORMATS:
        d = world().disk(packed=packed, size=8, without=F_INDIRECT)
        d.submit(T_IN, n=512, indirect=True)
        assert d.err_signalled() and "was not negotiated" in world().log()
        d.close()


def test_a_request_that_cannot_be_answered_breaks_the_ring():
    for packed in FORMATS:
        broken(lambda d, r, q: d.mem.put("<Q", chain(r, 2), OUTSIDE), "no place for its status", packed=packed)
        d = world().disk(packed=packed, size=8)
        req = d.prepare(T_FLUSH)
        d.rings[0].add([(req.head, 16, False)])
        d.rings[0].kick_if_needed()
        assert d.err_signalled()
        d.close()
    beside()


def test_addresses_outside_of_memory_are_an_error_of_the_request():
    for packed in FORMATS:
        d = world().disk(packed=packed)
        end = d.mem.regions[-1].gpa + d.mem.regions[-1].size
        for at in OUTSIDE, end - 256, end, (1 << 64) - 512:
            for kind in (T_IN, T_OUT, T_DISCARD, T_WRITE_ZEROES) + (() if at == end - 256 else (T_GET_ID,)):
                req = d.prepare(kind, 0, n=512)
                req.data = at
                d.add(req, d.segs(req))
                req.ring.kick_if_needed()
                d.wait(req, status=S_IOERR)
        req = d.prepare(T_IN, 0, n=512)
        req.head = OUTSIDE
        d.add(req, d.segs(req))
        req.ring.kick_if_needed()
        d.wait(req, status=S_IOERR)
        req = d.prepare(T_IN, 0, n=512)
        d.add(req, [(req.head, 15, False), (req.data, 512, True), (req.status_at, 1, True)])
        req.ring.kick_if_needed()
        d.wait(req, status=S_IOERR)
        d.write(0, bytes(512))
        d.close()
    beside()


def test_lengths_that_overflow_are_an_error_of_the_request():
    for packed in FORMATS:
        d = world().disk(packed=packed, size=256)
        req = d.prepare(T_IN, 0, n=512)
        big = [(0, 0xFFFFFFFF, True)] * 100
        d.add(req, [(req.head, 16, False), *big, (req.status_at, 1, True)])
        req.ring.kick_if_needed()
        d.wait(req, status=S_IOERR)
        req = d.prepare(T_OUT, 0, bytes(512))
        d.add(req, [(req.head, 16, False), *[(0, 0xFFFFFE00, False)] * 100, (req.status_at, 1, True)])
        req.ring.kick_if_needed()
        d.wait(req, status=S_IOERR)
        d.close()
    beside()


def test_the_same_memory_for_everything_harms_nobody_else():
    """Data that are read over the descriptors, the ring and the status themselves."""
    for packed in FORMATS:
        for part in "desc", "avail", "used":
            d = world().disk(packed=packed, size=64)
            at = getattr(d.rings[0], part)
            req = d.prepare(T_IN, 0, n=4096)
            req.data = at
            d.rings[0].add(d.segs(req))
            os.eventfd_write(d.rings[0].kick, 1)
            time.sleep(0.05)
            d.close()
    beside()


def scribble(stop, d, places, seed):
    rnd = random.Random(seed)
    while not stop.is_set():
        at, n = rnd.choice(places)
        d.mem.put("<H", at + 2 * rnd.randrange(n // 2),
                  rnd.choice((0, 1, 2, 3, 4, 7, 0x80, 0x81, 0x8081, rnd.randrange(65536))))


def test_memory_that_changes_under_our_eyes_breaks_that_ring_at_most():
    """Somebody scribbles over descriptors, tables and headers while requests are fetched."""
    for packed in FORMATS:
        for seed in range(4):
            d = world().disk(packed=packed, size=64, indirect=True)
            ring, stop = d.rings[0], threading.Event()
            hdr = d.mem.alloc(16 * 64)
            table_at = d.mem.alloc(16 * 64)
            places = [(ring.desc, 16 * 64), (hdr, 16), (table_at, 16 * 16)]
            if seed % 2:
                places = places[1:]  # the ring itself stays, so that it goes on longer
            t = threading.Thread(target=scribble, args=(stop, d, places, seed))
            t.start()
            try:
                for i in range(400):
                    d.mem.write(hdr, struct.pack("<IIQ", i % 2 * 14, 0, i))
                    if not ring.packed:
                        ring.put_desc(i % 64, table_at, 16 * 16, D_INDIRECT)
                        ring.publish(i % 64)
                    else:
                        wrap = D_AVAIL if ring.avail_wrap else D_USED
                        ring.put_desc(ring.avail_idx, table_at, 16 * 16, D_INDIRECT | wrap, i % 64)
                        ring.avail_idx, ring.avail_wrap = ring._step(ring.avail_idx, ring.avail_wrap, 1)
                    os.eventfd_write(ring.kick, 1)
                    if i % 16 == 0:
                        time.sleep(0.001)
            finally:
                stop.set()
                t.join()
            d.close()
    beside()


def test_ring_sizes_that_cannot_be_end_the_connection():
    for packed in FORMATS:
        for size in 0, 65536, 1 << 31, 0xFFFFFFFF, 32769, *(() if packed else (3, 100, 32767)):
            d = world().disk(packed=packed, size=8, start=False)
            d.negotiate()
            d.acks = False
            d.state(SET_VRING_NUM, 0, size)
            try:
                d.set_addr(0)
                d.u64(SET_VRING_KICK, 0, [d.rings[0].kick])
                d.state(SET_VRING_ENABLE, 0, 1)
            except Gone:
                pass
            d.gone()
    beside()


def test_rings_that_do_not_lie_in_memory_or_are_misaligned_end_the_connection():
    for packed in FORMATS:
        for part, at in [("desc", OUTSIDE), ("avail", OUTSIDE), ("used", 0), ("desc", "end"),
                         ("desc", "odd"), ("avail", "odd"), ("used", "odd")]:
            d = world().disk(packed=packed, size=8, start=False)
            d.negotiate()
            d.acks = False
            r = d.rings[0]
            uva = {n: d.mem.uva(getattr(r, n)) for n in ("desc", "avail", "used")}
            top = d.mem.regions[-1]
            uva[part] = {"odd": uva[part] + 1, "end": top.uva + top.size - 64}.get(at, at)
            d.state(SET_VRING_NUM, 0, 8)
            d.vring_addr(0, uva["desc"], uva["used"], uva["avail"])
            try:
                d.u64(SET_VRING_KICK, 0, [r.kick])
                d.state(SET_VRING_ENABLE, 0, 1)
            except Gone:
                pass
            d.gone()
    beside()


def test_memory_that_its_owner_takes_away_ends_that_guest_alone():
    for packed in FORMATS:
        regions = [Region(0, 32 * MIB, 0x7F0000000000, seal=False)]
        d = world().disk(packed=packed, mem=Memory(*regions))
        d.write(0, pattern(4096, 1))
        d.submit(T_OUT, 0, pattern(1 << 20, 2), kick=False)
        os.ftruncate(regions[0].fd, 0)
        os.eventfd_write(d.rings[0].kick, 1)
        d.gone()
        assert "taken away by its owner" in world().log()
    beside()


main(globals())
