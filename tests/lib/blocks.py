"""What a volume has to hold, computed here and not by the code under test: stripes undone, sluice-perf's stamps judged."""
import struct

MASK = (1 << 64) - 1
MAGIC, GOLDEN = 0x454349554C530001, 0x9E3779B97F4A7C15
STAMP = struct.Struct("<QQQQQ")


def flat(files, stripe, size):
    """A volume of size bytes from the contents of its members: block k is on member k mod n, at k div n."""
    if len(files) == 1:
        return bytes(files[0][:size])
    out = bytearray(size)
    for k in range(-(-size // stripe)):
        file, at = files[k % len(files)], k // len(files) * stripe
        n = min(stripe, size - k * stripe)
        out[k * stripe:k * stripe + n] = file[at:at + n]
    return bytes(out)


def name_hash(name):
    """FNV-1a."""
    h = 14695981039346656037
    for c in name.encode():
        h = (h ^ c) * 1099511628211 & MASK
    return h


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def judge(block, volume, lba):
    """The version in a block's stamp, None if it has no stamp; anything wrong is an AssertionError."""
    magic, owner, number, version, check = STAMP.unpack_from(block)
    if magic != MAGIC:
        return None
    assert check == mix(owner ^ mix(number ^ mix(version ^ magic))), f"LBA {lba}: damaged stamp"
    assert owner == volume, f"LBA {lba}: the stamp of another volume"
    assert number == lba, f"LBA {lba}: holds LBA {number}"
    words = len(block) // 8 - 5
    want = struct.pack(f"<{words}Q", *[check + GOLDEN * i & MASK for i in range(1, words + 1)])
    assert block[40:] == want, f"LBA {lba}: damaged behind its stamp"
    return version


def judge_all(image, name, block, every=1):
    """The versions of all stamped blocks by LBA, of every n-th only for speed."""
    volume, found = name_hash(name), {}
    for lba in range(0, len(image) // block, every):
        version = judge(image[lba * block:(lba + 1) * block], volume, lba)
        if version is not None:
            found[lba] = version
    return found


def same(is_, want, what):
    """Fails with the place of the first byte that differs."""
    if is_ == want:
        return
    assert len(is_) == len(want), f"{what}: {len(is_)} bytes, not {len(want)}"
    at = next(i for i in range(0, len(want), 4096) if is_[i:i + 4096] != want[i:i + 4096])
    at = next(i for i in range(at, len(want)) if is_[i] != want[i])
    bad = sum(1 for i in range(0, len(want), 512) if is_[i:i + 512] != want[i:i + 512])
    raise AssertionError(f"{what}: differs from byte {at} on, {bad} sectors do")
