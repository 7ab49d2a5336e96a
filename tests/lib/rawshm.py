"""A client of sluice-initiator by sluice-shm(7) itself whose every word of shared memory is the test's.

Happy path: Client(path) says hello; memory() shares a memfd; queue() makes a queue pair; q.submit() writes a
command, q.wait() waits for its completion. Guarded is memory whose bytes outside of its extents nobody may touch.
What can fail: a refused message raises Refused with the daemon's sentence; shm.py is for tests that behave.
"""
import array
import errno
import fcntl
import mmap
import os
import random
import socket
import struct
import time

from daemon import SCALE

HELLO, VOLUME, MEM_ADD, MEM_DEL, QUEUE_ADD, QUEUE_DEL, EVENT = range(1, 8)
MSG = struct.Struct("<IiQQII64sIIQIIII96s")
F_ADD_SEALS, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE, F_SEAL_FUTURE_WRITE = 1033, 1, 2, 4, 8, 16
PAGE = 4096
DATA_BLOCK, LAST_SEGMENT = 0x00, 0x30
SQ_TAIL, SQ_HEAD, SQ_NEED, CQ_TAIL, CQ_HEAD, CQ_NEED = 64, 128, 132, 192, 256, 260
ENDED = 2
PATIENCE = 20 * SCALE


class Refused(AssertionError):
    """The daemon said no: .code, and its sentence."""

    def __init__(self, code, text):
        super().__init__(f"{errno.errorcode.get(code, code)}: {text}")
        self.code, self.text = code, text


def memfd(size, seals=F_SEAL_SHRINK):
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if seals:
        fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


def extent(addr, length, kind=DATA_BLOCK):
    return struct.pack("<QI3xB", addr, length, kind)


def sqe(opcode, nsid, cid, sgl=bytes(16), lba=0, blocks=1, dw12=0, flags=0x40):
    return struct.pack("<BBHI16x16sQI12x", opcode, flags, cid, nsid, sgl, lba, (blocks - 1) & 0xFFFF | dw12)


class Region:
    """Memory that client and daemon share."""

    def __init__(self, client, size, seals=F_SEAL_SHRINK):
        self.fd, self.size = memfd(size, seals), size
        self.map = mmap.mmap(self.fd, size)
        self.addr = client.call(MEM_ADD, [self.fd], size=size).addr


