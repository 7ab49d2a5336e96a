#!/usr/bin/env python3
"""A queue: SQHD, command identifiers, overrun, Disconnect, number of queues."""
import os
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from nvmetcp import *
target = Shared(lambda: Target(config({1: "ram:16M"})))


def test_sqhd_counts_capsules_modulo_the_queue_size():
    """Whether Connect, which makes the queue, was in it is the controller's choice."""
    host = Host(target())
    for sqsize in (1, 2, 7, 31):
        io = host.io(sqsize=sqsize)
        first = io.ok(FLUSH, 1).sqhd
        assert first in (1, 2 % (sqsize + 1)), first
        for n in range(1, 3 * (sqsize + 1)):
            cqe = io.ok(FLUSH, 1)
            assert cqe.sqhd == (first + n) % (sqsize + 1), (sqsize, n, cqe)
            assert cqe.sqid == 0 or cqe.sqid == io.qid
    host.close()


def test_sqhd_of_the_connect_response_counts_connect():
    conn = Conn(target().addr)
    conn.handshake()
    cqe = conn.connect(target().nqn)
    assert cqe.sqhd in (0, 1), cqe
    conn.close()


def test_sqhd_on_the_admin_queue_moves():
    host = Host(target())
    first = host.admin.keep_alive().sqhd
    for n in range(1, 70):
        assert host.admin.keep_alive().sqhd == (first + n) % 32
    host.close()


def test_cids_may_have_any_value():
    host = Host(target())
    io = host.io()
    for cid in (0, 1, 31, 32, 0x1000, 0x7FFF, 0x8000, 0xF01F, 0xFFFE):
        assert io.ok(FLUSH, 1, cid=cid).cid == cid
        assert io.wait(io.rw(READ, 0, 1, read=io.bs, cid=cid)).cid == cid
    host.close()


def test_cid_in_use_is_a_conflict_or_both_end():
    """A target may ignore it, but each capsule gets one answer and the queue lives."""
    host = Host(target())
    io = host.io()
    data = pattern(1, 8 * io.bs)
    first = io.rw(WRITE, 0, 8, data=data, mode="r2t", hold=True, cid=5)
    r2t = io.next_r2t()
    io.send(io.submit(FLUSH, 1, cid=5, send=False))
    p = io.recv_pdu()
    assert p.type == RESP and p.cqe.cid == 5 and p.cqe.status in (0, SC_CID), p
    io.answer(r2t)
    assert io.wait(first).status == 0
    assert io.read(0, 8) == data
    host.close()


def test_queue_full_to_its_size_is_served():
    host = Host(target())
    for sqsize in (1, 3, 31, 127):
        io = host.io(sqsize=sqsize)
        commands = [io.rw(READ, i, 1, read=io.bs) for i in range(sqsize)]
        for c in commands:
            assert io.wait(c).status == 0
    host.close()


def test_queue_overrun_by_the_host_ends_that_connection_only():
    with Bystander(target()):
        host = Host(target())
        io = host.io(sqsize=3)
        for _ in range(4):
            io.rw(WRITE, 0, 8, data=bytes(8 * io.bs), mode="r2t", hold=True)
        try:
            for _ in range(60):
                io.rw(WRITE, 0, 8, data=bytes(8 * io.bs), mode="r2t", hold=True)
        except Closed:
            pass
        io.expect_closed_after_faults()
        host.close()


def test_queue_of_a_host_that_sends_on_without_reading_is_served_or_ended():
    """The target cannot know which answers were read; its slots are bounded all the same."""
    with Bystander(target(), slba=8192):
        host = Host(target(), rcvbuf=65536)
        io = host.io(sqsize=3)
        n = (256 << 10) // io.bs
        flight = [io.rw(READ, 0, n, read=n * io.bs) for _ in range(40)]
        time.sleep(0.2)
        try:
            for c in flight[:3]:
                assert io.wait(c, 20 * SCALE).status == 0
        except Closed:
            pass
        host.close()


def test_queue_of_a_host_that_is_gone_ends_at_once_whatever_it_had_sent():
    """All slots are taken by answers that nobody reads, so nothing is received that could tell."""
    host = Host(target(), rcvbuf=65536)
    io = host.io(sqsize=3)
    n = (256 << 10) // io.bs
    for _ in range(40):
        io.rw(READ, 0, n, read=n * io.bs)
    time.sleep(0.2)
    io.reset()
    until(lambda: not any(c["qid"] == 1 for c in target().ctl("connections")), "the queue ends")
    host.close()


def test_queues_up_to_the_granted_number_can_be_connected():
    host = Host(target(), queues=128)
    assert 1 <= host.granted <= 128
    ios = [host.io() for _ in range(host.granted)]
    for i, io in enumerate(ios):
        io.write(i * 8, pattern(i, io.bs))
    for i, io in enumerate(ios):
        assert ios[-1 - i].read(i * 8) == pattern(i, io.bs)
    host.close()


def test_number_of_queues_request_is_bounded_and_zero_based():
    host = Host(target(), queues=0)
    got = host.admin.set_feature(7, 0xFFFEFFFE)
    assert got.status == 0 and got.dw0 & 0xFFFF <= 127 and got.dw0 >> 16 <= 127, got
    got = host.admin.set_feature(7, 0)
    assert got.status == 0 and got.dw0 & 0xFFFF == 0, got
    assert host.admin.get_feature(7).dw0 & 0xFFFF == 0
    host.admin.fails(SC_FIELD, ADM_SET_FEATURES, cdw10=7, cdw11=0xFFFFFFFF)
    host.admin.fails(SC_FIELD, ADM_SET_FEATURES, cdw10=7, cdw11=0x0000FFFF)
    host.close()


