#!/usr/bin/env python3
"""vhost-user-blk: requests through split and packed rings arrive in the volume as they were meant.

Every test compares with the bytes in the targets' files, put together by stripes.
"""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from daemon import Shared
from runner import Skip, main, until
from vhost import *

world = Shared(lambda: World(disks=3, read_only=(1,)))
KINDS = [dict(packed=p, event_idx=e, indirect=i) for p in (False, True) for e in (False, True)
         for i in (False, True)]


def check_flat(sector, data, disk=0):
    got = world().flat(disk, sector * 512, len(data))
    assert got == data, f"{sum(a != b for a, b in zip(got, data))} bytes differ from sector {sector}"


def test_what_is_written_is_in_the_targets_and_is_read_back_in_every_format():
    for k, kind in enumerate(KINDS):
        d = world().disk(**kind)
        for n, at in (512, 3), (4096, 64), (100 * 1024, 1000 + 13 * k), (1 << 20, 4096):
            data = pattern(n, (k, n))
            d.write(at, data, indirect=kind["indirect"])
            assert d.read(at, n, indirect=kind["indirect"]) == data, (kind, n)
            check_flat(at, data)
        d.close()


def test_used_lengths_are_the_bytes_written_and_the_status():
    for packed in False, True:
        d = world().disk(packed=packed)
        assert d.io(T_IN, 0, n=4096).len == 4097
        assert d.io(T_OUT, 0, pattern(512, 1)).len == 1
        assert d.io(T_FLUSH).len == 1
        assert d.io(T_GET_ID, n=20).len == 21
        assert d.io(T_IN, 1 << 40, n=512, status=S_IOERR).len == 1
        d.close()


def test_a_random_load_over_four_rings_leaves_what_a_model_has():
    """Writes, reads, zeroes and discards that do not overlap while in flight, against bytes in memory."""
    for seed, kind in enumerate(KINDS):
        rnd = random.Random(seed)
        d = world().disk(rings=4, size=64, **kind)
        slots, span = 64, 128  # 64 KiB each
        base = 8192
        model = bytearray(d.read(base, 1 << 20) + d.read(base + 2048, 1 << 20)
                          + d.read(base + 4096, 1 << 20) + d.read(base + 6144, 1 << 20))
        busy = {}

        def check(req, slot, sector, what):
            assert req.status == S_OK, (what, req.status)
            if what == T_IN:
                at = (sector - base) * 512
                assert req.bytes() == model[at:at + req.n], f"{kind}: read of slot {slot} is wrong"

        for _ in range(150):
            slot = rnd.randrange(slots)
            off, n = rnd.randrange(64), rnd.randrange(1, 64)
            sector, what = base + slot * span + off, rnd.choice((T_IN, T_OUT, T_OUT, T_WRITE_ZEROES))
            if slot in busy:
                d.wait(busy[slot][0], status=None)
            for s in [s for s, (q, *_) in busy.items() if q.done]:
                check(busy[s][0], s, *busy.pop(s)[1:])
            at = (sector - base) * 512
            ring = rnd.randrange(4)
            opts = dict(ring=ring, indirect=kind["indirect"] and rnd.random() < 0.5)
            if what == T_OUT:
                data = rnd.randbytes(n * 512)
                model[at:at + len(data)] = data
                req = d.submit(T_OUT, sector, data, cut=rnd.choice((None, 4096, 1000)), **opts)
            elif what == T_IN:
                req = d.submit(T_IN, sector, n=n * 512, cut=rnd.choice((None, 4096, 1000)), **opts)
            else:
                model[at:at + n * 512] = bytes(n * 512)
                req = d.submit(T_WRITE_ZEROES, 0, struct.pack("<QII", sector, n, rnd.randrange(2)), **opts)
            busy[slot] = req, sector, what
        d.wait(status=None)
        for s, (req, sector, what) in busy.items():
            check(req, s, sector, what)
        d.io(T_FLUSH)
        check_flat(base, bytes(model))
        d.close()


