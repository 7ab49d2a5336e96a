"""A client of sluice-initiator in Python, written after sluice-shm(7) and not with libsluice: a second way to a volume.

Happy path: Shm(path) says hello; volume(name) finds a disk; memory(size) shares a memfd; queue() makes a ring
pair; queue.io() does one command over any extents and returns its NVMe status. It is for tests of data, not of
speed: it looks for completions instead of sleeping on its eventfd, and wakes the daemon with every command.
"""
import ctypes
import fcntl
import mmap
import os
import socket
import struct
import time

from daemon import SCALE

F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2
MSG = struct.Struct("<IiQQII96s96s")
VOLUME = struct.Struct("<64sIIQIIII")
HELLO, VOLUME_OP, MEM_ADD, MEM_DEL, QUEUE_ADD, QUEUE_DEL, EVENT = range(1, 8)
FLUSH, WRITE, READ, COMPARE, WRITE_ZEROES, DISCARD = 0, 1, 2, 5, 8, 9
SQ_TAIL, SQ_HEAD, CQ_TAIL, CQ_HEAD = 64, 128, 192, 256
EXTENTS_MAX = 1024


def shared(size):
    """A memfd that cannot shrink, and its mapping."""
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)
    return fd, mmap.mmap(fd, size)


class Volume:
    def __init__(self, raw):
        name, self.nsid, self.block, self.blocks, self.max_transfer, self.stripe, self.members, \
            self.flags = VOLUME.unpack(raw)
        self.name = name.rstrip(b"\0").decode()
        self.size = self.block * self.blocks


class Shm:
    """One connection: one VF."""

    def __init__(self, path, timeout=10 * SCALE):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(timeout)
        self.sock.connect(path)
        self.queues = []
        self.ask(HELLO, abi=1)

    def ask(self, op, *, fds=(), addr=0, size=0, ident=0, abi=0, name=""):
        """One request; its reply as (addr, id, volume)."""
        disk = VOLUME.pack(name.encode(), 0, 0, 0, 0, 0, 0, 0)
        socket.send_fds(self.sock, [MSG.pack(op, 0, addr, size, ident, abi, disk, b"")], list(fds))
        while True:
            reply = self.sock.recv(4096)
            assert len(reply) == MSG.size, f"a reply of {len(reply)} bytes"
            what, err, addr, size, ident, abi, disk, text = MSG.unpack(reply)
            if what != EVENT:
                break
        assert what == op and err == 0, (what, err, text.rstrip(b"\0").decode())
        return addr, ident, Volume(disk)

    def volume(self, name):
        return self.ask(VOLUME_OP, name=name)[2]

    def memory(self, size):
        """Its mapping, and its address in commands."""
        fd, mem = shared(size)
        addr = self.ask(MEM_ADD, fds=[fd], size=size)[0]
        os.close(fd)
        return mem, addr

    def queue(self, entries=16):
        q = Queue(self, entries)
        self.queues.append(q)
        return q

    def close(self):
        self.sock.close()
        for q in self.queues:
            os.close(q.kick)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Queue:
    """A ring pair with one command in flight at a time."""

    def __init__(self, shm, entries):
        self.entries, self.cid = entries, 0
        self.sq, self.cq = 4096, 4096 + 64 * entries
        self.list = self.cq + max(64, 16 * entries)
        size = self.list + 16 * EXTENTS_MAX
        size += -size % 4096
        fd, self.mem = shared(size)
        struct.pack_into("<IIIIII", self.mem, 0, 1, entries, self.sq, self.cq, self.list,
                         16 * EXTENTS_MAX)
        self.kick = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.id = shm.ask(QUEUE_ADD, fds=[fd, self.kick, wake], size=size)[1]
        os.close(fd)
        os.close(wake)
        # Whole aligned words: an index must never be seen half-written.
        self.index = {at: ctypes.c_uint32.from_buffer(self.mem, at)
                      for at in (SQ_TAIL, SQ_HEAD, CQ_TAIL, CQ_HEAD)}

    def submit(self, op, nsid, lba=0, blocks=0, extents=(), fua=False):
        """extents: (address, length), together as long as the blocks."""
        self.cid = (self.cid + 1) % 0x10000
        sgl = b"".join(struct.pack("<QI4x", addr, n) for addr, n in extents)
        if len(extents) > 1:
            self.mem[self.list:self.list + len(sgl)] = sgl
            sgl = struct.pack("<QI3xB", 0, len(sgl), 0x30)
        count = blocks if op == DISCARD else blocks - 1 if blocks else 0
        tail = self.index[SQ_TAIL].value
        at = self.sq + 64 * (tail % self.entries)
        self.mem[at:at + 64] = struct.pack("<BBHI16x16sQI12x", op, 0x40, self.cid, nsid, sgl, lba,
                                           count | (1 << 30 if fua else 0))
        self.index[SQ_TAIL].value = (tail + 1) & 0xFFFFFFFF
        os.eventfd_write(self.kick, 1)

    def reap(self):
        """The status of the command in flight, or None."""
        head = self.index[CQ_HEAD].value
        if self.index[CQ_TAIL].value == head:
            return None
        cid, status = struct.unpack_from("<HH", self.mem, self.cq + 16 * (head % self.entries) + 12)
        self.index[CQ_HEAD].value = (head + 1) & 0xFFFFFFFF
        assert cid == self.cid, (cid, self.cid)
        return status >> 1

    def io(self, *args, timeout=20 * SCALE, **kw):
        self.submit(*args, **kw)
        end = time.monotonic() + timeout
        while True:
            status = self.reap()
            if status is not None:
                return status
            assert time.monotonic() < end, "a command is not completed"
            time.sleep(0.0001)