def test_number_of_queues_after_an_io_queue_is_a_sequence_error():
    host = Host(target())
    host.io()
    host.admin.fails(SC_SEQUENCE, ADM_SET_FEATURES, cdw10=7, cdw11=0x00010001, dnr=None)
    host.close()


def test_unknown_opcodes_are_invalid_opcode():
    host = Host(target())
    io = host.io()
    for opcode in (0x03, 0x07, 0x0A, 0x10, 0x18, 0x20, 0x40, 0x80, 0x83, 0xFF, 0x7C):
        io.fails(SC_OPCODE, opcode, 1)
    for opcode in (0x00, 0x01, 0x04, 0x05, 0x03, 0x07, 0x7C, 0xC0, 0xFF):
        host.admin.fails(SC_OPCODE, opcode)
    io.read(0, 1)
    host.close()


def test_fuse_on_admin_commands_is_invalid_field():
    host = Host(target())
    for fuse in (1, 2, 3):
        host.admin.fails((SC_FIELD, SC_FUSED_MISSING), ADM_KEEP_ALIVE, fuse=fuse, dnr=None)
    host.close()


def disconnect(io, recfmt=0):
    return io.submit(fabrics(FC_DISCONNECT, struct.pack("<H", recfmt)))


def test_disconnect_is_offered_and_ends_the_queue():
    host = Host(target())
    offered = host.ctrl[1804] & 1
    io, other = host.io(1, cattr=8), host.io(2, cattr=8)
    command = disconnect(io)
    cqe = io.wait(command)
    if not offered:
        assert cqe.status in (SC_OPCODE, SC_FIELD), cqe
        return
    assert cqe.status == 0, cqe
    io.expect_closed()
    other.read(0, 1)
    host.admin.keep_alive()
    host.queues.pop(1)
    until(lambda: host.io(1), "the queue id is free again").read(0, 1)
    host.close()


def test_disconnect_ends_outstanding_commands_first():
    host = Host(target())
    if not host.ctrl[1804] & 1:
        raise Skip("Disconnect is not offered")
    io = host.io(cattr=8)
    waiting = [io.rw(WRITE, 0, 8, data=bytes(8 * io.bs), mode="r2t", hold=True)
               for _ in range(4)]
    for _ in waiting:
        io.next_r2t()
    for c in waiting:
        c.r2ts.clear()
    command = disconnect(io)
    try:
        cqe = io.wait(command)
        assert cqe.status == 0, cqe
        for c in waiting:
            assert c.cqe is not None and c.cqe.status in (SC_SQ_DELETED, SC_ABORTED), c.cqe
    except Closed:
        pass
    io.expect_closed()
    host.close()


def test_disconnect_waits_for_what_is_with_the_backend():
    with Target(config(), start=False) as t:
        t.add_file(1)
        t.start()
        for _ in range(5):
            host = Host(t)
            if not host.ctrl[1804] & 1:
                raise Skip("Disconnect is not offered")
            io = host.io(cattr=8, sqsize=63)
            n = (1 << 20) // io.bs
            flight = [io.rw(READ, 0, n, read=1 << 20) for _ in range(8)]
            command = disconnect(io)
            cqe = io.wait(command, 10 * SCALE)
            assert cqe.status == 0 and all(c.cqe is not None for c in flight), "not the last one"
            assert all(c.cqe.status in (0, SC_SQ_DELETED, SC_ABORTED) for c in flight)
            io.expect_closed()
            host.close()


def test_disconnect_of_a_slow_reader_loses_nothing_that_was_read_for_it():
    with Bystander(target(), slba=8192):
        host = Host(target(), rcvbuf=65536)
        if not host.ctrl[1804] & 1:
            raise Skip("Disconnect is not offered")
        io = host.io(cattr=8, sqsize=31)
        n = (1 << 20) // io.bs
        flight = [io.rw(READ, 0, n, read=1 << 20) for _ in range(8)]
        time.sleep(0.3)
        command = disconnect(io)
        time.sleep(2.5)
        assert io.wait(command, 10 * SCALE).status == 0
        assert all(c.cqe and c.cqe.status in (0, SC_SQ_DELETED, SC_ABORTED) for c in flight)
        assert any(c.cqe.status == 0 for c in flight)
        host.close()


def test_disconnect_with_a_wrong_recfmt_is_incompatible_format():
    host = Host(target())
    if not host.ctrl[1804] & 1:
        raise Skip("Disconnect is not offered")
    io = host.io(cattr=8)
    cqe = io.wait(disconnect(io, 1))
    assert cqe.status == SC_FMT and cqe.dnr, cqe
    io.read(0, 1)
    host.close()


def test_disconnect_on_the_admin_queue_is_invalid_queue_type():
    host = Host(target())
    cqe = host.admin.wait(disconnect(host.admin))
    assert cqe.status in (SC_QTYPE, SC_OPCODE) and cqe.dnr, cqe
    host.admin.keep_alive()
    host.close()


def test_admin_opcodes_on_an_io_queue_are_not_admin_commands():
    host = Host(target())
    io = host.io()
    cqe = io.cmd(ADM_KEEP_ALIVE)
    assert cqe.status == SC_OPCODE, cqe
    host.close()


main(globals())