def test_a_header_in_pieces_and_data_of_odd_pieces_are_one_request():
    for kind in KINDS:
        d = world().disk(size=256, **kind)
        data = pattern(4096, 5)
        req = d.prepare(T_OUT, 77, data)
        segs = [(req.head + i, 1, False) for i in range(16)]
        at = 0
        for n in [1, 511, 3, 700, 1] + [90] * 32:
            segs.append((req.data + at, n, False))
            at += n
        segs += [(req.status_at, 1, True)]
        d.add(req, segs, kind["indirect"])
        req.ring.kick_if_needed()
        d.wait(req)
        check_flat(77, data)
        req = d.prepare(T_IN, 77, n=4096)
        tail = d.mem.alloc(4097, 512)  # the status follows the last byte of data, in the same descriptor
        req.data, req.status_at = tail, tail + 4096
        d.mem.put("<B", req.status_at, S_NONE)
        d.add(req, [(req.head, 5, False), (req.head + 5, 11, False), (tail, 4000, True),
                    (tail + 4000, 97, True)], kind["indirect"])
        req.ring.kick_if_needed()
        d.wait(req)
        assert req.bytes() == data and req.len == 4097
        d.close()


def odd_pieces(rnd, at, n):
    """(address, length) of n bytes, cut at any byte; some pieces are of one."""
    while n > 0:
        k = min(n, rnd.choice((1, 3, rnd.randrange(1, 90), rnd.randrange(1, 1500))))
        yield at, k
        at, n = at + k, n - k


def odd_request(d, rnd, kind, sector, data, indirect):
    """Header, data and status cut as it comes, each anywhere in memory; reads get the status behind their
    data, in the same descriptor or in one of its own."""
    reads = kind == T_IN
    req = d.prepare(kind, sector, b"" if reads else data, len(data) if reads else 0,
                    at=d.mem.alloc(len(data) + 1, 1))
    out = list(odd_pieces(rnd, req.head, 16))
    body = list(odd_pieces(rnd, req.data, req.n))
    if reads and rnd.random() < 0.5:
        req.status_at = req.data + req.n
        body[-1] = (body[-1][0], body[-1][1] + 1)
        d.mem.put("<B", req.status_at, S_NONE)
        tail = []
    else:
        tail = [(req.status_at, 1)]
    segs = [(*p, False) for p in out] + [(*p, reads) for p in body] + [(*p, True) for p in tail]
    d.add(req, segs, indirect)
    req.ring.kick_if_needed()
    return req


def test_whole_blocks_of_4096_in_any_pieces_are_one_request_each():
    with World(lba=4096) as w:
        for k, kind in enumerate(KINDS):
            rnd = random.Random(k)
            d = w.disk(size=1024, **kind)
            for n in 4096, 8192, 65536 + 4096:
                sector, data = 8 * rnd.randrange(1000), pattern(n, (k, n))
                d.wait(odd_request(d, rnd, T_OUT, sector, data, kind["indirect"]))
                assert w.flat(0, sector * 512, n) == data, (kind, n)
                req = odd_request(d, rnd, T_IN, sector, bytes(n), kind["indirect"])
                d.wait(req)
                assert req.bytes() == data and req.len == n + 1, (kind, n)
            d.close()


def test_parts_of_a_block_are_an_error_of_the_request_which_is_said_once():
    """virtio-blk counts in sectors of 512 bytes; the driver is told that blocks have 4096."""
    with World(lba=4096) as w:
        d = w.disk(rings=2)
        assert struct.unpack_from("<I", d.get_config(), 20)[0] == 4096
        before = w.flat(0, 0, 65536)
        for lap in range(3):
            for kind, sector, n in [(T_IN, 0, 512), (T_IN, 1, 4096), (T_OUT, 8, 3584), (T_OUT, 9, 8192),
                                    (T_IN, 7, 512)]:
                args = dict(data=pattern(n, lap)) if kind == T_OUT else dict(n=n)
                d.io(kind, sector, ring=lap % 2, status=S_IOERR, **args)
        d.ranges(T_WRITE_ZEROES, (1, 8, 0), status=S_IOERR)
        assert w.flat(0, 0, 65536) == before
        d.write(16, pattern(4096, 9))
        assert d.read(16, 4096, ring=1) == pattern(4096, 9)
        assert w.log().count("asks for parts of a block, which is 4096 bytes here") == 1, w.log()
        d.close()


