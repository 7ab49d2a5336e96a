"""A scripted vhost-user master: what a VMM and its guest do, byte by byte, without either.

Master(path) is a connection: every message has a method, and send() sends any. Memory is the
guest's, in regions that the daemon maps too. Ring is a driver's side of a split or packed virtqueue
in it. Disk(path) puts them together: it negotiates, starts its rings, submits requests and waits for
their ends. World(...) is the daemons: targets with files, and an initiator whose volumes have sockets.
Whatever a test does not name is right, so that it can make any one thing wrong.
"""
import array
import fcntl
import mmap
import os
import random
import select
import socket
import struct
import time

from daemon import SCALE, Control, Target, config
from initiator import Initiator, hosts, volume

GET_FEATURES, SET_FEATURES, SET_OWNER, RESET_OWNER, SET_MEM_TABLE = 1, 2, 3, 4, 5
SET_VRING_NUM, SET_VRING_ADDR, SET_VRING_BASE, GET_VRING_BASE = 8, 9, 10, 11
SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR = 12, 13, 14
GET_PROTOCOL_FEATURES, SET_PROTOCOL_FEATURES, GET_QUEUE_NUM, SET_VRING_ENABLE = 15, 16, 17, 18
SET_BACKEND_REQ_FD, GET_CONFIG, SET_CONFIG = 21, 24, 25
GET_INFLIGHT_FD, SET_INFLIGHT_FD, RESET_DEVICE = 31, 32, 34
GET_MAX_MEM_SLOTS, ADD_MEM_REG, REM_MEM_REG, SET_STATUS, GET_STATUS = 36, 37, 38, 39, 40
BACKEND_CONFIG_CHANGE = 2
NO_FD = 0x100
VERSION, REPLY, NEED_REPLY = 1, 4, 8

P_MQ, P_REPLY_ACK, P_BACKEND_REQ, P_CONFIG, P_INFLIGHT, P_RESET_DEVICE, P_MEM_SLOTS, P_STATUS = \
    (1 << n for n in (0, 3, 5, 9, 12, 13, 15, 16))
F_RO, F_FLUSH, F_CONFIG_WCE, F_MQ, F_DISCARD, F_WRITE_ZEROES, F_INDIRECT, F_EVENT_IDX, F_PROTOCOL, \
    F_VERSION_1, F_PACKED = (1 << n for n in (5, 9, 11, 12, 13, 14, 28, 29, 30, 32, 34))

T_IN, T_OUT, T_FLUSH, T_GET_ID, T_DISCARD, T_WRITE_ZEROES = 0, 1, 4, 8, 11, 13
S_OK, S_IOERR, S_UNSUPP, S_NONE = 0, 1, 2, 0xEE
D_NEXT, D_WRITE, D_INDIRECT, D_AVAIL, D_USED = 1, 2, 4, 1 << 7, 1 << 15

WAIT = 10 * SCALE
MIB = 1 << 20


class Gone(AssertionError):
    """The daemon closed the connection."""


def pattern(n, seed):
    return random.Random(repr(seed)).randbytes(n)


# --- memory ---------------------------------------------------------------------------------------

class Region:
    def __init__(self, gpa, size, uva, off=0, seal=True, huge=False):
        self.gpa, self.size, self.uva, self.off = gpa, size, uva, off
        self.fd = os.memfd_create("guest", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
                                  | (os.MFD_HUGETLB if huge else 0))
        os.ftruncate(self.fd, off + size)
        if seal:
            fcntl.fcntl(self.fd, 1033, 2)  # F_ADD_SEALS, F_SEAL_SHRINK
        self.map = mmap.mmap(self.fd, off + size)

    def packed(self):
        return struct.pack("<QQQQ", self.gpa, self.size, self.uva, self.off)


