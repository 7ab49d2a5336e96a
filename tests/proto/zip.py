#!/usr/bin/env python3
"""Compressed transfers: who may use them, what they carry, and what a bad frame does (to nobody else)."""
import os
import random
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import zframe
from nvmetcp import *
RAW_MAX = 128 << 10
BLOCKS = 32768


def make():
    t = Target(config({1: "ram:16M,bs=512", 2: "null:1G"}), start=False)
    path, fixed = os.path.join(t.dir, "disk.img"), os.path.join(t.dir, "fixed.img")
    for p in (path, fixed):
        with open(p, "wb") as f:
            f.truncate(16 << 20)
    spaces = t.conf["subsystems"][0]["namespaces"]
    spaces.append({"nsid": 3, "enable": 1, "device": {"path": path},
                   "sluice": {"block_size": 4096}})
    spaces.append({"nsid": 4, "enable": 1, "device": {"path": fixed},
                   "sluice": {"readonly": True}})
    t.start()
    return t


target = Shared(make)


def opened(nsid=1, on=True, cattr=0, **kw):
    host = Host(target(), nsid=nsid, **kw)
    if on:
        assert host.admin.set_feature(ZIP_FID, 1).status == 0
    return host, host.io(sqsize=63, cattr=cattr)


def text(seed, n):
    """Compresses to less than a third."""
    words = [pattern(f"{seed} {i}", 16) for i in range(6)]
    choose = random.Random(str(seed))
    return b"".join(choose.choice(words) for _ in range(n // 16 + 1))[:n]


def shift_of(io):
    return io.bs.bit_length() - 1


def zip_write(io, slba, data, **kw):
    frame = kw.pop("frame", None) or zframe.pack(data, shift_of(io))
    return io.io(ZIP_WRITE, slba, len(data) // io.bs, data=frame, **kw)


def zip_read(io, slba, nlb, level=1, **kw):
    """The completion, and the blocks out of whatever came."""
    cqe = io.io(ZIP_READ, slba, nlb, read=nlb * io.bs, cdw13=level & 0xFF, **kw)
    assert cqe.status == 0, cqe
    return cqe, zframe.unpack(cqe.data, shift_of(io), nlb) if cqe.dw0 else cqe.data


def test_identify_shows_what_is_offered():
    host, _ = opened(on=False)
    magic, version, level, raw = struct.unpack_from("<16sBbxxI", host.ctrl, 3072)
    assert magic.rstrip(b"\0") == b"SluiceCompress" and version == 1, magic
    assert level == 9 and raw == RAW_MAX, (level, raw)
    assert not any(host.ctrl[3096:4096])
    host.close()


def test_the_opcodes_do_not_exist_until_the_host_turns_them_on():
    host, io = opened(on=False)
    assert host.admin.get_feature(ZIP_FID).dw0 == 0
    frame = zframe.pack(text(1, 4096))
    for on in (False, True, False):
        assert host.admin.set_feature(ZIP_FID, int(on)).status == 0
        assert host.admin.get_feature(ZIP_FID).dw0 == on
        for kw in ({"data": frame}, {"data": frame, "mode": "r2t"}):
            cqe = io.io(ZIP_WRITE, 0, 8, **kw)
            assert cqe.status == (0 if on else SC_OPCODE) and cqe.dnr != on, cqe
        cqe = io.io(ZIP_READ, 0, 8, read=4096)
        assert cqe.status == (0 if on else SC_OPCODE) and cqe.dnr != on, cqe
    host.close()


def test_the_feature_is_each_controllers_own_and_has_one_bit():
    host, _ = opened()
    other, io = opened(on=False)
    io.fails(SC_OPCODE, ZIP_READ, 1, read=4096, cdw12=7)
    assert other.admin.get_feature(ZIP_FID).dw0 == 0
    for value in (2, 3, 0x100, 0x80000001):
        assert host.admin.set_feature(ZIP_FID, value).status == SC_FIELD
    assert host.admin.get_feature(ZIP_FID).dw0 == 1
    host.close()
    other.close()


def test_the_effects_log_lists_them_while_they_are_on():
    host, _ = opened(on=False)
    for on in (0, 1):
        assert host.admin.set_feature(ZIP_FID, on).status == 0
        effects = struct.unpack("<1024I", host.admin.log(5, 4096, nsid=0))
        assert effects[256 + ZIP_WRITE] == 3 * on and effects[256 + ZIP_READ] == on
    host.close()


def test_what_is_written_compressed_is_read_in_either_way():
    for nsid, terms in ((1, {}), (3, {}), (3, {"hdgst": True, "ddgst": True}), (1, {"ddgst": True}),
                        (1, {"maxr2t": 3})):
        for cattr in (0, 4):
            host, io = opened(nsid, cattr=cattr, **terms)
            for slba, nlb in ((0, 1), (3, 8), (16, RAW_MAX // io.bs), (BLOCKS // 8 - 4, 4)):
                data = text((nsid, slba), nlb * io.bs)
                cqe = zip_write(io, slba, data, fua=slba == 3)
                assert cqe.status == 0, (nsid, terms, nlb, cqe)
                assert b"".join(io.read(slba + i, min(256, nlb - i))
                                for i in range(0, nlb, 256)) == data
                cqe, got = zip_read(io, slba, nlb)
                assert got == data and 0 < cqe.dw0 < len(data), (cqe, nlb)
            host.close()


def test_frames_go_in_the_capsule_or_by_r2t():
    host, io = opened()
    data = text(5, 16384)
    frame = zframe.pack(data)
    assert len(frame) < io.capsule
    for mode in ("capsule", "r2t"):
        assert zip_write(io, 64, data, frame=frame, mode=mode).status == 0
        assert io.read(64, 32) == data
        io.write(64, bytes(16384))
    host.close()


def test_random_blocks_are_answered_as_they_are():
    for cattr in (0, 4):
        host, io = opened(cattr=cattr)
        data = pattern(7, 32768)
        io.write(100, data)
        cqe, got = zip_read(io, 100, 64)
        assert got == data and cqe.dw0 == 0 and len(cqe.data) == 32768, cqe
        host.close()


def test_a_frame_may_hold_blocks_as_they_are():
    host, io = opened()
    data = text(9, 2048) + pattern(9, 512) + text(10, 1536)
    frame = zframe.pack(data)
    assert struct.unpack_from("<8H", frame, 8)[4] == 0
    assert zip_write(io, 8, data, frame=frame).status == 0
    assert io.read(8, 8) == data
    assert zip_read(io, 8, 8)[1] == data
    host.close()


def test_every_level_of_a_read_gives_the_blocks():
    host, io = opened()
    data = text(11, 8192)
    io.write(40, data)
    for level in (-100, -20, -1, 0, 1, 3, 6, 9):
        assert zip_read(io, 40, 16, level)[1] == data
    for level in (-128, -101, 10, 127):
        cqe = io.io(ZIP_READ, 40, 16, read=8192, cdw13=level & 0xFF)
        assert cqe.status == SC_FIELD and cqe.dnr, (level, cqe)
    host.close()


def test_more_blocks_than_offered_are_invalid_field():
    host, io = opened()
    nlb = RAW_MAX // io.bs + 1
    frame = zframe.pack(bytes(nlb * io.bs))
    assert io.io(ZIP_WRITE, 0, nlb, data=frame).status == SC_FIELD
    assert io.io(ZIP_READ, 0, nlb, read=nlb * io.bs).status == SC_FIELD
    host.close()


def test_checks_of_read_and_write_are_made():
    host, io = opened()
    frame = zframe.pack(text(13, 4096))
    for nsid in (0, 9, 0xFFFFFFFF):
        assert io.io(ZIP_WRITE, 0, 8, data=frame, nsid=nsid).status == SC_NS
        assert io.io(ZIP_READ, 0, 8, read=4096, nsid=nsid).status == SC_NS
    for slba in (BLOCKS - 7, BLOCKS, 1 << 40):
        assert io.io(ZIP_WRITE, slba, 8, data=frame).status == SC_LBA
        assert io.io(ZIP_READ, slba, 8, read=4096).status == SC_LBA
    for n in (512, 4095, 8192):
        assert io.io(ZIP_READ, 0, 8, read=n).status == SC_SGL_LEN
    for n in (0, 4096, 4100):
        cqe = io.io(ZIP_WRITE, 0, 8, data=bytes(n)) if n else io.io(ZIP_WRITE, 0, 8)
        assert cqe.status == SC_SGL_LEN and cqe.dnr, (n, cqe)
    fused = io.submit(ZIP_WRITE, 1, data=frame, cdw12=7, flags=0x41)
    assert io.wait(fused).status == SC_FIELD
    host.close()


def test_a_read_only_namespace_stays_as_it_is():
    host, io = opened(4)
    cqe = zip_write(io, 0, text(15, 4096))
    assert cqe.status == 0x20, cqe
    assert zip_read(io, 0, 8)[1] == bytes(4096)
    host.close()


def bad_frames(data):
    """(name, frame) for the eight blocks of data."""
    good = zframe.pack(data)
    stored = [zframe.compress(data[i:i + 512]) for i in range(0, 4096, 512)]
    lengths = [len(s) for s in stored]
    yield "one byte", b"S"
    yield "no blocks", zframe.build([])
    for cut in (1, 7, 23, 24, 25, len(good) // 2, len(good) - 1):
        yield f"cut at {cut}", good[:cut]
    yield "a byte more", good + b"\0"
    yield "other magic", zframe.build(stored, magic=b"SZF2")
    yield "reserved byte", zframe.build(stored, rsvd=1)
    yield "other block size", zframe.build(stored, shift=12)
    yield "fewer blocks", zframe.build(stored[:7])
    yield "more blocks than told", zframe.build(stored, blocks=7)
    yield "lengths swapped by one", zframe.build(
        stored, lengths=[lengths[0] + 1, lengths[1] - 1] + lengths[2:])
    yield "a length of a block", zframe.build(stored, lengths=[512] + lengths[1:])
    yield "a length of FFFFh", zframe.build(stored, lengths=[0xFFFF] + lengths[1:])
    yield "a bomb", zframe.build([zframe.compress(bytes(1 << 20))] + stored[1:])
    yield "a short block", zframe.build([zframe.compress(bytes(511))] + stored[1:])
    yield "an empty block", zframe.build([zframe.compress(b"")] + stored[1:])
    yield "a size that lies", zframe.build([stored[0][:5] + b"\xff" + stored[0][6:]] + stored[1:])
    yield "a skippable frame", zframe.build(
        stored[:7] + [stored[7] + struct.pack("<II", 0x184D2A50, 0)])
    yield "two frames", zframe.build(stored[:7] + [zframe.compress(bytes(256)) * 2])
    yield "a broken last block", zframe.build(stored[:7] + [stored[7][:9] + bytes(12)])
    yield "zeroes", bytes(1000)
    for seed in range(20):
        yield f"random {seed}", pattern(seed, 100 + seed)
        yield f"random {seed} in a frame", zframe.build([pattern(seed, 60)] * 8)


def test_a_bad_frame_fails_its_command_and_writes_nothing():
    host, io = opened()
    before = pattern(17, 4096)
    io.write(200, before)
    with Bystander(target()):
        for name, frame in bad_frames(text(18, 4096)):
            for mode in ("capsule", "r2t"):
                cqe = io.io(ZIP_WRITE, 200, 8, data=frame, mode=mode)
                assert cqe.status == SC_XFER and cqe.dnr, (name, cqe)
        assert io.read(200, 8) == before
        assert zip_write(io, 200, text(18, 4096)).status == 0
    host.close()


def test_flipped_bits_never_do_more_than_fail_or_change_the_blocks():
    host, io = opened()
    rng, data = random.Random(19), text(20, 4096)
    good = zframe.pack(data)
    io.write(400, pattern(19, 512))
    io.write(409, pattern(21, 512))
    for _ in range(300):
        frame = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
        assert io.io(ZIP_WRITE, 401, 8, data=bytes(frame)).status in (0, SC_XFER)
    assert io.read(400) == pattern(19, 512) and io.read(409) == pattern(21, 512)
    host.close()


def test_many_at_a_time_wait_for_memory_and_all_come():
    small = Target(config({1: "ram:16M,bs=512"}, sluice={"buffers": "2M"}))
    host = Host(small)
    assert host.admin.set_feature(ZIP_FID, 1).status == 0
    io = host.io(sqsize=63)
    data = [text((23, i), RAW_MAX) for i in range(24)]
    cmds = [io.rw(ZIP_WRITE, i * 256, 256, data=zframe.pack(d), mode="r2t")
            for i, d in enumerate(data)]
    assert all(io.wait(c).status == 0 for c in cmds)
    cmds = [io.rw(ZIP_READ, i * 256, 256, read=RAW_MAX, cdw13=1) for i in range(24)]
    for c, d in zip(cmds, data):
        assert zframe.unpack(io.wait(c).data, 9, 256) == d
    ns = small.ctl("stats")["namespaces"][0]
    assert ns["write_bytes"] == ns["read_bytes"] == 24 * RAW_MAX, ns
    assert 0 < ns["compressed_write_bytes"] < 24 * RAW_MAX / 2, ns
    assert 0 < ns["compressed_read_bytes"] < 24 * RAW_MAX / 2, ns
    host.close()
    small.stop()


def test_a_target_that_does_not_offer_it_has_neither_bytes_nor_feature():
    plain = Target(config({1: "ram:16M"}, sluice={"compress": False}))
    host = Host(plain)
    io = host.io()
    assert not any(host.ctrl[3072:4096])
    assert host.admin.get_feature(ZIP_FID).status == SC_FIELD
    assert host.admin.set_feature(ZIP_FID, 1).status == SC_FIELD
    io.fails(SC_OPCODE, ZIP_READ, 1, read=4096, cdw12=0)
    host.close()
    plain.stop()


main(globals())