class Guarded(Region):
    """A region of random bytes with extents of these sizes at odd places."""

    def __init__(self, client, sizes, seed=0):
        rng, at = random.Random(seed), 0
        self.spans = []
        for n in sizes:
            at += rng.randrange(17, 333)
            self.spans.append((at, n))
            at += n
        super().__init__(client, -(-(at + 333) // PAGE) * PAGE)
        self.map[:] = rng.randbytes(self.size)
        self.note()

    def note(self):
        self.before = self.map[:]

    @property
    def sg(self):
        return [(self.addr + at, n) for at, n in self.spans]

    @property
    def data(self):
        return b"".join(self.map[at:at + n] for at, n in self.spans)

    @data.setter
    def data(self, value):
        for at, n in self.spans:
            self.map[at:at + n], value = value[:n], value[n:]

    def untouched(self):
        """Outside of the extents every byte is as it was."""
        want, is_now = bytearray(self.before), self.map[:]
        for at, n in self.spans:
            want[at:at + n] = is_now[at:at + n]
        if want == is_now:
            return
        at = next(i for i in range(self.size) if want[i] != is_now[i])
        raise AssertionError(f"byte {at} outside of the extents {self.spans} was written: "
                             f"{is_now[at:at + 16].hex()}")


class Queue:
    """A queue pair. header: fields of the ring's page that replace what would be right, by name."""

    FIELDS = ("abi", "entries", "sq_off", "cq_off", "list_off", "list_len")

    def __init__(self, client, entries=64, slots=64, *, size=None, seals=F_SEAL_SHRINK, late=0, kick=None,
                 wake=None, **header):
        self.client, self.entries, self.slot_size = client, entries, slots * 16
        self.sq_off = PAGE
        self.cq_off = self.sq_off + entries * 64
        self.list_off = -(-(self.cq_off + entries * 16) // 64) * 64
        self.list_len = entries * self.slot_size
        good = dict(zip(self.FIELDS, (1, entries, self.sq_off, self.cq_off, self.list_off, self.list_len)))
        good.update(header)
        real = -(-(self.list_off + self.list_len) // PAGE) * PAGE
        self.fd = memfd(real, seals)
        self.map = mmap.mmap(self.fd, real)
        struct.pack_into("<6I", self.map, 0, *(good[f] for f in self.FIELDS))
        if late:  # seals that would not let us map it
            fcntl.fcntl(self.fd, F_ADD_SEALS, late)
        self.kick_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) if kick is None else kick
        self.wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) if wake is None else wake
        self.tail = self.head = self.next_cid = 0
        self.done = {}
        self.id = client.call(QUEUE_ADD, [self.fd, self.kick_fd, self.wake_fd],
                              size=real if size is None else size).id

    # In one access: an index must never be seen half-written, nor zero, which struct.pack_into() makes of
    # it first.

    def word(self, at):
        return memoryview(self.map)[at:at + 4].cast("I")[0]

    def put_word(self, at, value):
        memoryview(self.map)[at:at + 4].cast("I")[0] = value & 0xFFFFFFFF

    def kick(self):
        try:
            os.eventfd_write(self.kick_fd, 1)
        except BlockingIOError:
            pass

    @property
    def ended(self):
        return self.word(SQ_NEED) == ENDED

    def raw(self, command):
        """64 bytes, whatever they are."""
        at = self.sq_off + self.tail % self.entries * 64
        self.map[at:at + 64] = command
        self.tail = (self.tail + 1) & 0xFFFFFFFF
        self.put_word(SQ_TAIL, self.tail)
        self.kick()  # always: one kick too many does no harm

    def new_cid(self):
        cid, self.next_cid = self.next_cid, (self.next_cid + 1) % 0x10000
        return cid

    def put_list(self, descriptors):
        """Descriptors in the list area's part for the next command; SGL1 that tells them."""
        slot = self.tail % self.entries * self.slot_size
        body = b"".join(descriptors)
        assert len(body) <= self.slot_size
        self.map[self.list_off + slot:self.list_off + slot + len(body)] = body
        return extent(slot, len(body), LAST_SEGMENT)

    def submit(self, opcode, nsid, lba=0, blocks=1, sg=(), dw12=0):
        """sg: (address, length). Returns the cid."""
        cid, sgl = self.new_cid(), bytes(16)
        if len(sg) == 1:
            sgl = extent(*sg[0])
        elif sg:
            sgl = self.put_list([extent(*e) for e in sg])
        self.raw(sqe(opcode, nsid, cid, sgl, lba, blocks, dw12))
        return cid

    def reap(self):
        """Takes what is there: cid to the statuses, without DNR."""
        while self.head != self.word(CQ_TAIL):
            at = self.cq_off + self.head % self.entries * 16
            cid, status = struct.unpack_from("<HH", self.map, at + 12)
            self.done.setdefault(cid, []).append(status >> 1 & 0x7FF)
            self.head = (self.head + 1) & 0xFFFFFFFF
            self.put_word(CQ_HEAD, self.head)
        return self.done

    def wait(self, cid, timeout=PATIENCE):
        """The status of a command, which has to end once."""
        end = time.monotonic() + timeout
        while cid not in self.reap():
            assert time.monotonic() < end, f"cid {cid} has not ended after {timeout} s"
            assert not self.ended, "the daemon has ended this queue"
            time.sleep(0.001)
        got = self.done.pop(cid)
        assert len(got) == 1, f"cid {cid} completed {len(got)} times"
        return got[0]

    def io(self, *args, **kw):
        return self.wait(self.submit(*args, **kw))

    def free(self):
        self.client.call(QUEUE_DEL, id=self.id)


class Message:
    """What the daemon says."""

    def __init__(self, raw):
        (self.op, self.err, self.addr, self.size, self.id, self.abi, name, self.nsid, self.block, self.blocks,
         self.max_transfer, self.stripe, self.members, self.flags, text) = MSG.unpack(raw)
        self.name = name.split(b"\0")[0].decode()
        self.text = text.split(b"\0")[0].decode()


class Client:
    """A connection to the shm socket."""

    def __init__(self, path, hello=True):
        self.events = []
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(path)
        if hello:
            self.call(HELLO)

    @staticmethod
    def message(op, *, err=0, addr=0, size=0, id=0, abi=1, name="", rest=bytes(128)):
        return struct.pack("<IiQQII64s128s", op, err, addr, size, id, abi, name.encode(), rest)

    def send(self, op, fds=(), **fields):
        self.send_raw(self.message(op, **fields), fds)

    def send_raw(self, raw, fds=()):
        anc = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.sock.sendmsg([raw], anc)

    def receive(self):
        raw = self.sock.recv(MSG.size)
        if not raw:
            raise ConnectionResetError("the daemon has closed")
        return Message(raw)

    def call(self, op, fds=(), **fields):
        self.send(op, fds, **fields)
        while True:
            m = self.receive()
            if m.op != EVENT or op == EVENT:
                break
            self.events.append(m)
        assert m.op == op, f"asked {op}, was answered {m.op}"
        if m.err:
            raise Refused(-m.err, m.text)
        return m

    def volume(self, name="", index=0):
        return self.call(VOLUME, name=name, id=index)

    def memory(self, size, **kw):
        return Region(self, size, **kw)

    def queue(self, *args, **kw):
        return Queue(self, *args, **kw)

    def close(self):
        self.sock.close()
