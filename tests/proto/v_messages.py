#!/usr/bin/env python3
"""vhost-user-blk: every message, in and out of order, whole and in pieces, with and without descriptors."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from daemon import Shared
from runner import main, until
from vhost import *

world = Shared(lambda: World(disks=2, queues=4))
U64, STATE = struct.Struct("<Q"), struct.Struct("<II")


def fresh(protocol=None, acks=False):
    """Connected, protocol features taken, nothing else."""
    m = world().master()
    offered = m.ask(GET_PROTOCOL_FEATURES)
    m.set_protocol((offered if protocol is None else protocol) & ~(0 if acks else P_REPLY_ACK))
    m.acks = acks
    return m


def beside():
    d = world().disk(1)
    data = os.urandom(512)
    d.write(1, data)
    assert d.read(1, 512) == data
    d.close()


def test_features_are_offered_as_the_disk_has_them():
    m = world().master()
    f = m.features()
    for bit in 1, 2, 6, 9, 10, 11, 12, 13, 14, 28, 29, 30, 32, 34:
        assert f >> bit & 1, f"bit {bit} is not offered"
    for bit in 0, 4, 5, 7, 15, 16, 17, 26, 33, 35, 36, 40:
        assert not f >> bit & 1, f"bit {bit} is offered"
    p = m.ask(GET_PROTOCOL_FEATURES)
    for bit in 0, 3, 5, 9, 12, 13, 15, 16:
        assert p >> bit & 1, f"protocol feature {bit} is not offered"
    for bit in 1, 2, 4, 6, 7, 8, 10, 11, 14, 17, 18, 19, 20, 21:
        assert not p >> bit & 1, f"protocol feature {bit} is offered"
    m.close()


def test_features_that_were_not_offered_are_refused():
    for mid, value in (SET_FEATURES, 1 << 33), (SET_FEATURES, (1 << 64) - 1), (SET_FEATURES, 1 << 26), \
            (SET_PROTOCOL_FEATURES, 1 << 8), (SET_PROTOCOL_FEATURES, (1 << 64) - 1):
        m = fresh()
        m.u64(mid, value)
        m.gone()
    beside()


def test_every_message_is_acknowledged_when_that_was_asked_for_and_only_then():
    d = world().disk(acks=True)  # all of set-up was acknowledged
    d.state(SET_VRING_ENABLE, 0, 1)
    d.acks = False
    for mid, payload in (SET_VRING_ENABLE, STATE.pack(0, 1)), (SET_OWNER, b""), (RESET_OWNER, b""), \
            (SET_STATUS, U64.pack(15)):
        d.send(mid, payload)
    d.quiet()
    # a reply of its own is not followed by another
    d.send(GET_FEATURES, b"", (), VERSION | NEED_REPLY)
    d.recv(GET_FEATURES)
    d.quiet()
    d.close()
    d = world().disk(acks=False)
    d.send(SET_VRING_ENABLE, STATE.pack(0, 1), (), VERSION | NEED_REPLY)  # not negotiated
    d.quiet()
    assert d.ask(GET_QUEUE_NUM) == 4
    d.io(T_FLUSH)
    d.close()


def test_the_configuration_is_that_of_the_volume():
    m = fresh()
    c = m.get_config(60)
    capacity, size_max, seg_max = struct.unpack_from("<QII", c)
    blk, = struct.unpack_from("<I", c, 20)
    wce, queues = c[32], struct.unpack_from("<H", c, 34)[0]
    discard = struct.unpack_from("<III", c, 36)
    zeroes = struct.unpack_from("<II", c, 48)
    assert capacity == 2 * 16 * MIB // 512 and seg_max == 126 and size_max >= 1 << 20
    assert blk == 512 and queues == m.ask(GET_QUEUE_NUM) == 4
    assert discard[0] > 0 and discard[1] == 16 and discard[2] == 1 and zeroes[0] > 0 and zeroes[1] == 16
    assert c[56] == 1 and wce in (0, 1)
    assert struct.unpack_from("<H", c, 26)[0] == 64  # a stripe block
    assert struct.unpack_from("<I", c, 28)[0] == 128  # a stripe
    for off, size in (0, 8), (20, 4), (0, 256), (255, 1), (100, 156), (32, 1):
        want = (c + bytes(256))[off:off + size]
        assert m.get_config(size, off) == want, (off, size)
    m.close()


def test_odd_sizes_of_the_configuration_get_an_empty_reply():
    m = fresh()
    for off, size, payload in [(0, 0, b""), (0, 257, bytes(256)), (256, 1, b"\0"), (0xFFFFFFFF, 4, bytes(4)),
                               (4, 0xFFFFFFFF, bytes(4)), (0, 8, bytes(4)), (0, 4, bytes(8)), (200, 57, bytes(57))]:
        m.send(GET_CONFIG, struct.pack("<III", off, size, 0) + payload)
        assert m.recv(GET_CONFIG)[0] == b"", (off, size)
    assert len(m.get_config(60)) == 60
    m.close()


def test_the_cache_mode_can_be_written_and_nothing_else():
    d = world().disk()
    before = d.get_config(72)
    for off in range(72):
        if off != 32:
            d.set_config(off, b"\xff")
    assert d.get_config(72) == before
    for value in 0, 1, 0:
        d.set_config(32, bytes([value]))
        assert d.get_config(1, 32) == bytes([value])
        d.write(9, pattern(512, value))
        assert world().flat(0, 9 * 512, 512) == pattern(512, value)
    d.close()


def test_unknown_messages_end_the_connection():
    for mid in 0, 6, 7, 19, 20, 22, 23, 26, 27, 28, 29, 30, 33, 35, 41, 42, 255, 0x7FFFFFFF, 0xFFFFFFFF:
        m = fresh()
        m.send(mid, U64.pack(0))
        m.gone()
    beside()


def test_wrong_versions_and_replies_end_the_connection():
    for flags in 0, 2, 3, VERSION | REPLY, VERSION | 16, 0xFFFFFFF1:
        m = fresh()
        m.send(GET_FEATURES, b"", (), flags)
        m.gone()


SIZES = {GET_FEATURES: 0, SET_FEATURES: 8, SET_OWNER: 0, RESET_OWNER: 0, SET_MEM_TABLE: 72,
         SET_VRING_NUM: 8, SET_VRING_ADDR: 40, SET_VRING_BASE: 8, GET_VRING_BASE: 8, SET_VRING_KICK: 8,
         SET_VRING_CALL: 8, SET_VRING_ERR: 8, GET_PROTOCOL_FEATURES: 0, SET_PROTOCOL_FEATURES: 8,
         GET_QUEUE_NUM: 0, SET_VRING_ENABLE: 8, SET_BACKEND_REQ_FD: 0, SET_CONFIG: 13,
         GET_INFLIGHT_FD: 24, SET_INFLIGHT_FD: 24, RESET_DEVICE: 0, GET_MAX_MEM_SLOTS: 0, ADD_MEM_REG: 40,
         REM_MEM_REG: 40, SET_STATUS: 8, GET_STATUS: 0}


def test_payloads_of_a_wrong_size_end_the_connection():
    for mid, size in SIZES.items():
        for wrong in {size - 1, size + 1, size + 4096, 0xFFFFFFFF, 0 if size else 1} - {size}:
            if wrong < 0 or mid == SET_CONFIG and wrong == 12 or \
                    mid in (GET_INFLIGHT_FD, SET_INFLIGHT_FD) and wrong == 23:
                continue  # these may be
            m = fresh()
            m.send(mid, bytes(min(wrong, 8192)), (), VERSION, wrong)
            m.gone()
    beside()


def test_too_many_and_too_few_descriptors_end_the_connection_and_none_is_kept():
    fds = [os.eventfd(0) for _ in range(40)]
    none = {SET_MEM_TABLE, SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR, REM_MEM_REG}
    fresh().close()
    until(lambda: world().initiator.ctl("status"), "it settles")
    before = world().initiator.fds()
    for mid, size in SIZES.items():
        for n in 1, 2, 8, 9, 40:
            if n == 1 and mid in none | {SET_BACKEND_REQ_FD, SET_INFLIGHT_FD, ADD_MEM_REG}:
                continue
            m = fresh()
            m.send(mid, bytes(size), fds[:n])
            m.gone()
    for mid in SET_BACKEND_REQ_FD, SET_INFLIGHT_FD, ADD_MEM_REG:
        m = fresh()
        m.send(mid, bytes(SIZES[mid]))
        m.gone()
    for mid in SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR:
        for value, n in (0, 0), (NO_FD, 1), (512, 1), (1 << 32, 1), (200, 1), (4, 1):
            m = fresh()
            m.send(mid, U64.pack(value), fds[:n])
            m.gone()
    # what comes with the payload instead of the header is not wanted either
    m = fresh()
    m.send_raw(struct.pack("<III", SET_FEATURES, VERSION, 8))
    m.send_raw(U64.pack(0), fds[:3])
    m.ask(GET_FEATURES)
    m.close()
    for fd in fds:
        os.close(fd)
    until(lambda: world().initiator.fds() <= before, f"descriptors go, there were {before}")
    beside()


def test_what_is_no_eventfd_is_refused():
    r, w = os.pipe()
    regular = os.memfd_create("x")
    for mid in SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR:
        for fd in r, w, regular:
            m = fresh()
            m.u64(mid, 0, [fd])
            m.gone()
    for fd in r, w, regular:
        os.close(fd)


def test_messages_may_come_in_pieces_and_many_at_once():
    m = fresh()
    for byte in struct.pack("<III", GET_FEATURES, VERSION, 0):
        m.send_raw(bytes([byte]))
    m.recv(GET_FEATURES)
    for byte in struct.pack("<III", SET_VRING_NUM, VERSION, 8) + STATE.pack(0, 64):
        m.send_raw(bytes([byte]))
    one = struct.pack("<III", GET_QUEUE_NUM, VERSION, 0)
    m.send_raw(one * 100)
    for _ in range(100):
        assert m.recv(GET_QUEUE_NUM)[0] == U64.pack(4)
    m.close()


def test_a_message_that_ends_early_ends_the_connection():
    whole = struct.pack("<III", SET_VRING_NUM, VERSION, 8) + STATE.pack(0, 64)
    for n in 1, 11, 12, 13, 19:
        m = fresh()
        m.send_raw(whole[:n])
        m.sock.shutdown(socket.SHUT_WR)
        m.gone()
    beside()


def test_messages_of_features_that_were_not_taken_end_the_connection():
    for mid, size in (GET_QUEUE_NUM, 0), (GET_INFLIGHT_FD, 24), (RESET_DEVICE, 0), (GET_MAX_MEM_SLOTS, 0), \
            (SET_STATUS, 8), (GET_STATUS, 0), (SET_CONFIG, 13):
        m = fresh(protocol=0)
        m.send(mid, bytes(size))
        m.gone()


def test_rings_beyond_the_device_are_refused():
    for mid in SET_VRING_NUM, SET_VRING_BASE, GET_VRING_BASE, SET_VRING_ENABLE:
        for index in 4, 64, 255, 0xFFFFFFFF:
            m = fresh()
            m.send(mid, STATE.pack(index, 1))
            m.gone()
    m = fresh()
    m.vring_addr(4, 0, 0, 0)
    m.gone()


def test_messages_out_of_order_neither_start_a_ring_nor_harm():
    """Each ring message alone, before everything else; then all backwards; then it works."""
    efd = os.eventfd(0)
    for mid, payload, fds in [(SET_VRING_ENABLE, STATE.pack(0, 1), ()), (SET_VRING_KICK, U64.pack(0), [efd]),
                              (SET_VRING_CALL, U64.pack(0), [efd]), (SET_VRING_ERR, U64.pack(0), [efd]),
                              (SET_VRING_NUM, STATE.pack(0, 64), ()), (SET_VRING_BASE, STATE.pack(0, 7), ()),
                              (RESET_DEVICE, b"", ()), (SET_STATUS, U64.pack(0), ())]:
        m = fresh(acks=True)
        m.do(mid, payload, fds)
        assert m.vring_base(0) == (7 if mid == SET_VRING_BASE else 0)
        m.close()
    os.close(efd)
    d = world().disk(start=False)
    d.set_protocol(d.protocol)
    r = d.rings[0]
    d.state(SET_VRING_ENABLE, 0, 1)
    d.u64(SET_VRING_CALL, 0, [r.call])
    d.u64(SET_VRING_KICK, 0, [r.kick])
    d.set_addr(0)
    d.state(SET_VRING_BASE, 0, 0)
    d.state(SET_VRING_NUM, 0, r.size)
    d.mem_table(d.mem)
    req = d.submit(T_IN, n=512)
    time.sleep(0.05)
    assert req.status == S_NONE, "a ring ran before its features were known"
    d.u64(SET_FEATURES, d.acked)
    os.eventfd_write(r.kick, 1)
    d.wait(req)
    d.close()


def test_a_ring_is_not_served_while_it_is_disabled():
    d = world().disk()
    d.state(SET_VRING_ENABLE, 0, 0)
    req = d.submit(T_IN, n=512, kick=False)
    os.eventfd_write(d.rings[0].kick, 1)
    time.sleep(0.05)
    d.reap()
    assert not req.done
    d.state(SET_VRING_ENABLE, 0, 1)
    d.wait(req)
    d.close()


def test_a_front_end_without_the_protocol_features_has_its_rings_enabled_at_once():
    d = world().disk(start=False)
    d.acked &= ~F_PROTOCOL
    d.do(SET_OWNER)
    d.u64(SET_FEATURES, d.acked)
    d.mem_table(d.mem)
    r = d.rings[0]
    d.state(SET_VRING_NUM, 0, r.size)
    d.state(SET_VRING_BASE, 0, 0)
    d.set_addr(0)
    d.u64(SET_VRING_CALL, 0, [r.call])
    d.u64(SET_VRING_KICK, 0, [r.kick])
    d.write(5, pattern(512, 5))
    assert world().flat(0, 5 * 512, 512) == pattern(512, 5)
    d.close()


def test_a_ring_without_a_kick_descriptor_is_polled():
    d = world().disk(start=False)
    d.negotiate()
    r = d.rings[0]
    d.state(SET_VRING_NUM, 0, r.size)
    d.state(SET_VRING_BASE, 0, 0)
    d.set_addr(0)
    d.u64(SET_VRING_CALL, 0, [r.call])
    d.u64(SET_VRING_KICK, NO_FD)
    d.state(SET_VRING_ENABLE, 0, 1)
    for i in range(5):
        d.wait(d.submit(T_OUT, i, pattern(512, i), kick=False))
    assert world().flat(0, 4 * 512, 512) == pattern(512, 4)
    d.close()


def test_rings_that_run_may_not_be_changed():
    for mid, payload in (SET_VRING_NUM, STATE.pack(0, 64)), (SET_VRING_BASE, STATE.pack(0, 0)), \
            (SET_FEATURES, U64.pack(F_VERSION_1)):
        d = world().disk()
        d.acks = False
        d.do(mid, payload)
        d.gone()


def test_memory_tables_that_cannot_be_are_refused():
    fd = os.memfd_create("m", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, MIB)
    good = (0, MIB, 1 << 30, 0)
    top = (1 << 64) - 4096
    rows = [(2, [good], 1), (0, [good], 1), (1, [good], 0), (1, [good], 2), (9, [good] * 9, 8),
            (0xFFFFFFFF, [good], 1), (1, [(0, 0, 0, 0)], 1), (1, [(0, 2 * MIB, 0, 0)], 1),
            (1, [(0, MIB, 0, 4096)], 1), (1, [(0, MIB, top, 0)], 1), (1, [(top, MIB, 0, 0)], 1),
            (1, [(0, (1 << 64) - 1, 0, 0)], 1), (1, [(0, MIB, 0, top)], 1), (2, [good, good], 2),
            (2, [good, (MIB // 2, MIB, 1 << 40, 0)], 2), (1, [(0, MIB, 0, 1)], 1)]
    for n, regions, nfds in rows:
        m = fresh()
        m.send(SET_MEM_TABLE, struct.pack("<II", n, 0) + b"".join(struct.pack("<QQQQ", *r) for r in regions),
               [fd] * nfds)
        try:
            m.gone()
        except AssertionError as e:
            raise AssertionError(f"{n} of {regions}: {e}") from None
    for what in os.eventfd(0), os.pipe()[0], os.open("/dev/null", os.O_RDWR), os.open("/proc/self/maps", os.O_RDONLY):
        m = fresh()
        m.send(SET_MEM_TABLE, struct.pack("<IIQQQQ", 1, 0, *good), [what])
        m.gone()
        os.close(what)
    os.close(fd)
    beside()


def test_memory_comes_and_goes_by_slots():
    d = world().disk(slots=True)
    assert d.ask(GET_MAX_MEM_SLOTS) >= 32
    extra = [Region((64 + i) * MIB, MIB, 0x600000000000 + i * MIB) for i in range(20)]
    for r in extra:
        d.add_mem(r)
        d.mem.regions.append(r)
    d.wait(d.submit(T_OUT, 0, pattern(4096, 3), at=extra[7].gpa))
    d.wait(d.submit(T_OUT, 8, pattern(8192, 4), at=extra[9].gpa - 4096))  # over two of them
    assert world().flat(0, 0, 12288) == pattern(4096, 3) + pattern(8192, 4)
    for i, r in enumerate(extra):
        d.rem_mem(r, [r.fd] if i % 2 else ())
    d.wait(d.submit(T_OUT, 0, pattern(4096, 3), at=extra[7].gpa), status=S_IOERR)
    d.acks = False
    d.rem_mem(extra[0])
    d.gone()  # it is not there
    d = world().disk(slots=True)
    d.acks = False
    d.rem_mem(d.mem.regions[0])
    d.gone()  # the rings lie there


def test_a_second_vmm_is_refused_while_the_first_is_there():
    d = world().disk()
    m = world().master()
    m.gone()
    d.io(T_FLUSH)
    d.close()
    d = world().disk()
    d.io(T_FLUSH)
    d.close()


def test_the_device_status_is_kept_and_zero_resets():
    d = world().disk()
    for v in 1, 3, 11, 15:
        d.u64(SET_STATUS, v)
        assert d.ask(GET_STATUS) == v
    d.write(0, pattern(512, 1))
    d.u64(SET_STATUS, 0)
    assert d.ask(GET_STATUS) == 0
    req = d.submit(T_IN, n=512, kick=False)
    os.eventfd_write(d.rings[0].kick, 1)
    time.sleep(0.05)
    d.reap()
    assert not req.done, "a ring ran after the reset"
    d.waiting.clear()
    d.rings[0].reset()
    d.start(0, 0)
    assert d.read(0, 512) == pattern(512, 1)
    d.do(RESET_DEVICE)
    d.rings[0].reset()
    d.start(0, 0)
    assert d.read(0, 512) == pattern(512, 1)
    d.close()


main(globals())
