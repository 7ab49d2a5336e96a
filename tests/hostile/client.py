#!/usr/bin/env python3
"""A hostile client against the whole sluice-initiator, over sluice-shm(7): it can hurt only itself.

One daemon for all tests, with two volumes on a real target. Ours is "mine"; on "other" an honest client, sluice-perf
with --verify, works from the first test to the last, which looks at what it has to say. After each test the daemon
lives, its sanitizers are silent, and an honest command on "mine" still works.
"""
import ctypes
import fcntl
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from controller import Controller
from daemon import SCALE, Target, config, find_program
from initiator import Initiator, hosts, volume
from rawshm import *
from rawshm import F_SEAL_FUTURE_WRITE, F_SEAL_SEAL, F_SEAL_WRITE, MSG
from runner import main, until
from wire import COMPARE, DSM, FLUSH, READ, WRITE, WRITE_ZEROES

LIBC = ctypes.CDLL(None, use_errno=True)
PUNCH_HOLE, KEEP_SIZE, MADV_REMOVE = 2, 1, 9
DIGESTS = "nqn.2026-11.io.sluice:digests"


class Rig:
    """The daemon, its target, the honest client."""

    def __init__(self):
        self.target = Target(config({1: "ram:64M", 2: "ram:64M"}))
        self.digests = Controller(DIGESTS, size=8 << 20)
        conf = hosts(self.target, (DIGESTS, *self.digests.addr))
        conf[0]["subsystems"][1]["ports"][0].update(data_digest=True, hdr_digest=True)
        self.i = Initiator({
            "hosts": conf, "reactors": [0, 1] if (os.cpu_count() or 1) > 1 else [0],
            "volumes": [volume("mine", (self.target, 1)), volume("other", (self.target, 2)),
                        {"name": "digests", "members": [DIGESTS + "/1"]}],
            "vms": [{"name": "m", "disks": [{"volume": v} for v in ("mine", "other", "digests")]}]})
        until(lambda: all(v["state"] == "ready" for v in self.i.ctl("volumes")), "the volumes", 10 * SCALE)
        self.perf = subprocess.Popen(
            [find_program("sluice-perf", "initiator/client"), "--socket", self.i.shm, "--volume", "other",
             "--rw", "randrw", "--bs", "8k", "--qd", "4", "--sg", "3", "--rate", "300", "--verify", "--json",
             "--quiet", "--time", "10m"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until(lambda: self.i.ctl("status")["clients"] == 1, "the honest client", 10 * SCALE)

    def well(self):
        """The daemon serves an honest command, and the honest client is still at work."""
        assert self.perf.poll() is None, self.perf.stderr.read()
        c = Client(self.i.shm)
        q, mem = c.queue(4), Guarded(c, [1, 4095])
        data = mem.data
        assert q.io(WRITE, 1, 8, 8, mem.sg) == 0
        mem.data = bytes(4096)
        assert q.io(READ, 1, 8, 8, mem.sg) == 0 and mem.data == data
        mem.untouched()
        c.close()
        until(lambda: self.i.ctl("status")["clients"] == 1, "the others to be gone", 10 * SCALE)


_rig = []


def rig():
    if not _rig:
        _rig.append(Rig())
    return _rig[0]


class hostile:
    """A client that does not behave; afterwards all is well."""

    def __init__(self, hello=True):
        self.r, self.hello = rig(), hello

    def __enter__(self):
        self.c = Client(self.r.i.shm, self.hello)
        return self.c

    def __exit__(self, etype, *_):
        self.c.close()
        if etype is None:
            self.r.well()


def child(run):
    """A process beside us that does this for ever, until stop(pid)."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(50 * SCALE))
        while True:
            run()
    finally:
        os._exit(0)


def stop(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def refused(says, what, *args, **kw):
    try:
        what(*args, **kw)
    except Refused as e:
        assert says in e.text, f"'{says}' is not in '{e.text}'"
        return e.code
    raise AssertionError(f"it was not refused: {says}")


# ---- indices ----

def broken_by(spoil, says):
    with hostile() as c:
        q, good, mem = c.queue(8), c.queue(8), c.memory(PAGE)
        assert q.io(READ, 1, 0, 8, [(mem.addr, PAGE)]) == 0
        spoil(q)
        q.kick()
        until(lambda: q.ended, "the queue to be ended", 10 * SCALE)
        m = c.receive() if not c.events else c.events.pop()
        assert m.op == EVENT and m.id == q.id and m.err < 0 and says in m.text, (m.op, m.id, m.text)
        assert good.io(READ, 1, 0, 8, [(mem.addr, PAGE)]) == 0, "another queue of the same client"
        q.free()
        assert c.queue(8).io(FLUSH, 1) == 0


def test_sq_tail_far_ahead_ends_that_queue_alone():
    broken_by(lambda q: q.put_word(SQ_TAIL, q.tail + 9), "sq_tail is more than entries ahead")


def test_sq_tail_that_goes_back_ends_that_queue_alone():
    broken_by(lambda q: q.put_word(SQ_TAIL, q.tail - 1), "sq_tail is more than entries ahead")


def test_sq_tail_half_way_round_ends_that_queue_alone():
    broken_by(lambda q: q.put_word(SQ_TAIL, q.tail + 0x80000000), "sq_tail is more than entries ahead")


def test_cq_head_ahead_of_cq_tail_ends_that_queue_alone():
    def spoil(q):
        q.put_word(CQ_HEAD, q.head + 1)
        q.put_word(SQ_TAIL, q.tail + 1)
    broken_by(spoil, "cq_head is not within entries")


def test_cq_head_far_behind_ends_that_queue_alone():
    def spoil(q):
        q.put_word(CQ_HEAD, q.head - 9)
        q.put_word(SQ_TAIL, q.tail + 1)
    broken_by(spoil, "cq_head is not within entries")


def test_words_that_are_the_daemons_are_not_read():
    with hostile() as c:
        q, mem, rng = c.queue(8), Guarded(c, [4096]), random.Random(1)
        for i in range(200):
            for at in (SQ_HEAD, SQ_NEED, CQ_NEED):
                q.put_word(at, rng.getrandbits(32))
            cid = q.submit(READ, 1, i, 8, mem.sg)
            q.put_word(SQ_HEAD, rng.getrandbits(32))
            tail = q.word(CQ_TAIL)
            assert tail - q.head in (0, 1), (tail, q.head)
            end = time.monotonic() + PATIENCE
            while cid not in q.reap():
                q.kick()
                assert time.monotonic() < end, f"command {i} has not ended"
                time.sleep(0.0005)
            assert q.done.pop(cid) == [0]
        mem.untouched()


def test_a_header_that_changes_later_changes_nothing():
    with hostile() as c:
        q, mem = c.queue(8), Guarded(c, [512, 3584])
        for fill in (0, 0xFFFFFFFF, 64, 4096):
            struct.pack_into("<6I", q.map, 0, *[fill] * 6)
            assert q.io(READ, 1, 0, 8, mem.sg) == 0
        mem.untouched()


# ---- lists and commands ----

def test_extents_that_are_not_memory_of_the_client_are_refused():
    with hostile() as c:
        a, b, q = Guarded(c, [4096]), Guarded(c, [4096]), c.queue(8, 1024)
        end = a.addr + a.size
        for addr, n in ((0, 4096), (a.addr - 1, 4096), (end - 4095, 4096), (end, 4096), (end + 4096, 4096),
                        (b.addr - 4096, 4096), ((1 << 64) - 1, 4096), ((1 << 64) - 4096, 4096), (1 << 63, 4096),
                        (a.addr + (1 << 32), 4096)):
            for op in (READ, WRITE, COMPARE):
                got = q.io(op, 1, 0, 8, [(addr, n)])
                assert got == 0x004, f"{addr:#x}+{n}: {got:03x}h"
                got = q.io(op, 1, 0, 16, [(a.addr, 4096), (addr, n)])
                assert got == 0x004, f"{addr:#x}+{n} as the second: {got:03x}h"
        a.note()  # all that was asked of it may be compared, nothing may be written
        assert a.map[:] == a.before and b.map[:] == b.before


def test_lists_that_cannot_be_end_with_their_status():
    with hostile() as c:
        q, mem = c.queue(8, 1024), Guarded(c, [8192])
        at, good = mem.sg[0][0], extent(mem.sg[0][0], 512)
        length = q.list_len
        for name, sgl, want in (
                ("behind the area", extent(length, 16, LAST_SEGMENT), 0x00D),
                ("over its end", extent(length - 16, 32, LAST_SEGMENT), 0x00D),
                ("at -16", extent((1 << 64) - 16, 32, LAST_SEGMENT), 0x00D),
                ("at 2^63", extent(1 << 63, 16, LAST_SEGMENT), 0x00D),
                ("of no length", extent(0, 0, LAST_SEGMENT), 0x00D),
                ("of 17 bytes", extent(0, 17, LAST_SEGMENT), 0x00D),
                ("of 4 GiB", extent(0, 0xFFFFFFF0, LAST_SEGMENT), 0x00D),
                ("of 1025", extent(0, 1025 * 16, LAST_SEGMENT), 0x00E),
                ("segment that is not the last", extent(0, 16, 0x20), 0x011),
                ("keyed", extent(at, 512, 0x40), 0x011),
                ("bit bucket", extent(at, 512, 0x10), 0x011),
                ("transport", extent(at, 512, 0x5A), 0x011),
                ("type ff", extent(at, 512, 0xFF), 0x011),
                ("short block", extent(at, 511), 0x00F),
                ("long block", extent(at, 513), 0x00F),
                ("no block", extent(at, 0), 0x00F)):
            q.raw(sqe(READ, 1, 7, sgl))
            got = q.wait(7)
            assert got == want, f"{name}: {got:03x}h, expected {want:03x}h"
        for name, inner, blocks, want in (
                ("a list in a list", [extent(0, 16, LAST_SEGMENT)], 1, 0x011),
                ("a list that is its own element", [good, extent(0, 32, LAST_SEGMENT)], 2, 0x011),
                ("too little", [good, extent(at, 511)], 2, 0x00F),
                ("too much", [good, good, good], 2, 0x00F),
                ("4 GiB four times", [extent(at, 0xFFFFFFFF)] * 4, 8, 0x00F),
                ("nothing", [extent(at, 0)] * 8, 1, 0x00F),
                ("nothing, then all", [extent(0, 0)] * 100 + [good], 1, 0),
                ("the same bytes 16 times", [good] * 16, 16, 0),
                ("1024 extents", [extent(at + i, 8) for i in range(1024)], 16, 0)):
            q.raw(sqe(READ, 1, 9, q.put_list(inner), 0, blocks))
            got = q.wait(9)
            assert got == want, f"{name}: {got:03x}h, expected {want:03x}h"
        mem.untouched()


def test_commands_that_cannot_be_end_with_their_status():
    with hostile() as c:
        q, mem, v = c.queue(8), Guarded(c, [512]), c.volume("mine")
        sg = extent(*mem.sg[0])
        for name, command, want in (
                ("nsid 0", sqe(READ, 0, 1, sg), 0x00B), ("nsid 65", sqe(READ, 65, 1, sg), 0x00B),
                ("nsid 4", sqe(READ, 4, 1, sg), 0x00B), ("nsid ffffffff", sqe(FLUSH, 0xFFFFFFFF, 1), 0x00B),
                ("the block behind the end", sqe(READ, 1, 1, sg, v.blocks), 0x080),
                ("across the end", sqe(WRITE_ZEROES, 1, 1, sg, v.blocks - 1, 2), 0x080),
                ("an LBA that wraps", sqe(READ, 1, 1, sg, (1 << 64) - 1), 0x080),
                ("an LBA that wraps in bytes", sqe(WRITE, 1, 1, sg, 1 << 55), 0x080),
                ("a discard of nothing", sqe(DSM, 1, 1, sg, 0, 1)[:48] + bytes(16), 0x002),
                ("a discard of everything and more", sqe(DSM, 1, 1)[:48] + b"\xff" * 16, 0x080),
                ("PRPs", sqe(READ, 1, 1, sg, flags=0), 0x002), ("fused", sqe(READ, 1, 1, sg, flags=0x41), 0x002),
                ("more than may be", sqe(READ, 1, 1, sg, 0, 0x10000), None)):
            q.raw(command)
            got = q.wait(1)
            assert got == want or want is None and got in (0x002, 0x00F), f"{name}: {got:03x}h"
        for opcode in set(range(256)) - {FLUSH, WRITE, READ, COMPARE, WRITE_ZEROES, DSM}:
            q.raw(sqe(opcode, 1, opcode, sg))
            assert q.wait(opcode) == 0x001, f"opcode {opcode:02x}h"
        assert mem.map[:] == mem.before


def test_a_ring_that_is_memory_too_is_refused():
    with hostile() as c:
        fd = memfd(1 << 16)
        os.pwrite(fd, struct.pack("<6I", 1, 8, 4096, 8192, 0, 0), 0)
        assert c.call(MEM_ADD, [fd], size=1 << 16).addr
        two = [os.eventfd(0), os.eventfd(0)]
        refused("cannot map the ring", c.call, QUEUE_ADD, [fd, *two], size=1 << 16)
        for f in (fd, *two):
            os.close(f)


# ---- commands that change while they are taken ----

def test_commands_and_lists_that_change_all_the_time_reach_nothing_else():
    with hostile() as c:
        q, mem, guard = c.queue(16, 16), Guarded(c, [16384]), Guarded(c, [1])
        base, rng = mem.sg[0][0], random.Random(os.getpid())
        lists = [bytes(b"".join(extent(base + rng.randrange(8000), n, t) for n, t in rows)) for rows in (
            [(512, 0)] * 8, [(4096, 0)] + [(0, 0)] * 7, [(0xFFFFFFFF, 0)] * 8, [(511, 0), (1, 0)] * 4,
            [(512, 0x30)] * 8)]
        sqes = [sqe(op, ns, 1, sgl, lba, n) for op in (READ, WRITE, COMPARE, FLUSH, 0x77) for ns, sgl, lba, n in (
            (1, extent(base, 4096), 0, 8), (1, extent(0, 128, LAST_SEGMENT), 8, 8), (0, extent(base, 1), 0, 1),
            (1, extent(0, 1 << 20, LAST_SEGMENT), 1 << 60, 8), (1, extent(1, 128, LAST_SEGMENT), 8, 16))]

        def scribble():
            for _ in range(64):
                at = q.sq_off + rng.randrange(16) * 64
                q.map[at:at + 64] = rng.choice(sqes)
                q.map[q.list_off:q.list_off + 128] = rng.choice(lists)

        pid = child(scribble)
        try:
            for i in range(600):
                q.tail += 1
                q.put_word(SQ_TAIL, q.tail)
                q.kick()
                if i % 8 == 7:
                    until(lambda: q.word(CQ_TAIL) == q.tail, "the commands to end", 20 * SCALE, 0.001)
                    q.head = q.tail
                    q.put_word(CQ_HEAD, q.head)
        finally:
            stop(pid)
        assert not q.ended, "what is in the commands may not break the queue"
        guard.untouched()
        mem.untouched()


def test_payload_that_changes_while_it_is_sent_makes_no_false_digest():
    with hostile() as c:
        r = rig()
        nsid, q = c.volume("digests").nsid, c.queue(16, 16)
        mem = Guarded(c, [3, 4093, 65536, 61440 - 7, 7])
        noise = [random.Random(i).randbytes(mem.size) for i in range(3)]

        def flicker():
            for n in noise:
                mem.map[:] = n

        before = len(r.digests.written)
        pid = child(flicker)
        try:
            for i in range(24):
                cids = [q.submit(WRITE, nsid, lba * 256, 256, mem.sg) for lba in range(4)]
                cids.append(q.submit(WRITE, nsid, 4096 + i * 8, 8, mem.sg[:2]))  # in the capsule
                assert not any([q.wait(cid) for cid in cids])
        finally:
            stop(pid)
        sent = sum(len(d) for _, d in r.digests.written[before:])
        assert sent == 24 * 4 * 131072, sent
        assert r.digests.bad_digests == 0, f"{r.digests.bad_digests} digests were false"
        assert not r.digests.problems, r.digests.problems


# ---- memory ----

def test_memory_that_could_be_cut_off_is_refused():
    with hostile() as c, tempfile.TemporaryFile() as f, socket.socket() as s:
        f.truncate(PAGE)
        r, w = os.pipe()
        for name, fd, size, says in (
                ("no seal", memfd(PAGE, 0), PAGE, "must be sealed with F_SEAL_SHRINK first"),
                ("another seal", memfd(PAGE, F_SEAL_GROW), PAGE, "must be sealed with F_SEAL_SHRINK first"),
                ("shorter than said", memfd(PAGE), 2 * PAGE, "less than was said"),
                ("of no size", memfd(PAGE), 0, "whole pages"),
                ("of half a page", memfd(PAGE), 2048, "whole pages"),
                ("of all addresses", memfd(PAGE), (1 << 64) - PAGE, "less than was said"),
                ("a file", f.fileno(), PAGE, "must be a memfd"), ("a socket", s.fileno(), PAGE, ""),
                ("a pipe", w, PAGE, ""), ("the null device", os.open("/dev/null", os.O_RDWR), PAGE, "must be a memfd"),
                ("not writable", memfd(PAGE, F_SEAL_SHRINK | F_SEAL_WRITE), PAGE, "cannot map the memory"),
                ("not writable from now on", memfd(PAGE, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE), PAGE, "cannot map")):
            refused(says, c.call, MEM_ADD, [fd], size=size)
            if name not in ("a file", "a socket"):
                os.close(fd)
        os.close(r)
        refused("one descriptor, not 0", c.call, MEM_ADD, size=PAGE)
        two = [memfd(PAGE), memfd(PAGE)]
        refused("one descriptor, not 2", c.call, MEM_ADD, two, size=PAGE)
        refused("no region begins", c.call, MEM_DEL, addr=1 << 32)


def test_holes_cannot_be_punched_into_memory_that_is_in_use():
    """A copy waits for each page that goes away under it, and so would everybody else on that reactor."""
    with hostile() as c:
        q, mem = c.queue(32), c.memory(1 << 20)
        for fd in (mem.fd, q.fd):
            assert LIBC.fallocate(fd, PUNCH_HOLE | KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(PAGE)) != 0
            assert LIBC.ftruncate(fd, ctypes.c_long(0)) != 0
        page = (ctypes.c_char * PAGE).from_buffer(mem.map)
        assert LIBC.madvise(ctypes.c_void_p(ctypes.addressof(page)), ctypes.c_long(PAGE), MADV_REMOVE) != 0
        del page
        assert q.io(READ, 1, 0, 256, [(mem.addr, 131072)]) == 0
        refused("cannot map the memory", c.call, MEM_ADD, [mem.fd], size=mem.size)
        refused("cannot map the memory", c.call, MEM_ADD, [q.fd], size=q.map.size())
        closed = memfd(PAGE, F_SEAL_SHRINK | F_SEAL_SEAL)
        refused("cannot seal the memory", c.call, MEM_ADD, [closed], size=PAGE)
        os.close(closed)


def test_memory_given_back_in_flight_is_kept_until_then_and_gone_afterwards():
    with hostile() as c:
        q = c.queue(64)
        for _ in range(10):
            mem = c.memory(1 << 20)
            cids = [q.submit(READ, 1, k * 256, 256, [(mem.addr + k * 131072, 131072)]) for k in range(8)]
            c.call(MEM_DEL, addr=mem.addr)
            mem.map.close()
            os.close(mem.fd)
            assert {q.wait(cid) for cid in cids} <= {0, 0x004}
            assert q.io(READ, 1, 0, 8, [(mem.addr, 4096)]) == 0x004
            refused("no region begins", c.call, MEM_DEL, addr=mem.addr)


def test_limits_refuse_what_is_too_much_and_end_nothing():
    with hostile() as c:
        regions = [c.memory(PAGE) for _ in range(256)]
        refused("256 regions already", c.memory, PAGE)
        queues = [c.queue(2, 4) for _ in range(64)]
        refused("64 queues already", c.queue, 2, 4)
        for q in queues[::7]:
            assert q.io(READ, 1, 0, 8, [(regions[-1].addr, PAGE)]) == 0
        for q in queues:
            q.free()
            for fd in (q.fd, q.kick_fd, q.wake_fd):
                os.close(fd)
        for m in regions:
            os.close(m.fd)
        assert c.queue(2, 4).io(FLUSH, 1) == 0


# ---- rings and eventfds ----

def test_rings_that_cannot_be_are_refused_with_a_sentence():
    with hostile() as c:
        for says, kw in (("ABI 2", {"abi": 2}), ("power of two", {"entries_": 3}), ("power of two", {"entries_": 0}),
                         ("power of two", {"entries_": 8192}), ("power of two", {"entries_": 0x80000000}),
                         ("sq_off", {"sq_off": 0}), ("sq_off", {"sq_off": 4100}), ("sq_off", {"sq_off": 0xFFFFFFC0}),
                         ("cq_off", {"cq_off": 4096}), ("cq_off", {"cq_off": 64}), ("list_off", {"list_off": 4096}),
                         ("list_off", {"list_len": 0xFFFFFFF0}), ("list_off", {"list_off": 0xFFFFFFC0}),
                         ("not the", {"size": 1 << 40}), ("not the", {"size": 4095}),
                         ("must be sealed", {"seals": 0}), ("cannot map", {"late": F_SEAL_FUTURE_WRITE})):
            header = {k.rstrip("_"): v for k, v in kw.items()}
            entries = header.pop("entries", None)
            refused(says, spoilt_queue, c, entries, header)
        three = [memfd(PAGE), os.eventfd(0), memfd(PAGE)]
        refused("must be eventfds", c.call, QUEUE_ADD, three, size=PAGE)
        refused("three descriptors, not 2", c.call, QUEUE_ADD, three[:2], size=PAGE)
        refused("there is no queue 77", c.call, QUEUE_DEL, id=77)
        for fd in three:
            os.close(fd)


def spoilt_queue(c, entries, header):
    if entries is None:
        return c.queue(8, **header)
    fd = memfd(1 << 16)
    os.pwrite(fd, struct.pack("<6I", 1, entries, 4096, 32768, 0, 0), 0)
    fds = [fd, os.eventfd(0), os.eventfd(0)]
    try:
        return c.call(QUEUE_ADD, fds, size=1 << 16)
    finally:
        for f in fds:
            os.close(f)


def test_eventfds_that_are_spoilt_hold_up_nobody():
    with hostile() as c:
        mem = Guarded(c, [4096])
        full = os.eventfd(0, 0)  # blocking, and nothing more fits into it
        os.eventfd_write(full, (1 << 64) - 2)
        counting = os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_NONBLOCK)
        os.eventfd_write(counting, 100000)
        both = os.eventfd(0, os.EFD_NONBLOCK)
        for kick, wake in ((None, full), (counting, None), (both, both), (None, counting)):
            q = c.queue(8, kick=kick, wake=wake)
            for i in range(30):
                q.put_word(CQ_NEED, 1)
                assert q.io(READ, 1, i, 8, mem.sg) == 0
            q.free()
        mem.untouched()


# ---- messages ----

def test_messages_of_another_size_end_the_connection():
    for n in (0, 1, 223, 225, 4096, 65536):
        with hostile() as c:
            c.send_raw(bytes(n)) if n else c.sock.shutdown(socket.SHUT_WR)
            try:
                assert c.sock.recv(MSG.size) == b""
            except ConnectionResetError:
                pass


def test_messages_before_hello_are_refused():
    for op in (VOLUME, MEM_ADD, MEM_DEL, QUEUE_ADD, QUEUE_DEL, EVENT, 0, 99, 0xFFFFFFFF):
        with hostile(hello=False) as c:
            refused("the first message must be hello", c.call, op)
    with hostile(hello=False) as c:
        refused("ABI 1, not 2", c.call, HELLO, abi=2)
    with hostile() as c:
        refused("hello was said already", c.call, HELLO)


def test_messages_with_too_many_descriptors_leak_none():
    r = rig()
    r.well()
    before = r.i.fds()
    for n in (1, 2, 4, 8, 64, 253):
        with hostile() as c:
            fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(n)]
            c.send(VOLUME, fds, name="mine")
            try:
                c.sock.recv(MSG.size)
            except ConnectionResetError:
                pass
            for fd in fds:
                os.close(fd)
    until(lambda: r.i.fds() <= before, f"descriptors to be {before} again", 10 * SCALE)


def test_random_messages_hurt_nobody():
    rng = random.Random(2026)
    for _ in range(20):
        with hostile(hello=rng.random() < 0.9) as c:
            try:
                for _ in range(50):
                    c.sock.settimeout(2 * SCALE)
                    c.send_raw(random_message(rng), random_fds(rng))
                    Message(c.sock.recv(MSG.size))
            except (ConnectionError, TimeoutError, struct.error):
                pass


def random_fds(rng):
    kept = _fds or _fds.extend([memfd(1 << 16), memfd(PAGE, 0), os.eventfd(0), os.eventfd(0, os.EFD_NONBLOCK)])
    return [rng.choice(kept or _fds) for _ in range(rng.choice((0, 0, 1, 2, 3, 3, 3, 5)))]


_fds = []


def random_message(rng):
    def word(bits):
        return rng.choice((0, 1, PAGE, 1 << 16, 1 << 32, (1 << bits) - 1, rng.getrandbits(bits))) & (1 << bits) - 1
    name = bytes(rng.choice(b"mineother%s\n\0\xff/") for _ in range(rng.choice((0, 4, 64))))
    if rng.random() < 0.3:
        name = b"mine"
    return struct.pack("<IiQQII64s128s", rng.randrange(9), word(31), word(64), word(64), word(32), 1,
                       name, rng.randbytes(128))


def test_a_client_that_reads_no_replies_waits_alone():
    with hostile() as c:
        c.sock.settimeout(0.2)
        try:
            for _ in range(5000):
                c.send(VOLUME, name="mine")
        except (TimeoutError, BlockingIOError):
            pass


def test_events_and_replies_do_not_mix():
    """Queues break while requests are on their way: one reply to each request, one event for each queue."""
    with hostile() as c:
        for _ in range(40):
            queues, names = [c.queue(2, 4) for _ in range(8)], ["mine", "digests"] * 10
            for n, name in enumerate(names):
                if n % 2 == 0 and n // 2 < len(queues):
                    queues[n // 2].put_word(SQ_TAIL, 77)
                    queues[n // 2].kick()
                c.send(VOLUME, name=name)
            got = [c.receive() for _ in range(len(names) + len(queues))]
            assert [m.name for m in got if m.op == VOLUME] == names, [(m.op, m.name, m.id) for m in got]
            assert sorted(m.id for m in got if m.op == EVENT) == [q.id for q in queues], [(m.op, m.id) for m in got]
            for q in queues:
                q.free()
                for fd in (q.fd, q.kick_fd, q.wake_fd):
                    os.close(fd)


# ---- all at once ----

def test_a_thousand_random_commands_end_once_each():
    rng = random.Random(4711)
    with hostile() as c:
        q, mem, guard = c.queue(64, 64), Guarded(c, [65536, 65536]), Guarded(c, [1])
        statuses = {}
        for _ in range(1000):
            q.raw(random_command(rng, q, mem))
            if rng.random() < 0.2:
                drain(q, statuses)
        drain(q, statuses)
        assert sum(statuses.values()) == 1000, statuses
        assert len(statuses) > 6 and statuses[0] > 20, f"the commands are not varied: {statuses}"
        guard.untouched()
        mem.untouched()


def drain(q, statuses):
    until(lambda: q.word(CQ_TAIL) == q.tail or q.ended, "all to end", 20 * SCALE, 0.001)
    assert not q.ended
    for got in q.reap().values():
        for s in got:
            statuses[s] = statuses.get(s, 0) + 1
    q.done.clear()


def random_command(rng, q, mem):
    """Mostly good, with a few things wrong; on disks that are ours only."""
    blocks = rng.choice((1, 1, 8, 64, 128))
    left, rows = blocks * 512, []
    while left and len(rows) < 63:
        n = min(left, rng.choice((1, 7, 512, 4096, left)))
        at, room = rng.choice(mem.spans)
        rows.append([mem.addr + at + rng.randrange(max(1, room - n)), n, DATA_BLOCK])
        left -= n
    if rng.random() < 0.25:
        rows[rng.randrange(len(rows))][rng.randrange(3)] = rng.choice(
            (0, 1, 0x30, 0xFF, 0x7FFFFFFF, mem.addr - 1)) & 0xFFFFFFFF
        rows = [[a, n & 0xFFFFFFFF, t & 0xFF] for a, n, t in rows]
    sgl = q.put_list([extent(*row) for row in rows])
    command = bytearray(sqe(rng.choice((READ, WRITE, READ, WRITE, COMPARE, FLUSH, WRITE_ZEROES, DSM)), 1,
                            rng.getrandbits(16), sgl, rng.choice((0, 5, 1 << 16, 131072 - 64)), blocks))
    if rng.random() < 0.3:
        at = rng.choice([0, 1, 4, *range(24, 52)])
        command[at] = rng.getrandbits(8)
    if command[4] in (2, 3):  # the honest client's
        command[4] = 0
    return bytes(command)


def test_clients_that_are_killed_in_flight_leave_nothing_behind():
    r = rig()
    r.well()
    before = r.i.fds()

    def work():
        c = Client(r.i.shm)
        q, mem = c.queue(64), c.memory(4 << 20)
        while True:
            for k in range(32):
                q.submit((READ, WRITE)[k & 1], 1, k * 256, 256, [(mem.addr + k * 131072, 131072)])
            while len(q.reap()) < 16:
                time.sleep(0.001)
            q.done.clear()

    for i in range(12):
        pid = child(work)
        until(lambda: r.i.ctl("status")["clients"] == 2, "the client", 10 * SCALE)
        time.sleep(0.01 * (i % 4))
        stop(pid)
    r.well()
    until(lambda: r.i.fds() <= before, f"descriptors to be {before} again", 10 * SCALE)
    until(lambda: not r.i.ctl("grants")["grants"] or r.perf.poll() is None, "the grants to end", 5 * SCALE)


def test_the_honest_client_has_noticed_nothing():
    r = rig()
    r.well()
    until(lambda: r.i.ctl("stats")["volumes"][1]["reads"] > 500, "some load", 20 * SCALE)
    r.perf.send_signal(signal.SIGINT)
    out, err = r.perf.communicate(timeout=20 * SCALE)
    assert r.perf.returncode == 0 and "Sanitizer" not in err, err
    result = json.loads(out)
    assert result["errors"] == 0, result
    stats = r.i.ctl("stats")
    assert not any(v["count"] for v in stats["violations"]), stats["violations"]
    assert stats["volumes"][1]["errors"] == 0, stats["volumes"][1]


main(globals())
