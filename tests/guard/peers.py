"""Peers that speak in lock-step: a whole batch is submitted at once, and its end awaited before the next.

So a daemon does the same in every run, however busy the machine is. load(write, size, depth, rounds) of each of them
is a conversation; what a peer receives is not checked beyond what tells it that the batch has ended well.
"""
import ctypes
import os
import struct
import time

import vhost
from nvmetcp import CMD, READ, R2T, WRITE, Host, h2c_data, need, parse, sgl, sqe
from shm import CQ_HEAD, CQ_TAIL, SQ_TAIL, Shm
from wire import SGL_CAPSULE

CAPSULE = 8192
CQ_NEED_WAKEUP = 260


class TcpHost:
    """One I/O queue of a target."""

    def __init__(self, target, nsid, digests):
        self.host = Host(target, sqsize=127, hdgst=digests, ddgst=digests)
        self.io, self.nsid = self.host.io(sqsize=127), nsid
        self.header, self.tail = 24 + 4 * digests, 4 * digests

    def capsule(self, cid, write, size):
        inline = write and size <= CAPSULE
        blocks = size // self.io.bs
        raw = sqe(WRITE if write else READ, self.nsid, cid=cid, cdw10=cid * blocks, cdw12=blocks - 1,
                  sgl1=sgl(size, SGL_CAPSULE) if inline else sgl(size))
        return self.io.pdu(CMD, raw, bytes(size) if inline else b"")

    def answers(self, depth, size):
        """H2CData for each of the R2Ts that come: one for each command, for all of it."""
        raw = self.io.recv_exact(depth * self.header)
        for at in range(0, len(raw), self.header):
            r2t = parse(raw[at:at + self.header], hdgst=self.io.hdgst, ddgst=self.io.ddgst)
            need(r2t.type == R2T and (r2t.r2to, r2t.r2tl) == (0, size), "%r for %d bytes", r2t, size)
            yield h2c_data(r2t.cccid, r2t.ttag, 0, self.payload, last=True, hdgst=self.io.hdgst, ddgst=self.io.ddgst)

    def load(self, write, size, depth, rounds):
        self.payload = bytes(size)
        batch = b"".join(self.capsule(cid, write, size) for cid in range(depth))
        answer = depth * (self.header if write else self.header + size + self.tail + self.header)
        for _ in range(rounds):
            self.io.send(batch)
            if write and size > CAPSULE:
                self.io.send(b"".join(self.answers(depth, size)))
            self.io.recv_exact(answer)


class ShmClient:
    """One queue of a volume; it always asks to be woken, as a client that sleeps."""

    def __init__(self, initiator, name):
        self.shm = Shm(initiator.shm)
        self.volume = self.shm.volume(name)
        self.memory, self.addr = self.shm.memory(8 << 20)
        self.queue = self.shm.queue(128)
        self.need_wakeup = ctypes.c_uint32.from_buffer(self.queue.mem, CQ_NEED_WAKEUP)

    def fill(self, write, size, depth, tail):
        q, blocks = self.queue, size // self.volume.block
        for cid in range(depth):
            at = q.sq + 64 * ((tail + cid) % q.entries)
            q.mem[at:at + 64] = struct.pack("<BBHI16xQI4xQI12x", WRITE if write else READ, 0x40, cid, self.volume.nsid,
                                            self.addr + cid * size, size, cid * blocks, blocks - 1)

    def load(self, write, size, depth, rounds):
        q = self.queue
        for _ in range(rounds):
            tail, head = q.index[SQ_TAIL].value, q.index[CQ_HEAD].value
            self.fill(write, size, depth, tail)
            self.need_wakeup.value = 1
            q.index[SQ_TAIL].value = tail + depth & 0xFFFFFFFF
            os.eventfd_write(q.kick, 1)
            while q.index[CQ_TAIL].value - head & 0xFFFFFFFF != depth:
                time.sleep(0.0002)
            for n in range(head, head + depth):
                status, = struct.unpack_from("<H", q.mem, q.cq + 16 * (n % q.entries) + 14)
                assert status == 0, f"status {status >> 1:03x}h"
            q.index[CQ_HEAD].value = head + depth & 0xFFFFFFFF


class VhostDriver:
    """One split ring of a vhost-user-blk disk, with event indices and indirect descriptors."""

    def __init__(self, path):
        self.disk = vhost.Disk(path)

    def load(self, write, size, depth, rounds):
        disk, kind = self.disk, vhost.T_OUT if write else vhost.T_IN
        for _ in range(rounds):
            disk.idle()
            batch = [disk.submit(kind, n * size // 512, bytes(size) if write else b"", n=size, indirect=True, kick=False)
                     for n in range(depth)]
            disk.rings[0].kick_if_needed()
            disk.wait(*batch)
