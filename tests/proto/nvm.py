#!/usr/bin/env python3
"""The NVM commands: checks in their order, results, data."""
import os
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from nvmetcp import *
BLOCKS = 32768


def make():
    t = Target(config({1: "ram:16M,bs=512", 2: "null:1G"}), start=False)
    path = os.path.join(t.dir, "disk.img")
    with open(path, "wb") as f:
        f.truncate(16 << 20)
    t.conf["subsystems"][0]["namespaces"].append(
        {"nsid": 3, "enable": 1, "device": {"path": path}})
    t.start()
    return t


target = Shared(make)


def oncs(host, bit, name):
    if not struct.unpack_from("<H", host.ctrl, 520)[0] >> bit & 1:
        raise Skip(f"{name} is not offered")


def opened(nsid=1, **kw):
    host = Host(target(), nsid=nsid, **kw)
    return host, host.io(sqsize=63)


ALL = ((READ, "read"), (WRITE, "data"), (COMPARE, "data"), (WRITE_ZEROES, ""), (VERIFY, ""),
       (WRITE_UNCOR, ""))


def every(io, slba, nlb, **kw):
    """Each command of the family that is built, with right lengths."""
    for opcode, kind in ALL:
        size = nlb * io.bs
        more = {"read": size} if kind == "read" else {"data": bytes(size)} if kind else {}
        cqe = io.io(opcode, slba, nlb, **more, **kw)
        if cqe.status != SC_OPCODE:
            yield opcode, cqe


def test_write_then_read_on_every_kind_of_backend():
    for nsid in (1, 3):
        host, io = opened(nsid)
        for slba, nlb in ((0, 1), (1, 7), (8, 8), (100, 200), (2048, 2048)):
            data = pattern(f"{nsid}{slba}", nlb * io.bs)
            if (slba + nlb) * io.bs > 16 << 20:
                continue
            io.write(slba, data)
            assert io.read(slba, nlb) == data
        host.close()


def test_null_backend_reads_something_and_takes_everything():
    host, io = opened(2)
    io.write(0, bytes(4096 * 4))
    io.read(0, 8)
    host.close()


def test_nsid_that_is_invalid_or_inactive_is_0bh():
    host, io = opened()
    for nsid in (0, 5, 4, 1025, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF):
        for opcode, cqe in every(io, 0, 1, nsid=nsid):
            assert cqe.status == SC_NS and cqe.dnr, (hex(opcode), nsid, cqe)
        assert io.dsm([(0, 1)], nsid=nsid).status == SC_NS
    for nsid in (0, 5, 1025):
        cqe = io.cmd(FLUSH, nsid)
        assert cqe.status == SC_NS and cqe.dnr, cqe
    host.close()


def test_flush_with_the_broadcast_nsid_does_what_vwc_says():
    host, io = opened()
    cqe = io.cmd(FLUSH, 0xFFFFFFFF)
    if host.ctrl[525] >> 1 & 3 == 3:
        assert cqe.status == 0, cqe
    else:
        assert cqe.status == SC_NS and cqe.dnr, cqe
    assert io.cmd(FLUSH, 1).status == 0 and io.cmd(FLUSH, 3).status == 0
    host.close()


