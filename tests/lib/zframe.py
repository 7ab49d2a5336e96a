"""Frames of compressed blocks, made and read without our own code: zstd by ctypes, the rest by hand.
See common/zframe.h for what a frame is."""
import ctypes
import struct

_zstd = ctypes.CDLL("libzstd.so.1")
for _name in ("ZSTD_compress", "ZSTD_decompress", "ZSTD_compressBound"):
    getattr(_zstd, _name).restype = ctypes.c_size_t
_zstd.ZSTD_compress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t,
                                ctypes.c_int]
_zstd.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p,
                                  ctypes.c_size_t]
_zstd.ZSTD_compressBound.argtypes = [ctypes.c_size_t]


def compress(data, level=1):
    """One zstd frame."""
    room = _zstd.ZSTD_compressBound(len(data))
    out = ctypes.create_string_buffer(room)
    n = _zstd.ZSTD_compress(out, room, data, len(data), level)
    assert n <= room, "zstd failed"
    return out.raw[:n]


def decompress(data, size):
    out = ctypes.create_string_buffer(size)
    n = _zstd.ZSTD_decompress(out, size, data, len(data))
    assert n == size, f"a block of {size} bytes decompressed to {n}"
    return out.raw[:n]


def build(stored, *, shift=9, blocks=None, magic=b"SZF1", rsvd=0, lengths=None):
    """A frame of these stored blocks: bytes of zstd's, or ("raw", bytes)."""
    raw = [isinstance(s, tuple) for s in stored]
    body = [s[1] if isinstance(s, tuple) else s for s in stored]
    table = lengths or [0 if r else len(b) for r, b in zip(raw, body)]
    return (magic + struct.pack("<HBB", len(stored) if blocks is None else blocks, shift, rsvd) +
            b"".join(struct.pack("<H", n & 0xFFFF) for n in table) + b"".join(body))


def pack(data, shift=9, level=1):
    """A frame of data, each block compressed where that makes it shorter."""
    size = 1 << shift
    stored = []
    for at in range(0, len(data), size):
        block = data[at:at + size]
        small = compress(block, level)
        stored.append(small if len(small) < size else ("raw", block))
    return build(stored, shift=shift)


def unpack(frame, shift, blocks):
    """The blocks of a frame, every rule checked."""
    size = 1 << shift
    assert frame[:4] == b"SZF1", frame[:16].hex()
    assert struct.unpack_from("<HBB", frame, 4) == (blocks, shift, 0), frame[:16].hex()
    table = struct.unpack_from(f"<{blocks}H", frame, 8)
    at, out = 8 + 2 * blocks, b""
    for n in table:
        assert n < size
        block = frame[at:at + (n or size)]
        out += decompress(block, size) if n else block
        at += n or size
    assert at == len(frame), f"{len(frame) - at} bytes behind the last block"
    return out