def test_a_guest_that_ignores_seg_max_is_served_up_to_the_ring():
    """Field rule: more segments than announced work, up to what the ring holds."""
    for packed in False, True:
        d = world().disk(size=1024, packed=packed)
        assert struct.unpack_from("<I", d.get_config(), 12)[0] == 126
        data = pattern(1022 * 512, 6)
        d.write(2000, data, cut=512)
        check_flat(2000, data)
        assert d.read(2000, len(data), cut=512) == data
        data = pattern(1024 * 512, 7)
        d.write(2000, data, cut=512, indirect=True)
        check_flat(2000, data)
        d.close()


def test_a_chain_of_more_segments_than_can_be_is_an_error_and_no_more():
    d = world().disk(size=4096, packed=True)
    d.io(T_IN, 0, n=3000 * 512, cut=512, status=S_IOERR)
    d.io(T_IN, 0, n=512)
    d.close()


def test_requests_larger_than_a_transfer_of_the_network_work():
    d = world().disk()
    for n in (1 << 20) + 4096, 5 << 20, (9 << 20) + 512:
        data = pattern(n, n)
        d.write(333, data)
        check_flat(333, data)
        assert d.read(333, n, cut=1 << 17) == data
    d.close()


def test_data_that_crosses_two_regions_of_memory_is_whole():
    d = world().disk()
    border = d.mem.regions[0].size
    data = pattern(8192, 8)
    for off in 512, 4096, 1, 8191:
        d.wait(d.submit(T_OUT, 50, data, at=border - off))
        check_flat(50, data)
        d.mem.write(border - off, bytes(8192))
        req = d.wait(d.submit(T_IN, 50, n=8192, at=border - off))
        assert req.bytes() == data
    d.close()


class HugePages:
    """As many are free as are asked for; root adds what is missing for a while."""

    PATH = "/proc/sys/vm/nr_hugepages"

    def __init__(self, n):
        self.before = None
        have, self.total = self.count("HugePages_Free"), self.count("HugePages_Total")
        try:
            if have < n:
                self.set(self.total + n - have)
                self.before = self.total
        except OSError:
            pass
        if self.count("HugePages_Free") < n:
            self.end()
            raise Skip(f"{n} huge pages cannot be had")

    @staticmethod
    def count(what):
        with open("/proc/meminfo", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith(what))

    def set(self, n):
        with open(self.PATH, "w", encoding="ascii") as f:
            f.write(str(n))

    def end(self):
        if self.before is not None:
            self.set(self.before)


def test_guest_memory_of_huge_pages_is_used_and_let_go_of():
    huge = HugePages(12)
    try:
        free = huge.count("HugePages_Free")
        mem = Memory(Region(0, 8 * MIB, 0x7F0000000000, huge=True),
                     Region(8 * MIB, 14 * MIB, 0x7E0000000000, off=2 * MIB, huge=True))
        mem.next = mem.first = 2 * MIB  # its data crosses the border of the regions
        for packed in False, True:
            d = world().disk(packed=packed, mem=mem)
            data = pattern(9 * MIB + 512, packed)
            d.write(40, data)
            check_flat(40, data)
            assert d.read(40, len(data)) == data
            d.close()
            mem.next = mem.first = 2 * MIB
        for r in mem.regions:
            r.map.close()
            os.close(r.fd)
        until(lambda: huge.count("HugePages_Free") == free, "the daemon has unmapped them")
    finally:
        huge.end()


def test_a_table_of_descriptors_that_crosses_two_regions_is_read():
    for packed in False, True:
        for off in 8, 16, 24:
            d = world().disk(packed=packed)
            data = pattern(1024, off)
            req = d.prepare(T_OUT, 60, data)
            at, n = req.ring.table(d.segs(req))
            to = d.mem.regions[0].size - off
            d.mem.write(to, d.mem.read(at, n))
            req.id = req.ring._add_packed([(to, n, False)], D_INDIRECT) if packed else \
                req.ring._add_split([(to, n, False)], D_INDIRECT)
            d.waiting[req.ring, req.id] = req
            req.ring.kick_if_needed()
            d.wait(req)
            check_flat(60, data)
            d.close()


