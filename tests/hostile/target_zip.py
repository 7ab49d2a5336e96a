#!/usr/bin/env python3
"""A hostile target of a compressed volume: what its frames and lengths do to the command they are for, and to
nothing else. Each row answers one compressed read; the next one is honest, and must be right."""
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import zframe
from controller import *
from initiator import Initiator
from runner import main, until
from rawshm import Client, Guarded
from wire import *

TRANSFER_ERROR = 0x004
SIZES = [1, 4095, 777, 2000, 512, 3, 8996]
SIZE = sum(SIZES)
CAPS = {3072: struct.pack("<16sBbxxI", b"SluiceCompress", 1, 9, 128 << 10)}


def text(n):
    return (b"what compresses, and comes again " * (n // 33 + 1))[:n]


def honest(link, c):
    frame = zframe.pack(link.ctrl.blocks(c))
    link.send(link.c2h_pdu(c.cid, 0, frame, last=True) + link.resp_pdu(c.cid, dw0=len(frame)))


def answers(data, dw0=None):
    """A row that ends in good order: these bytes, and what the completion tells of them."""
    def evil(link, c):
        made = data(link.ctrl.blocks(c))
        link.send(link.c2h_pdu(c.cid, 0, made, last=True) + link.resp_pdu(c.cid, dw0=len(made) if dw0 is None else dw0))
    return evil


def stored(blocks):
    return [zframe.compress(blocks[i:i + BLOCK]) for i in range(0, len(blocks), BLOCK)]


BAD = {
    "zeroes": lambda b: bytes(100),
    "one byte": lambda b: b"S",
    "the blocks themselves": lambda b: b,
    "a frame that is cut": lambda b: zframe.pack(b)[:-1],
    "a frame that is longer": lambda b: zframe.pack(b) + b"\0",
    "fewer blocks": lambda b: zframe.pack(b[:-BLOCK]),
    "other block size": lambda b: zframe.pack(b, shift=12),
    "a bomb": lambda b: zframe.build([zframe.compress(bytes(1 << 20))] + stored(b)[1:]),
    "a bomb behind good blocks": lambda b: zframe.build(stored(b)[:-1] + [zframe.compress(bytes(1 << 24))]),
    "a short block": lambda b: zframe.build([zframe.compress(b[:511])] + stored(b)[1:]),
    "lengths that lie": lambda b: zframe.build(stored(b), lengths=[511] * (len(b) // BLOCK)),
    "noise in a frame": lambda b: zframe.build([bytes(range(40))] * (len(b) // BLOCK)),
}


def half(data):
    return data[:len(data) // 2 // 4 * 4]


def data_behind_the_last(link, c):
    frame = zframe.pack(link.ctrl.blocks(c))
    link.send(link.c2h_pdu(c.cid, 0, half(frame), last=True) + link.c2h_pdu(c.cid, len(half(frame)), b"\xee" * 64))


def frame_without_the_last_flag(link, c):
    frame = zframe.pack(link.ctrl.blocks(c))
    link.send(link.c2h_pdu(c.cid, 0, frame) + link.resp_pdu(c.cid, dw0=len(frame)))


def frame_with_the_success_flag(link, c):
    link.c2h(c.cid, 0, zframe.pack(link.ctrl.blocks(c)), last=True, success=True)


def frame_behind_the_end(link, c):
    link.c2h(c.cid, 0, b"\xee" * (c.len + 4), last=True)


VIOLATIONS = {
    "a length that is longer than what came": ("short", answers(zframe.pack, 4000)),
    "a length of all, and only a frame": ("short", answers(zframe.pack, 0)),
    "no data": ("short", lambda link, c: link.resp(c.cid, dw0=100)),
    "data behind the last": ("pdu", data_behind_the_last),
    "a frame without the last flag": ("short", frame_without_the_last_flag),
    "a frame with the success flag": ("short", frame_with_the_success_flag),
    "more than was granted": ("range", frame_behind_the_end),
}


class World:
    """A controller, a compressed volume on it, a client with guarded memory."""

    def __init__(self):
        Link.do_zip_read = honest
        self.ctrl = Controller("nqn.2026-11.io.sluice:zip", ctrl_fields=CAPS)
        self.ctrl.disk[:] = text(len(self.ctrl.disk))
        self.i = Initiator({"hosts": hosts_json(self.ctrl.entry()),
                            "volumes": [{"name": "v", "members": [{"nqn": self.ctrl.nqn, "nsid": 1}],
                                         "stages": [{"compress": "zstd"}]}],
                            "vms": [{"name": "me", "uid": os.getuid(), "disks": ["v"]}]})
        until(lambda: self.i.state("v") == "ready", "ready", 20)
        self.client = Client(self.i.shm)
        self.q = self.client.queue()
        self.nsid = self.client.volume("v").nsid

    def read(self, evil=None):
        """Reads the same blocks into memory of random bytes; the status."""
        m = Guarded(self.client, SIZES, 1)
        if evil:
            self.ctrl.arm("zip_read", evil)
        status = self.q.io(READ, self.nsid, 8, SIZE // BLOCK, m.sg)
        m.untouched()
        if not evil:
            assert m.data == bytes(self.ctrl.disk[8 * BLOCK:8 * BLOCK + SIZE]), "other bytes were read"
        return status

    def counted(self):
        stats = self.i.ctl("stats")
        return stats["volumes"][0]["compression"]["bad_frames"], {v["kind"]: v["count"] for v in stats["violations"]}


world = Once(World)


def test_honest_frames_and_blocks_are_read():
    w = world()
    assert w.read() == 0
    assert w.read(answers(lambda b: b, 0)) == 0
    assert w.counted()[0] == 0


def test_a_bad_frame_ends_its_command_alone():
    w = world()
    accepted = w.ctrl.accepted
    for n, (name, data) in enumerate(BAD.items(), 1):
        status = w.read(answers(data))
        assert status & 0x7ff == TRANSFER_ERROR, (name, hex(status))
        assert w.counted()[0] == n, name
        assert w.read() == 0, name
    assert w.ctrl.accepted == accepted, "a connection was lost"
    assert not any(w.counted()[1].values()), w.counted()


def test_a_length_that_is_not_what_came_is_a_violation():
    w = world()
    for name, (kind, evil) in VIOLATIONS.items():
        before = w.counted()[1].get(kind, 0)
        status = w.read(evil)
        assert status & 0x7ff == TRANSFER_ERROR, (name, hex(status))
        assert w.counted()[1][kind] == before + 1, (name, kind, w.counted())
        assert w.read() == 0, name


def test_the_scripted_target_had_nothing_to_complain_of():
    w = world()
    assert not w.ctrl.problems, w.ctrl.problems
    problem = w.i.stop()
    assert not problem, problem
    w.ctrl.close()


if __name__ == "__main__":
    main(globals())