def test_range_beyond_the_end_is_80h():
    host, io = opened()
    for slba, nlb in ((BLOCKS, 1), (BLOCKS - 1, 2), (BLOCKS - 7, 8), (1 << 32, 1), (1 << 55, 1),
                      ((1 << 64) - 1, 1), ((1 << 64) - 4, 8), ((1 << 64) // 512, 1)):
        for opcode, cqe in every(io, slba, nlb):
            assert cqe.status == SC_LBA and cqe.dnr, (hex(opcode), hex(slba), cqe)
    io.write(BLOCKS - 1, pattern(1, 512))
    assert io.read(BLOCKS - 1) == pattern(1, 512)
    host.close()


def test_checks_are_made_in_their_order():
    """Namespace before range before size before SGL length."""
    host, io = opened()
    big = (4096 << host.ctrl[77]) // 512 + 1
    io.fails(SC_NS, READ, 77, cdw10=0xFFFFFFFF, cdw11=0xFFFFFFFF, cdw12=0, sgl1=sgl(4))
    io.fails(SC_LBA, READ, 1, cdw10=0xFFFFFFFF, cdw11=0xFFFFFFFF, cdw12=0, sgl1=sgl(4))
    io.fails((SC_LBA, SC_FIELD), READ, 1, cdw10=BLOCKS, cdw12=big - 1, sgl1=sgl(big * 512))
    io.fails((SC_FIELD, SC_SGL_LEN), READ, 1, cdw12=big - 1, sgl1=sgl(512))
    host.close()


def test_fua_writes_and_reads_are_done():
    for nsid in (1, 3):
        host, io = opened(nsid)
        io.write(8, pattern(2, io.bs * 8), fua=True)
        assert io.read(8, 8, fua=True) == pattern(2, io.bs * 8)
        host.close()


def test_hints_and_limited_retry_are_ignored():
    host, io = opened()
    io.write(0, pattern(3, 512), dw12=1 << 31, cdw13=0x7F)
    assert io.read(0, 1, dw12=1 << 31, cdw13=0xFF) == pattern(3, 512)
    host.close()


def test_protection_bits_on_a_namespace_without_it_do_no_harm():
    host, io = opened()
    cqe = io.io(READ, 0, 1, read=512, dw12=1 << 29)
    assert cqe.status in (0, SC_FIELD, 0x181), cqe
    host.close()


def test_compare_tells_equal_from_unequal():
    for nsid in (1, 3):
        host, io = opened(nsid)
        oncs(host, 0, "Compare")
        data = pattern(4, 16 * io.bs)
        io.write(32, data)
        for mode in ("capsule", "r2t"):
            if mode == "capsule" and len(data) > host.capsule:
                continue
            assert io.io(COMPARE, 32, 16, data=data, mode=mode).status == 0
            for at in (0, 511, len(data) - 1):
                other = bytearray(data)
                other[at] ^= 1
                cqe = io.io(COMPARE, 32, 16, data=bytes(other), mode=mode)
                assert cqe.status == SC_COMPARE and cqe.dnr, cqe
        assert io.read(32, 16) == data
        big = pattern(5, 512 << 10)
        io.write(0, big)
        assert io.io(COMPARE, 0, len(big) // io.bs, data=big, mode="r2t").status == 0
        cqe = io.io(COMPARE, 0, len(big) // io.bs, data=big[:-1] + b"\0", mode="r2t")
        assert cqe.status == (SC_COMPARE if big[-1] else 0), cqe
        host.close()


def test_write_zeroes_reads_as_zeroes_and_leaves_its_neighbours():
    for nsid in (1, 3):
        host, io = opened(nsid)
        oncs(host, 3, "Write Zeroes")
        for deac in (0, 1 << 25):
            data = pattern(6, 64 * io.bs)
            io.write(0, data)
            cqe = io.io(WRITE_ZEROES, 8, 40, dw12=deac)
            assert cqe.status == 0, cqe
            want = data[:8 * io.bs] + bytes(40 * io.bs) + data[48 * io.bs:]
            assert io.read(0, 64) == want
        assert io.io(WRITE_ZEROES, 0, 16, dw12=1 << 30).status == 0, "FUA"
        host.close()


def test_write_zeroes_of_65536_blocks_or_its_limit():
    host, io = opened(2)
    oncs(host, 3, "Write Zeroes")
    cs = host.admin.cmd(ADM_IDENTIFY, 0, read=4096, cdw10=6)
    wzsl = cs.data[1] if cs.status == 0 else 0
    cqe = io.io(WRITE_ZEROES, 0, 65536)
    if wzsl == 0:
        assert cqe.status == 0, cqe
    else:
        assert cqe.status in ((0,) if 65536 * io.bs <= 4096 << wzsl else (SC_FIELD, SC_SIZE_LIMIT))
    host.close()


def test_write_zeroes_beyond_what_is_advertised_is_refused():
    with Target(config({1: "null:1G,bs=4096"})) as t:
        host = Host(t)
        io = host.io()
        cs = host.admin.cmd(ADM_IDENTIFY, 0, read=4096, cdw10=6)
        most = (4096 << cs.data[1]) // io.bs
        assert cs.data[1] > 0 and most < 65536, (cs.data[1], io.bs)
        assert io.io(WRITE_ZEROES, 0, most).status == 0
        for dw12 in (0, 1 << 25):
            assert io.io(WRITE_ZEROES, 0, most + 1, dw12=dw12).status & 0x7FF == SC_FIELD
        host.close()


def test_verify_reads_good_blocks_as_good():
    for nsid in (1, 3):
        host, io = opened(nsid)
        oncs(host, 7, "Verify")
        assert io.io(VERIFY, 0, 256).status == 0
        assert io.io(VERIFY, 0, 8).status == 0
        host.close()


def test_write_uncorrectable_makes_reads_fail_until_overwritten():
    with Target(config({1: "ram:16M,bs=512", 2: "null:16M"})) as t:
        host = Host(t)
        assert struct.unpack_from("<H", host.ctrl, 520)[0] >> 1 & 1, "not offered on memory"
        io = host.io()
        io.write(200, pattern(7, 8 * 512))
        assert io.io(WRITE_UNCOR, 202, 2).status == 0
        for slba, nlb in ((202, 1), (203, 1), (200, 8)):
            for opcode, kw in ((READ, {"read": nlb * 512}), (VERIFY, {}),
                               (COMPARE, {"data": bytes(nlb * 512), "mode": "capsule"})):
                cqe = io.io(opcode, slba, nlb, **kw)
                assert cqe.status == SC_UNRECOVERED, (hex(opcode), cqe)
        assert copy(io, 400, [(201, 2)]).status == SC_UNRECOVERED
        assert io.read(200, 2) == pattern(7, 8 * 512)[:1024]
        io.write(202, bytes(512))
        assert io.read(202) == bytes(512)
        assert io.io(READ, 203, 1, read=512).status == SC_UNRECOVERED
        assert io.io(WRITE_ZEROES, 203, 1).status == 0
        assert io.read(200, 8)[1024:2048] == bytes(1024)
        assert io.io(WRITE_UNCOR, 300, 1).status == 0
        assert io.dsm([(300, 1)]).status == 0
        cqe = io.io(READ, 300, 1, read=512)
        assert cqe.status in (0, SC_UNRECOVERED), cqe
        host.close()


def test_write_uncorrectable_is_refused_where_the_backend_cannot():
    host, io = opened(3)
    assert not struct.unpack_from("<H", host.ctrl, 520)[0] >> 1 & 1
    cqe = io.io(WRITE_UNCOR, 202, 2)
    assert cqe.status == SC_OPCODE and cqe.dnr, cqe
    io.read(202, 2)
    host.close()


def copy(io, dest, ranges, fmt=0, nr=None, **kw):
    body = b"".join(struct.pack("<8xQHHIIHH", s, n - 1, 0, 0, 0, 0, 0) for s, n in ranges)
    return io.cmd(COPY, io.nsid, data=body, cdw10=dest & 0xFFFFFFFF, cdw11=dest >> 32,
                  cdw12=((len(ranges) if nr is None else nr) - 1) | fmt << 8, **kw)


def test_copy_gathers_its_ranges_in_order():
    for nsid in (1, 3):
        host, io = opened(nsid)
        oncs(host, 8, "Copy")
        data = pattern(8, 128 * io.bs)
        io.write(0, data)
        ranges = [(64, 8), (0, 1), (10, 5), (127, 1)]
        cqe = copy(io, 512, ranges)
        assert cqe.status == 0, cqe
        want = b"".join(data[s * io.bs:(s + n) * io.bs] for s, n in ranges)
        assert io.read(512, 15) == want
        host.close()


def test_copy_limits_are_told_and_kept():
    host, io = opened()
    oncs(host, 8, "Copy")
    ns = host.admin.identify(0, 1)
    mssrl, mcl = struct.unpack_from("<HI", ns, 74)
    msrc = ns[80] + 1
    assert mssrl and mcl
    if msrc < 256:
        cqe = copy(io, 0, [(0, 1)] * (msrc + 1))
        assert cqe.status == SC_SIZE_LIMIT and cqe.dnr, cqe
    if mssrl < 65535 and mssrl < BLOCKS:
        cqe = copy(io, 0, [(0, mssrl + 1)])
        assert cqe.status == SC_SIZE_LIMIT and cqe.dnr, cqe
    if mcl < mssrl * msrc:
        n = mcl // mssrl + 1
        cqe = copy(io, 0, [(0, mssrl)] * n)
        assert cqe.status == SC_SIZE_LIMIT and cqe.dnr, cqe
    cqe = copy(io, 0, [(0, 1)], fmt=3)
    assert cqe.status == SC_FIELD and cqe.dnr, cqe
    host.close()


def test_copy_outside_the_namespace_is_80h_and_names_the_range():
    host, io = opened()
    oncs(host, 8, "Copy")
    cqe = copy(io, BLOCKS - 1, [(0, 2)])
    assert cqe.status == SC_LBA and cqe.dnr, cqe
    cqe = copy(io, 600, [(0, 1), (1, 1), (BLOCKS, 1)])
    assert cqe.status == SC_LBA and cqe.dnr and cqe.dw0 in (0, 2), cqe
    host.close()


def test_copy_overlapping_itself_is_right_or_refused():
    host, io = opened()
    oncs(host, 8, "Copy")
    data = pattern(9, 64 * 512)
    io.write(0, data)
    cqe = copy(io, 4, [(0, 16)])
    assert cqe.status in (0, SC_OVERLAP), cqe
    if cqe.status == 0:
        assert io.read(4, 16) == data[:16 * 512]
    host.close()


def test_file_backend_keeps_its_bytes_over_a_restart():
    with Target(config(), start=False) as t:
        path = os.path.join(t.dir, "keep.img")
        with open(path, "wb") as f:
            f.truncate(4 << 20)
        t.conf["subsystems"][0]["namespaces"][0]["device"] = {"path": path}
        t.start()
        host = Host(t)
        host.io().write(16, pattern(1, 4096))
        host.close()
        assert t.stop_only() == ""
        t.start()
        host = Host(t)
        assert host.io().read(16, 4096 // host.block_size()) == pattern(1, 4096)
        host.close()


def test_read_only_backend_refuses_writes():
    with Target(config({1: "ram:1M,ro"})) as t:
        host = Host(t)
        io = host.io()
        for opcode, cqe in every(io, 0, 1):
            if opcode in (WRITE, WRITE_ZEROES, WRITE_UNCOR):
                assert cqe.status in (0x20, 0x182) and cqe.dnr, (hex(opcode), cqe)
        io.read(0, 1)
        host.close()


def test_deep_queue_of_mixed_commands_keeps_every_byte():
    host, io = opened(3, hdgst=True, ddgst=True)
    rng = random.Random(5)
    model = bytearray(256 * io.bs)
    io.write(0, bytes(model))
    for _ in range(30):
        used, flight = set(), []
        for _ in range(20):
            n = rng.randint(1, 8)
            at = rng.randrange(256 - n)
            if used & set(range(at, at + n)):
                continue
            used |= set(range(at, at + n))
            if rng.random() < 0.5:
                data = rng.randbytes(n * io.bs)
                flight.append((io.rw(WRITE, at, n, data=data,
                                     mode=rng.choice(("capsule", "r2t"))
                                     if len(data) <= io.capsule else "r2t"), None))
                model[at * io.bs:(at + n) * io.bs] = data
            else:
                flight.append((io.rw(READ, at, n, read=n * io.bs),
                               bytes(model[at * io.bs:(at + n) * io.bs])))
        for command, want in flight:
            cqe = io.wait(command)
            assert cqe.status == 0 and (want is None or cqe.data == want), cqe
    assert io.read(0, 256) == bytes(model)
    host.close()


main(globals())