def test_zeroes_and_discards_of_several_ranges_are_done():
    d = world().disk()
    data = pattern(64 * 512, 9)
    for kind, flags in (T_WRITE_ZEROES, 0), (T_WRITE_ZEROES, 1), (T_DISCARD, 0):
        d.write(0, data)
        d.ranges(kind, (0, 8, flags), (16, 0, flags), (24, 16, flags), (63, 1, flags))
        want = bytearray(data)
        for s, n in (0, 8), (24, 16), (63, 1):
            want[s * 512:(s + n) * 512] = bytes(n * 512)
        got = d.read(0, len(data))
        if kind == T_WRITE_ZEROES:
            assert got == want
            check_flat(0, bytes(want))
        else:  # what is not discarded stays
            for s, n in (8, 16), (40, 23):
                assert got[s * 512:(s + n) * 512] == data[s * 512:(s + n) * 512]
    d.ranges(T_DISCARD, (0, 8, 1), status=S_UNSUPP)
    d.ranges(T_WRITE_ZEROES, (0, 8, 2), status=S_UNSUPP)
    d.ranges(T_DISCARD, (0, 1 << 18, 0), status=S_IOERR)
    d.ranges(T_WRITE_ZEROES, (0, 8, 0), (1 << 30, 8, 0), status=S_IOERR)
    d.io(T_DISCARD, 0, bytes(24), status=S_IOERR)
    d.ranges(T_DISCARD, *[(i, 1, 0) for i in range(16)])
    d.ranges(T_DISCARD, *[(i, 1, 0) for i in range(17)], status=S_IOERR)
    d.close()


def test_requests_that_cannot_be_end_with_their_status():
    d = world().disk()
    sectors, = struct.unpack("<Q", d.get_config()[:8])
    rows = [(T_IN, sectors, 512, S_IOERR), (T_IN, sectors - 1, 1024, S_IOERR), (T_IN, 0, 511, S_IOERR),
            (T_IN, 1 << 55, 512, S_IOERR), (T_IN, (1 << 64) - 1, 512, S_IOERR), (2, 0, 512, S_UNSUPP),
            (10, 0, 24, S_UNSUPP), (14, 0, 16, S_UNSUPP), (0x80000000, 0, 512, S_UNSUPP),
            (T_IN, sectors - 1, 512, S_OK)]
    for kind, sector, n, status in rows:
        d.io(kind, sector, n=n, status=status)
    d.io(T_OUT, sectors, bytes(512), status=S_IOERR)
    d.io(T_OUT, sectors - 1, bytes(1024), status=S_IOERR)
    d.io(T_OUT, 0, bytes(100), status=S_IOERR)
    d.close()


def test_a_read_only_disk_says_so_and_is_never_written():
    d = world().disk(1)
    assert d.offered & F_RO and not d.offered & (F_DISCARD | F_WRITE_ZEROES)
    before = world().flat(1)
    d.io(T_OUT, 0, pattern(512, 1), status=S_IOERR)
    d.ranges(T_DISCARD, (0, 8, 0), status=S_UNSUPP)
    d.ranges(T_WRITE_ZEROES, (0, 8, 0), status=S_UNSUPP)
    assert d.read(0, 4096) == before[:4096]
    assert world().flat(1) == before
    d.close()


def test_get_id_is_the_name_of_the_volume():
    d = world().disk()
    assert d.io(T_GET_ID, n=20).bytes() == b"v0".ljust(20, b"\0")
    d.close()


def test_interrupts_are_coalesced_and_kicks_suppressed():
    """A batch of requests that are queued while nobody waits for them wakes the guest once."""
    for kind in KINDS:
        d = world().disk(size=128, **kind)
        ring = d.rings[0]
        ring.want_none()
        d.idle()
        reqs = [d.submit(T_IN, i * 8, n=512, kick=False) for i in range(32)]
        ring.kick_if_needed()
        assert ring.kicks <= 1, ring.kicks  # none: it happened to be awake
        end = time.monotonic() + WAIT
        while not all(q.done for q in reqs):
            d.reap()
            assert time.monotonic() < end, "requests do not end"
            time.sleep(0.002)
        try:
            calls = os.eventfd_read(ring.call)
        except BlockingIOError:
            calls = 0
        assert calls <= 1, f"{calls} interrupts that nobody asked for"  # one: the start of the ring
        d.close()


def test_a_ring_of_one_entry_and_the_largest_are_rings():
    for size, packed in (1, False), (1, True), (32768, False), (32768, True), (5, True):
        d = world().disk(size=size, packed=packed, mem=Memory(Region(0, 32 * MIB, 0x7F0000000000)))
        for i in range(8):
            d.write(i, pattern(512, i), indirect=True)
        check_flat(7, pattern(512, 7))
        d.close()


main(globals())
