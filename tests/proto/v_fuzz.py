#!/usr/bin/env python3
"""vhost-user-blk: messages and rings of nonsense, from fixed seeds. The daemon stays, whatever a VMM and its
guest say, and the guest beside them is served. SEED=n runs one; ROUNDS=n more of each."""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from daemon import Shared
from runner import main
from vhost import *

world = Shared(lambda: World(disks=2))
ROUNDS = int(os.environ.get("ROUNDS", "150"))
SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else None

IDS = [GET_FEATURES, SET_FEATURES, SET_OWNER, SET_MEM_TABLE, SET_VRING_NUM, SET_VRING_ADDR, SET_VRING_BASE,
       GET_VRING_BASE, SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR, SET_PROTOCOL_FEATURES,
       GET_QUEUE_NUM, SET_VRING_ENABLE, SET_BACKEND_REQ_FD, GET_CONFIG, SET_CONFIG, GET_INFLIGHT_FD,
       SET_INFLIGHT_FD, RESET_DEVICE, ADD_MEM_REG, REM_MEM_REG, SET_STATUS, GET_STATUS]


def beside():
    d = world().disk(1)
    data = os.urandom(4096)
    d.write(16, data)
    assert world().flat(1, 16 * 512, 4096) == data
    d.close()


class Nonsense:
    """Messages that are mostly well formed, with numbers that are mostly near what could be."""

    def __init__(self, seed):
        self.r, self.mem = random.Random(seed), Memory(Region(0, MIB, 1 << 40), Region(MIB, MIB, 1 << 41))
        self.ring = Ring(self.mem, 16, self.r.random() < 0.5)
        self.fds = [self.ring.kick, self.ring.call, self.ring.err, self.mem.regions[0].fd,
                    self.mem.regions[1].fd]

    def number(self, *likely):
        return self.r.choice(likely * 8 + (0, 1, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, self.r.getrandbits(32)))

    def address(self):
        r, m = self.ring, self.mem
        near = self.r.choice((r.desc, r.avail, r.used, r.desc, r.avail, r.used, 0, MIB - 8, 2 * MIB - 8))
        return self.r.choice((m.uva(near), m.uva(near), m.uva(near) + self.r.randrange(64), near,
                              self.r.getrandbits(64)))

    def region(self):
        r = self.r.choice(self.mem.regions)
        parts = [r.gpa, r.size, r.uva, 0]
        if self.r.random() < 0.2:
            parts[self.r.randrange(4)] = self.r.getrandbits(self.r.choice((12, 20, 64)))
        return struct.pack("<QQQQ", *parts)

    def fd(self, n=1):
        return [self.r.choice(self.fds) for _ in range(n)]

    def payload(self, mid):
        index = self.number(0, 0, 1, 2)
        if mid in (SET_FEATURES, SET_PROTOCOL_FEATURES):
            offered = 0x574007E46 if mid == SET_FEATURES else 0x1B228
            return struct.pack("<Q", offered & self.r.getrandbits(64) | self.r.getrandbits(64)
                               * (self.r.random() < 0.02)), []
        if mid in (SET_STATUS, ):
            return struct.pack("<Q", self.number(0, 1, 15)), []
        if mid == SET_MEM_TABLE:
            n = self.r.choice((1, 2, 2, 2, 8))
            return struct.pack("<II", n, 0) + b"".join(self.region() for _ in range(n)), self.fd(n)
        if mid in (ADD_MEM_REG, REM_MEM_REG):
            return bytes(8) + self.region(), self.fd() if mid == ADD_MEM_REG else []
        if mid == SET_VRING_ADDR:
            return struct.pack("<IIQQQQ", index, self.number(0, 0, 0), self.address(), self.address(),
                               self.address(), 0), []
        if mid in (SET_VRING_NUM, SET_VRING_BASE, GET_VRING_BASE, SET_VRING_ENABLE):
            num = self.number(1, 1, 0) if mid == SET_VRING_ENABLE else self.number(16, 16, 8, 1, 0x8000)
            return struct.pack("<II", index, num), []
        if mid in (SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR):
            none = self.r.random() < 0.3
            return struct.pack("<Q", index & 0xFF | (NO_FD if none else 0)), [] if none else self.fd()
        if mid in (GET_CONFIG, SET_CONFIG):
            off, n = self.number(0, 32), self.r.choice((1, 8, 60, 256))
            return struct.pack("<III", off, self.r.choice((n, n, n, 300)), 0) + self.r.randbytes(n), []
        if mid in (GET_INFLIGHT_FD, SET_INFLIGHT_FD):
            return struct.pack("<QQHHI", self.number(4096, 65536), self.number(0), self.r.choice((1, 2, 4, 300)),
                               self.r.choice((16, 16, 0, 65535)), 0), self.fd() if mid == SET_INFLIGHT_FD else []
        return b"", self.fd() if mid == SET_BACKEND_REQ_FD else []

    def begin(self, m):
        """All as it should be: a ring runs."""
        r = self.ring
        m.u64(SET_FEATURES, m.features() & ~(0 if r.packed else F_PACKED))
        m.mem_table(self.mem)
        m.state(SET_VRING_NUM, 0, r.size)
        m.state(SET_VRING_BASE, 0, r.start_base())
        m.vring_addr(0, self.mem.uva(r.desc), self.mem.uva(r.used), self.mem.uva(r.avail))
        m.u64(SET_VRING_KICK, 0, [r.kick])
        m.state(SET_VRING_ENABLE, 0, 1)

    def scribble(self):
        """Numbers that a ring could have, all over it."""
        r = self.ring
        for at, n in (r.desc, 16 * 16), (r.avail, 40), (r.used, 140):
            for _ in range(self.r.randrange(12)):
                self.mem.put("<H", at + 2 * self.r.randrange(n // 2),
                             self.r.choice((0, 1, 2, 3, 5, 16, 0x80, 0x8000, 0x8081, self.r.getrandbits(16))))


def drain(m):
    m.sock.setblocking(False)
    try:
        while True:
            got, anc, _, _ = m.sock.recvmsg(4096, 256)
            for _, _, raw in anc:
                for fd in array.array("i", raw):
                    os.close(fd)
            if not got:
                return False
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
    finally:
        m.sock.settimeout(WAIT)


def close_all(*rings_and_regions):
    for x in rings_and_regions:
        if isinstance(x, Ring):
            x.close()
        else:
            x.map.close()
            os.close(x.fd)


def test_messages_of_nonsense_harm_nobody():
    for seed in SEEDS or range(ROUNDS):
        n = Nonsense(seed)
        try:
            m = world().master()
            m.set_protocol(0x1B229 & ~P_REPLY_ACK)
            if n.r.random() < 0.7:
                n.begin(m)
            for _ in range(n.r.randrange(60)):
                mid = n.r.choice(IDS)
                payload, fds = n.payload(mid)
                if n.r.random() < 0.03:
                    payload = payload[:n.r.randrange(len(payload) + 1)]
                if n.r.random() < 0.03:
                    fds = n.fd(n.r.randrange(9))
                m.send(mid, payload, fds, VERSION | (NEED_REPLY if n.r.random() < 0.3 else 0))
                n.scribble()
                if n.r.random() < 0.3:
                    try:
                        os.eventfd_write(n.ring.kick, 1)
                    except BlockingIOError:
                        pass
                if not drain(m):
                    break
        except Gone:
            pass
        m.sock.close()
        close_all(n.ring, *n.mem.regions)
        if seed % 50 == 0:
            beside()
    beside()


def nonsense_chain(r, d, ring, tables):
    """A descriptor that could be part of a request."""
    at = r.choice((tables[0], tables[0] + 16 * r.randrange(16), 0x8000, 16 * MIB - 8, 48 * MIB - 100,
                   r.getrandbits(64)))
    length = r.choice((1, 16, 16, 512, 512, 4096, 48, 16 * r.randrange(20), 0, 0xFFFFFFFF, r.getrandbits(32)))
    flags = r.choice((0, 1, 1, 1, 2, 3, 3, 4, 4, 5, 7))
    return at, length, flags


def test_rings_of_nonsense_harm_nobody():
    for seed in SEEDS or range(ROUNDS):
        r = random.Random(seed)
        packed = r.random() < 0.5
        d = world().disk(packed=packed, event_idx=r.random() < 0.5, size=16, inflight=r.random() < 0.5)
        ring, tables = d.rings[0], (d.mem.alloc(4096), )
        for _ in range(r.randrange(1, 12)):
            for i in range(16):
                d.mem.write(tables[0] + 16 * i, struct.pack("<IIQ", r.choice((0, 0, 1, 4, 8, 11, 13, 99)), 0,
                                                            r.choice((0, 7, 1 << 15, 1 << 63))))
                if r.random() < 0.5:
                    at, length, flags = nonsense_chain(r, d, ring, tables)
                    d.mem.write(tables[0] + 1024 + 16 * i,
                                struct.pack("<QIHH", at, length, *((0, flags) if packed else (flags, r.randrange(16)))))
            for i in range(16):
                at, length, flags = nonsense_chain(r, d, ring, tables)
                if flags & D_INDIRECT and r.random() < 0.8:
                    at, length = tables[0] + 1024, 16 * r.randrange(1, 17)
                if packed:
                    flags |= r.choice((D_AVAIL, D_AVAIL, D_USED, 0, D_AVAIL | D_USED))
                ring.put_desc(i, at, length, flags, r.choice((r.randrange(16), r.getrandbits(16))))
            if not packed:
                for i in range(16):
                    d.mem.put("<H", ring.avail + 4 + 2 * i, r.choice((r.randrange(16), r.randrange(16), 16, 65535)))
                d.mem.put("<H", ring.avail + 2, r.choice((r.randrange(16), r.randrange(40), r.getrandbits(16))))
            os.eventfd_write(ring.kick, 1)
            time.sleep(r.choice((0, 0, 0.002)))
        d.sock.close()
        close_all(ring, *d.mem.regions)
        if seed % 50 == 0:
            beside()
    beside()


main(globals())