class Disk:
    """A volume and memory to reach it with; every byte of that memory is accounted for after each command."""

    def __init__(self, path, name, rng, room=3 << 19):
        self.shm, self.rng = Shm(path), rng
        self.vol = self.shm.volume(name)
        self.mem, self.addr = self.shm.memory(room)
        self.queue = self.shm.queue()
        self.room = room

    def scatter(self, length, n):
        """n extents of any length in random order, with a gap between any two: (offset, length)."""
        cuts = sorted(self.rng.sample(range(1, length), n - 1)) if n > 1 else []
        sizes = [b - a for a, b in zip([0, *cuts], [*cuts, length])]
        order = list(range(n))
        self.rng.shuffle(order)
        gap = (self.room - length) // (n + 1)
        at, where = 0, [0] * n
        for i in order:
            at += self.rng.randint(1, gap)
            where[i] = at
            at += sizes[i]
        return list(zip(where, sizes))

    def command(self, op, at, length, extents=(), **kw):
        block = self.vol.block
        status = self.queue.io(op, self.vol.nsid, at // block, length // block,
                               [(self.addr + a, n) for a, n in extents], **kw)
        assert status == 0, f"opcode {op}, {length} bytes at {at}: status {status:03x}h"

    def write(self, at, data, extents=1, **kw):
        sg, pos = self.scatter(len(data), extents), 0
        for a, n in sg:
            self.mem[a:a + n] = data[pos:pos + n]
            pos += n
        self.command(WRITE, at, len(data), sg, **kw)

    def read(self, at, length, extents=1):
        sg = self.scatter(length, extents)
        canary = bytes([self.rng.randrange(256)])
        want = bytearray(canary * self.room)
        self.mem[:] = bytes(want)
        self.command(READ, at, length, sg)
        data = b"".join(self.mem[a:a + n] for a, n in sg)
        for a, n in sg:
            want[a:a + n] = self.mem[a:a + n]
        assert self.mem[:] == want, f"reading {length} bytes at {at} changed memory beside its extents"
        return data

    def all(self):
        """What the whole volume holds."""
        step = min(self.vol.max_transfer, self.room)
        parts = []
        for at in range(0, self.vol.size, step):
            n = min(step, self.vol.size - at)
            self.command(READ, at, n, [(0, n)])
            parts.append(self.mem[:n])
        return b"".join(parts)

    def close(self):
        self.shm.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