class Memory:
    """Guest memory: regions by guest-physical address; two that touch, unless told otherwise."""

    def __init__(self, *regions):
        self.regions = list(regions) or [Region(0, 16 * MIB, 0x7F0000000000),
                                         Region(16 * MIB, 32 * MIB, 0x7E0000000000, off=4096)]
        self.next = self.first = 0x10000

    def _pieces(self, gpa, n):
        while n > 0:
            r = next((r for r in self.regions if r.gpa <= gpa < r.gpa + r.size), None)
            assert r, f"no guest memory at {gpa:#x}"
            take = min(n, r.gpa + r.size - gpa)
            yield r.map, r.off + gpa - r.gpa, take
            gpa, n = gpa + take, n - take

    def read(self, gpa, n):
        return b"".join(m[at:at + k] for m, at, k in self._pieces(gpa, n))

    def write(self, gpa, data):
        done = 0
        for m, at, k in self._pieces(gpa, len(data)):
            m[at:at + k] = data[done:done + k]
            done += k

    # A word in one access: an index must never be seen half-written, nor zero, which struct.pack_into()
    # makes of it first.

    def _word(self, fmt, gpa):
        m, at, _ = next(self._pieces(gpa, 1))
        return memoryview(m)[at:at + struct.calcsize(fmt)].cast(fmt[-1])

    def get(self, fmt, gpa):
        return self._word(fmt, gpa)[0]

    def put(self, fmt, gpa, value):
        self._word(fmt, gpa)[0] = value

    def alloc(self, n, align=16):
        """Memory for a request or a ring: handed out in turn, and again after a lap."""
        at = -(-self.next // align) * align
        if at + n > self.regions[-1].gpa + self.regions[-1].size:
            at = -(-self.first // align) * align
        self.next = at + n
        return at

    def keep(self):
        """What was handed out so far stays."""
        self.first = self.next

    def uva(self, gpa):
        r = next(r for r in self.regions if r.gpa <= gpa < r.gpa + r.size)
        return r.uva + gpa - r.gpa


# --- messages -------------------------------------------------------------------------------------

class Master:
    def __init__(self, path, timeout=WAIT):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(timeout)
        self.sock.connect(path)
        self.acks = False
        self.back = None

    def send_raw(self, data, fds=()):
        anc = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            self.sock.sendmsg([data], anc)
        except (BrokenPipeError, ConnectionResetError):
            raise Gone("the daemon hung up") from None

    def send(self, mid, payload=b"", fds=(), flags=VERSION, size=None):
        self.send_raw(struct.pack("<III", mid, flags, len(payload) if size is None else size)
                      + payload, fds)

    def recv_bytes(self, n):
        data, fds = b"", []
        while len(data) < n:
            try:
                got, anc, _, _ = self.sock.recvmsg(n - len(data), socket.CMSG_SPACE(64))
            except ConnectionResetError:
                got, anc = b"", []
            for _, _, raw in anc:
                fds += array.array("i", raw[:len(raw) // 4 * 4])
            if not got:
                raise Gone("the daemon hung up")
            data += got
        return data, fds

    def recv(self, mid):
        """The reply to mid: payload and descriptors."""
        head, fds = self.recv_bytes(12)
        got, flags, size = struct.unpack("<III", head)
        assert (got, flags) == (mid, VERSION | REPLY), f"reply {got} {flags:#x} to {mid}"
        return (self.recv_bytes(size)[0] if size else b""), fds

    def call(self, mid, payload=b"", fds=()):
        self.send(mid, payload, fds)
        return self.recv(mid)[0]

    def ask(self, mid):
        return struct.unpack("<Q", self.call(mid))[0]

    def do(self, mid, payload=b"", fds=()):
        """A message without a reply of its own: acknowledged where that was negotiated."""
        self.send(mid, payload, fds, VERSION | (NEED_REPLY if self.acks else 0))
        if self.acks:
            value, = struct.unpack("<Q", self.recv(mid)[0])
            assert value == 0, f"message {mid} was acknowledged with {value}"

    def gone(self):
        """Waits for the daemon to hang up; nothing else may come."""
        try:
            rest = self.sock.recv(1)
        except ConnectionResetError:
            rest = b""
        assert rest == b"", f"{rest} came instead of an end"
        self.sock.close()

    def quiet(self, seconds=0.05):
        """No reply comes that was not asked for, and the connection stays."""
        ready, _, _ = select.select([self.sock], [], [], seconds)
        assert not ready, "the daemon said something"

    # the messages

    def u64(self, mid, value, fds=()):
        self.do(mid, struct.pack("<Q", value), fds)

    def state(self, mid, index, num):
        self.do(mid, struct.pack("<II", index, num))

    def features(self):
        return self.ask(GET_FEATURES)

    def set_protocol(self, features):
        self.u64(SET_PROTOCOL_FEATURES, features)
        self.acks = bool(features & P_REPLY_ACK)

    def get_config(self, size=60, offset=0, flags=0):
        got = self.call(GET_CONFIG, struct.pack("<III", offset, size, flags) + bytes(size))
        return got[12:]

    def set_config(self, offset, data, flags=0):
        self.do(SET_CONFIG, struct.pack("<III", offset, len(data), flags) + data)

    def mem_table(self, memory):
        rs = memory.regions
        self.do(SET_MEM_TABLE, struct.pack("<II", len(rs), 0) + b"".join(r.packed() for r in rs),
                [r.fd for r in rs])

    def add_mem(self, region):
        self.do(ADD_MEM_REG, bytes(8) + region.packed(), [region.fd])

    def rem_mem(self, region, fds=()):
        self.do(REM_MEM_REG, bytes(8) + region.packed(), fds)

    def vring_addr(self, index, desc, used, avail, flags=0, log=0):
        self.do(SET_VRING_ADDR, struct.pack("<IIQQQQ", index, flags, desc, used, avail, log))

    def vring_base(self, index):
        got, num = struct.unpack("<II", self.call(GET_VRING_BASE, struct.pack("<II", index, 0)))
        assert got == index
        return num

    def get_inflight(self, queues, size):
        """(mmap size, mmap offset, descriptor)"""
        self.send(GET_INFLIGHT_FD, struct.pack("<QQHHI", 0, 0, queues, size, 0))
        payload, fds = self.recv(GET_INFLIGHT_FD)
        assert len(fds) == 1, fds
        length, off, got_queues, got_size = struct.unpack("<QQHH", payload[:20])
        assert (got_queues, got_size) == (queues, size), payload
        return length, off, fds[0]

    def set_inflight(self, length, off, fd, queues, size):
        self.do(SET_INFLIGHT_FD, struct.pack("<QQHHI", length, off, queues, size, 0), [fd])

    def open_back(self):
        """The channel on which the daemon speaks up."""
        self.back, theirs = socket.socketpair()
        self.back.settimeout(WAIT)
        self.do(SET_BACKEND_REQ_FD, b"", [theirs.fileno()])
        theirs.close()

    def close(self):
        self.sock.close()
        if self.back:
            self.back.close()


# --- rings ----------------------------------------------------------------------------------------

class Ring:
    """A driver's side of one virtqueue, in guest memory; it survives the device."""

    def __init__(self, mem, size=128, packed=False, event_idx=False):
        self.mem, self.size, self.packed, self.event_idx = mem, size, packed, event_idx
        self.desc = mem.alloc(16 * size, 4096)
        self.avail = mem.alloc(6 + 2 * size, 64)
        self.used = mem.alloc(6 + 8 * size, 64)
        self.kick, self.call, self.err = (os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                                          for _ in range(3))
        self.kicks = self.calls = 0
        self.reset()

    def reset(self):
        for at, n in (self.desc, 16 * self.size), (self.avail, 6 + 2 * self.size), \
                (self.used, 6 + 8 * self.size):
            self.mem.write(at, bytes(n))
        self.avail_idx = self.used_idx = self.shown = 0
        self.avail_wrap = self.used_wrap = 1
        self.free = list(range(self.size))
        self.ids = list(range(self.size))
        self.chains = {}  # id -> descriptors, or number of places

    def start_base(self):
        return 0x80008000 if self.packed else 0

    # one descriptor or index, as they lie there

    def put_desc(self, i, addr, length, flags, other=0):
        """other: next, or the buffer's id."""
        tail = (other, flags) if self.packed else (flags, other)
        self.mem.write(self.desc + 16 * i, struct.pack("<QIHH", addr, length, *tail))

    def table(self, segs):
        """An indirect table for segs: (addr, len)."""
        out = b""
        for i, (addr, length, writable) in enumerate(segs):
            flags, more = D_WRITE if writable else 0, i + 1 < len(segs)
            tail = (0, flags) if self.packed else (flags | (D_NEXT if more else 0), i + 1)
            out += struct.pack("<QIHH", addr, length, *tail)
        at = self.mem.alloc(len(out))
        self.mem.write(at, out)
        return at, len(out)

    def publish(self, head):
        """Split: a head behind the available index."""
        self.mem.put("<H", self.avail + 4 + 2 * (self.avail_idx % self.size), head)
        self.avail_idx = self.avail_idx + 1 & 0xFFFF
        self.mem.put("<H", self.avail + 2, self.avail_idx)

    # requests

    def room(self, n=1):
        return len(self.free) >= n

    def add(self, segs, indirect=False):
        """Makes a chain of (addr, len, writable) available; returns its id."""
        flags = 0
        if indirect:
            at, n = self.table(segs)
            segs, flags = [(at, n, False)], D_INDIRECT
        assert self.room(len(segs)), "the ring is full"
        return self._add_packed(segs, flags) if self.packed else self._add_split(segs, flags)

    def _add_split(self, segs, extra):
        places = [self.free.pop() for _ in segs]
        for i, (addr, length, writable) in enumerate(segs):
            more = i + 1 < len(segs)
            self.put_desc(places[i], addr, length,
                          extra | (D_WRITE if writable else 0) | (D_NEXT if more else 0),
                          places[i + 1] if more else 0)
        self.chains[places[0]] = places
        self.publish(places[0])
        return places[0]

    def _add_packed(self, segs, extra):
        rid, first, head = self.ids.pop(0), self.avail_idx, 0
        for i, (addr, length, writable) in enumerate(segs):
            flags = extra | (D_WRITE if writable else 0) | (D_NEXT if i + 1 < len(segs) else 0) \
                | (D_AVAIL if self.avail_wrap else D_USED)
            was = self.mem.get("<H", self.desc + 16 * self.avail_idx + 14)
            self.put_desc(self.avail_idx, addr, length, was if i == 0 else flags, rid)
            head = head or flags
            self.avail_idx, self.avail_wrap = self._step(self.avail_idx, self.avail_wrap, 1)
            self.free.pop()
        self.chains[rid] = len(segs)
        self.mem.put("<H", self.desc + 16 * first + 14, head)
        return rid

    def _step(self, idx, wrap, n):
        idx += n
        return (idx - self.size, wrap ^ 1) if idx >= self.size else (idx, wrap)

    def needs_kick(self):
        """As the device asked for it, for all that was added since the last call."""
        old, self.shown = self.shown, self.avail_idx
        if self.packed:
            off, flags = struct.unpack("<HH", self.mem.read(self.used, 4))
            if flags != 2:
                return flags == 0
            event = (off & 0x7FFF) - (0 if off >> 15 == self.avail_wrap else self.size)
            if old >= self.avail_idx:
                old -= self.size
            return (self.avail_idx - event - 1 & 0xFFFF) < (self.avail_idx - old & 0xFFFF)
        if not self.event_idx:
            return not self.mem.get("<H", self.used) & 1
        event = self.mem.get("<H", self.used + 4 + 8 * self.size)
        return (self.avail_idx - event - 1 & 0xFFFF) < (self.avail_idx - old & 0xFFFF)

    def kick_if_needed(self):
        if self.needs_kick():
            self.kicks += 1
            os.eventfd_write(self.kick, 1)

    def want(self, n=1):
        """An interrupt when n more were used."""
        if self.packed:
            idx, wrap = self._step(self.used_idx, self.used_wrap, n - 1)
            self.mem.write(self.avail, struct.pack("<HH", idx | wrap << 15, 2 if self.event_idx else 0))
        elif self.event_idx:
            self.mem.put("<H", self.avail + 4 + 2 * self.size, self.used_idx + n - 1 & 0xFFFF)
        else:
            self.mem.put("<H", self.avail, 0)

    def want_none(self):
        if self.packed:
            self.mem.put("<H", self.avail + 2, 1)
        elif self.event_idx:
            self.mem.put("<H", self.avail + 4 + 2 * self.size, self.used_idx - 1 & 0xFFFF)
        else:
            self.mem.put("<H", self.avail, 1)

    def used_now(self):
        """What was used since the last call: (id, len)."""
        out = []
        while True:
            got = self._used_packed() if self.packed else self._used_split()
            if got is None:
                return out
            out.append(got)

    def _used_split(self):
        if self.mem.get("<H", self.used + 2) == self.used_idx:
            return None
        rid, length = struct.unpack(
            "<II", self.mem.read(self.used + 4 + 8 * (self.used_idx % self.size), 8))
        self.used_idx = self.used_idx + 1 & 0xFFFF
        assert rid in self.chains, f"used {rid}, which is not in flight"
        self.free += self.chains.pop(rid)
        return rid, length

    def _used_packed(self):
        _, length, rid, flags = struct.unpack(
            "<QIHH", self.mem.read(self.desc + 16 * self.used_idx, 16))
        if bool(flags & D_AVAIL) != bool(self.used_wrap) or bool(flags & D_USED) != bool(self.used_wrap):
            return None
        assert rid in self.chains, f"used {rid}, which is not in flight"
        places = self.chains.pop(rid)
        self.used_idx, self.used_wrap = self._step(self.used_idx, self.used_wrap, places)
        self.free += [0] * places
        self.ids.append(rid)
        return rid, length

    def close(self):
        for fd in self.kick, self.call, self.err:
            os.close(fd)


class Request:
    def __init__(self, kind, head, data, n, status, ring):
        self.kind, self.head, self.data, self.n, self.status_at = kind, head, data, n, status
        self.ring, self.mem, self.len, self.id = ring, ring.mem, None, None

    @property
    def done(self):
        return self.len is not None

    @property
    def status(self):
        return self.mem.get("<B", self.status_at)

    def bytes(self):
        return self.mem.read(self.data, self.n)


# --- a disk ---------------------------------------------------------------------------------------

class Disk(Master):
    """A connected device with running rings. mem and rings may be those of a connection before."""

    def __init__(self, path, rings=1, size=128, packed=False, event_idx=True, indirect=True, acks=True,
                 features=None, without=0, mem=None, old=None, inflight=False, start=True, slots=False,
                 wait=WAIT):
        end = time.monotonic() + wait
        while True:  # a daemon that was restarted may not listen yet, nor have its volume
            try:
                super().__init__(path)
                self.offered = self.features()
                break
            except (OSError, Gone):
                assert time.monotonic() < end, "no device answers"
                time.sleep(0.01)
        self.mem = old.mem if old else mem or Memory()
        self.rings = old.rings if old else [Ring(self.mem, size, packed, event_idx)
                                            for _ in range(rings)]
        if not old:
            self.mem.keep()
        self.waiting = old.waiting if old else {}  # (ring, id) -> Request
        self.inflight = old.inflight if old else None
        self.acked = old.acked if old else features if features is not None else (
            self.offered & ~without & ~(0 if packed else F_PACKED) & ~(0 if event_idx else F_EVENT_IDX)
            & ~(0 if indirect else F_INDIRECT))
        self.use_slots = slots
        self.protocol = self.ask(GET_PROTOCOL_FEATURES)
        if not acks:
            self.protocol &= ~P_REPLY_ACK
        if start:
            self.negotiate(inflight)
            for i in range(len(self.rings)):
                self.start(i, self.rings[i].start_base() if not old else None)

    def negotiate(self, inflight=False):
        self.set_protocol(self.protocol)
        self.do(SET_OWNER)
        self.u64(SET_FEATURES, self.acked)
        if inflight and not self.inflight:
            self.inflight = self.get_inflight(len(self.rings), self.rings[0].size)
        if self.inflight:
            self.set_inflight(*self.inflight, len(self.rings), self.rings[0].size)
        if self.use_slots:
            for r in self.mem.regions:
                self.add_mem(r)
        else:
            self.mem_table(self.mem)

    def set_addr(self, i):
        r = self.rings[i]
        self.vring_addr(i, self.mem.uva(r.desc), self.mem.uva(r.used), self.mem.uva(r.avail))

    def start(self, i, base=None):
        """base None: as QEMU does after a reconnect, from the ring itself."""
        r = self.rings[i]
        if base is None:
            base = r.start_base() if r.packed else self.mem.get("<H", r.used + 2)
        self.state(SET_VRING_NUM, i, r.size)
        self.state(SET_VRING_BASE, i, base)
        self.set_addr(i)
        self.u64(SET_VRING_KICK, i, [r.kick])
        self.u64(SET_VRING_CALL, i, [r.call])
        self.u64(SET_VRING_ERR, i, [r.err])
        self.state(SET_VRING_ENABLE, i, 1)

    def stop(self, i):
        """GET_VRING_BASE; what was in flight has ended then."""
        return self.vring_base(i)

    # requests

    def prepare(self, kind, sector=0, data=b"", n=0, ring=0, at=None):
        """Header, data and status in memory; n: bytes to be read. at: where the data lies."""
        mem, size = self.mem, len(data) or n
        head = mem.alloc(16)
        place = at if at is not None else mem.alloc(size, 512) if size else 0
        status = mem.alloc(1)
        mem.write(head, struct.pack("<IIQ", kind, 0, sector))
        mem.put("<B", status, S_NONE)
        if data:
            mem.write(place, data)
        return Request(kind, head, place, size, status, self.rings[ring])

    def segs(self, req, cut=None):
        """Its descriptors; cut: bytes of each data descriptor."""
        out, step = [(req.head, 16, False)], cut or req.n or 1
        writable = req.kind in (T_IN, T_GET_ID)
        for at in range(0, req.n, step):
            out.append((req.data + at, min(step, req.n - at), writable))
        return out + [(req.status_at, 1, True)]

    def add(self, req, segs, indirect=False):
        """Makes it available, without a kick."""
        req.id = req.ring.add(segs, indirect)
        self.waiting[req.ring, req.id] = req
        return req

    def submit(self, kind, sector=0, data=b"", n=0, ring=0, indirect=False, cut=None, kick=True, at=None):
        req = self.prepare(kind, sector, data, n, ring, at)
        segs = self.segs(req, cut)
        if not req.ring.room(1 if indirect else len(segs)):
            self.wait_for(lambda: req.ring.room(1 if indirect else len(segs)), "there is room in the ring")
        self.add(req, segs, indirect)
        if kick:
            req.ring.kick_if_needed()
        return req

    def reap(self):
        """Takes note of all that was used; False: nothing."""
        any_used = False
        for r in self.rings:
            for rid, length in r.used_now():
                self.waiting.pop((r, rid)).len = length
                any_used = True
        return any_used

    def wait_for(self, done, what, timeout=WAIT):
        """Sleeps on the call eventfds until done()."""
        end = time.monotonic() + timeout
        while True:
            for r in self.rings:
                r.want()
            more = self.reap()
            if done():
                return
            if more:
                continue  # what was wanted has come: ask anew
            left = end - time.monotonic()
            ready, _, _ = select.select([r.call for r in self.rings], [], [], max(left, 0))
            for r in self.rings:
                if r.call in ready:
                    r.calls += os.eventfd_read(r.call)
            if not ready:
                self.reap()
                assert not done(), f"{what}, but no interrupt came"
                raise AssertionError(f"never happened: {what}")

    def wait(self, *reqs, status=S_OK):
        """Until all of reqs (or of all) have ended; their status must be as told."""
        reqs = reqs or list(self.waiting.values())
        self.wait_for(lambda: all(q.done for q in reqs), "a request ends")
        for q in reqs:
            assert status is None or q.status == status, f"status {q.status}, not {status}"
        return reqs[0] if reqs else None

    def io(self, *args, status=S_OK, **kw):
        return self.wait(self.submit(*args, **kw), status=status)

    def write(self, sector, data, **kw):
        return self.io(T_OUT, sector, data, **kw)

    def read(self, sector, n, **kw):
        return self.io(T_IN, sector, n=n, **kw).bytes()

    def ranges(self, kind, *ranges, status=S_OK):
        """ranges: (sector, sectors, flags)."""
        data = b"".join(struct.pack("<QII", *r) for r in ranges)
        return self.io(kind, 0, data, status=status)

    def err_signalled(self, ring=0, timeout=WAIT):
        return bool(select.select([self.rings[ring].err], [], [], timeout)[0])

    def idle(self):
        """Until the daemon has armed every ring, so that kicks are asked for."""
        end = time.monotonic() + WAIT
        while not all(self._armed(r) for r in self.rings):
            assert time.monotonic() < end, "the daemon never sleeps"
            time.sleep(0.002)

    def _armed(self, r):
        if r.packed:
            off, flags = struct.unpack("<HH", self.mem.read(r.used, 4))
            return flags == 0 or flags == 2 and off == r.avail_idx | r.avail_wrap << 15
        if r.event_idx:
            return self.mem.get("<H", r.used + 4 + 8 * r.size) == r.avail_idx
        return not self.mem.get("<H", r.used) & 1


# --- daemons --------------------------------------------------------------------------------------

class World:
    """Targets with a file for each disk, an initiator with a socket for each. Volumes v0, v1..., each
    striped over all targets; disks are of one VM each."""

    def __init__(self, disks=1, members=2, size="16M", block=32768, queues=4, read_only=(), lba=None,
                 conf=None):
        more = {"block_size": lba} if lba else {}
        self.block, self.targets, self.files = block, [], []
        for m in range(members):
            nqn = f"nqn.2026-11.io.sluice:m{m}"
            t = Target(config({1: "ram:1M"}, nqn=nqn), nqn=nqn, start=False)
            self.files.append([t.add_file(d + 1, size, **more) for d in range(disks)])
            t.start()
            self.targets.append(t)
        vms = []
        self.initiator = Initiator({}, start=False)
        self.sockets = [os.path.join(self.initiator.dir, f"disk{d}.sock") for d in range(disks)]
        for d in range(disks):
            disk = {"volume": f"v{d}", "vhost-user-blk": self.sockets[d], "queues": queues}
            if d in read_only:
                disk["read-only"] = True
            vms.append({"name": f"vm{d}", "uid": os.getuid(), "disks": [disk]})
        self.initiator.conf.update({
            "hosts": hosts(*self.targets), "vms": vms,
            "volumes": [volume(f"v{d}", *[(t, d + 1) for t in self.targets], block=block)
                        for d in range(disks)], **(conf or {})})
        self.initiator.start()

    # what runner.py's Shared asks for
    @property
    def proc(self):
        return self.initiator.proc

    def disk(self, n=0, **kw):
        return Disk(self.sockets[n], **kw)

    def master(self, n=0):
        return Master(self.sockets[n])

    def flat(self, n=0, at=0, length=None):
        """Bytes of the volume, put together from the targets' files."""
        block, nr, out = self.block, len(self.files), []
        if length is None:
            length = os.path.getsize(self.files[0][n]) // block * block * nr - at
        fds = [os.open(files[n], os.O_RDONLY) for files in self.files]
        while length > 0:
            k, off = divmod(at, block)
            take = min(block - off, length)
            out.append(os.pread(fds[k % nr], take, k // nr * block + off))
            at, length = at + take, length - take
        for fd in fds:
            os.close(fd)
        return b"".join(out)

    def crash(self):
        """kill -9, and another daemon in its place."""
        self.initiator.kill()
        self.initiator.start()

    def device(self, n=0):
        """What "stats" or the like tells of it."""
        c = Control(self.initiator.control)
        try:
            return c.call("connections")["vhost"][n]
        finally:
            c.close()

    def log(self):
        return self.initiator.log()

    def stop(self):
        problem = self.initiator.stop()
        for t in self.targets:
            problem += t.stop()
        return problem

    def __enter__(self):
        return self

    def __exit__(self, etype, *_):
        problem = self.stop()
        assert etype or not problem, problem
