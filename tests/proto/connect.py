#!/usr/bin/env python3
"""Connect: every error case with the field that it names; names of every kind (field reports 13 and 19)."""
import os
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from nvmetcp import *
OTHER = "nqn.2026-11.io.sluice:other"
ALLOWED = "nqn.2014-08.org.nvmexpress:uuid:6c9a4b1e-3a57-4d17-8bd1-5a1c7e00000a"
SQE, DATA = 0, 1


def make():
    return Target(config({1: "ram:16M"}, extra_subsystems=[
        (OTHER, {1: "ram:16M"}, [ALLOWED], "SLUICETEST02")]))


target = Shared(make)


def fresh(**terms):
    conn = Conn(target().addr, **terms)
    conn.handshake()
    return conn


def try_connect(hostnqn=HOSTNQN, subnqn=None, **kw):
    conn = fresh()
    cqe = conn.connect(subnqn if subnqn is not None else target().nqn, hostnqn, **kw)
    return conn, cqe


def refused(status, ipo=None, where=None, dnr=True, **kw):
    conn, cqe = try_connect(**kw)
    assert cqe.status == status and cqe.dnr == dnr, cqe
    if ipo is not None:
        assert (cqe.dw0 & 0xFFFF, cqe.dw0 >> 16 & 1) == (ipo, where), \
            f"IPO {cqe.dw0 & 0xFFFF} IATTR {cqe.dw0 >> 16 & 1}, expected {ipo} {where}"
    conn.close()


def test_connect_admin_gets_a_controller_id_and_no_authentication():
    conn, cqe = try_connect()
    assert cqe.status == 0 and cqe.dw0 >> 16 == 0 and cqe.dw1 == 0, cqe
    assert cqe.dw0 & 0xFFFF <= 0xFFEF
    conn.close()


def test_connect_controller_ids_of_one_subsystem_differ_and_are_not_reused_at_once():
    seen = []
    for _ in range(50):
        conn, cqe = try_connect()
        seen.append(cqe.dw0 & 0xFFFF)
        conn.close()
    assert len(set(seen)) == 50, seen


def test_connect_recfmt_other_than_0_is_incompatible_format():
    for recfmt in (1, 0xFFFF):
        refused(SC_FMT, recfmt=recfmt)


def test_connect_sqsize_0_is_invalid_44():
    refused(SC_PARAM, 44, SQE, sqsize=0)


def test_connect_sqsize_31_of_the_admin_queue_is_possible():
    conn, cqe = try_connect(sqsize=31)
    assert cqe.status == 0
    conn.close()


def test_connect_sqsize_beyond_every_limit_is_invalid_44():
    refused(SC_PARAM, 44, SQE, sqsize=0xFFFF)


def test_connect_unknown_subnqn_is_invalid_256():
    for name in ("nqn.2026-11.io.sluice:none", "x", target().nqn + "x", target().nqn[:-1],
                 target().nqn.upper()):
        refused(SC_PARAM, 256, DATA, subnqn=name)


def test_connect_empty_subnqn_is_invalid_256():
    refused(SC_PARAM, 256, DATA, subnqn="")


def test_connect_subnqn_without_nul_or_too_long_is_invalid_256():
    for name in (b"n" * 256, b"n" * 255, b"n" * 224):
        refused(SC_PARAM, 256, DATA, subnqn=name)


def test_connect_static_cntlid_on_the_admin_queue_is_invalid_16():
    for cntlid in (0, 1, 0x1234, 0xFFF0):
        refused(SC_PARAM, 16, DATA, cntlid=cntlid)


def test_connect_cntlid_fffe_on_the_admin_queue_is_refused_or_dynamic():
    conn, cqe = try_connect(cntlid=0xFFFE)
    assert cqe.status in (0, SC_PARAM), cqe
    conn.close()


def test_connect_host_that_is_not_allowed_is_invalid_host():
    refused(SC_HOST, subnqn=OTHER)
    conn, cqe = try_connect(hostnqn=ALLOWED, subnqn=OTHER)
    assert cqe.status == 0
    conn.close()


def test_connect_host_name_compares_byte_exact():
    for name in (ALLOWED.upper(), ALLOWED + " ", ALLOWED[:-1]):
        refused(SC_HOST, subnqn=OTHER, hostnqn=name)


def test_connect_zero_hostid_is_refused():
    """Field report 19: a zero id is refused or never counts as equal to another zero."""
    conn, cqe = try_connect(hostid=bytes(16))
    if cqe.status == 0:
        other, again = try_connect(hostid=bytes(16), hostnqn="another")
        assert again.status in (0, SC_PARAM), again
        other.close()
    else:
        assert cqe.status == SC_PARAM and cqe.dw0 == 1 << 16 and cqe.dnr, cqe
    conn.close()


def test_connect_same_name_with_two_ids_and_one_id_with_two_names_both_work():
    """Field report 19: pairs are told apart."""
    pairs = [("host-a", bytes([1]) * 16), ("host-a", bytes([2]) * 16), ("host-b", bytes([1]) * 16)]
    hosts = [Host(target(), hostnqn=n, hostid=i) for n, i in pairs]
    assert len({h.cntlid for h in hosts}) == 3
    for h in hosts:
        # an I/O queue belongs to the pair that made the controller
        for n, i in pairs:
            conn = fresh()
            cqe = conn.connect(target().nqn, n, i, qid=1, cntlid=h.cntlid)
            if (n, i) == (h.hostnqn, h.hostid):
                assert cqe.status == 0, cqe
                conn.cmd(FLUSH, 1)
            else:
                assert cqe.status in (SC_PARAM, SC_HOST) and cqe.dnr, cqe
            conn.close()
    for h in hosts:
        h.close()


def test_connect_doubles_are_shown_with_both_addresses():
    """Field report 19: two machines with one name and one id."""
    t = target()
    hosts = [Host(t, hostnqn="double", hostid=bytes([5]) * 16, source=a)
             for a in ("127.0.0.21", "127.0.0.22")]
    peers = sorted(c["peer"].split(":")[0] for c in t.controllers() if c["host"] == "double")
    assert peers == ["127.0.0.21", "127.0.0.22"], peers
    ids = {c["hostid"] for c in t.controllers() if c["host"] == "double"}
    assert len(ids) == 1
    for h in hosts:
        h.io().read(0, 1)
        h.close()


def test_authentication_commands_are_refused_where_none_is_asked_for():
    host = Host(target())
    for conn in (host.admin, host.io()):
        for fctype, kw in ((FC_AUTH_RECV, {"read": 64}), (FC_AUTH_SEND, {"data": bytes(64)})):
            cqe = conn.cmd(fabrics(fctype, struct.pack("<xBBBI", 1, 1, 0xE9, 64)), **kw)
            assert cqe.status in (SC_OPCODE, SC_FIELD) and cqe.dnr, cqe
    host.admin.keep_alive()
    host.close()


def test_connect_names_of_any_form_up_to_223_bytes_are_accepted():
    """Test suites and old hosts use names that are no proper NQNs."""
    for name in ("h", "a b", "no-nqn", "nqn.x", "H" * 223, "ünïcødé", b"\xff\xfe\x80",
                 b"new\nline\ttab", "\x1b[31mred", "nqn.2014-08.org.nvmexpress:uuid:zz"):
        conn, cqe = try_connect(hostnqn=name)
        assert cqe.status == 0, (name, cqe)
        conn.close()


def test_connect_empty_hostnqn_is_accepted_where_any_host_may_come():
    """SPDK's tools connect with an empty host name by default."""
    conn, cqe = try_connect(hostnqn="")
    assert cqe.status == 0, cqe
    conn.close()
    conn, cqe = try_connect(hostnqn="", subnqn=OTHER)
    assert cqe.status in (SC_HOST, SC_PARAM) and cqe.dnr, cqe
    conn.close()


def test_connect_hostnqn_without_nul_or_too_long_is_invalid_512():
    """Field report 13."""
    for name in (b"h" * 256, b"h" * 255, b"h" * 224):
        refused(SC_PARAM, 512, DATA, hostnqn=name)


def test_connect_hostile_names_are_logged_bounded_and_escaped():
    """Field report 13: no control bytes, no neighbouring memory, bounded lines."""
    t = target()
    evil = (b"\x1b]0;owned\x07\n\r\x00", b"\x1b[2J" * 40, b"A" * 256, b"\n" * 200,
            "\u202egnp.exe\u2066".encode(), b"%n%s%x" * 30)
    start = len(t.log())
    for name in evil:
        for kw in ({"hostnqn": name}, {"subnqn": name}):
            conn, _ = try_connect(**kw)
            conn.cmd(FLUSH, 1)
            conn.close()
    time.sleep(0.2)
    new = t.log()[start:]
    bad = [c for c in new if ord(c) < 32 and c != "\n" or c == "\x7f" or c in "\u202e\u2066"]
    assert not bad, f"control characters in the log: {bad[:10]}"
    assert "\nowned" not in new
    assert max((len(line) for line in new.splitlines()), default=0) < 1200, "unbounded lines"
    for line in new.splitlines():
        assert "AAAA" * 60 not in line, "a name without end is quoted whole"


def test_connect_hostile_names_in_control_output_are_escaped():
    """On the socket as JSON prescribes; for people without any byte that a terminal obeys."""
    t = target()
    conn, cqe = try_connect(hostnqn=b"\x1b[31m\x07\xff\n\xe2\x80\xae")
    assert cqe.status == 0
    control = Control(t.control)
    control.file.write(b'{"jsonrpc":"2.0","id":1,"method":"controllers"}\n')
    control.file.flush()
    line = control.file.readline()
    assert b"[31m" in line and not [b for b in line[:-1] if b < 32], line
    line.decode()
    for words in ([], ["--json"]):
        done = subprocess.run([find_program("sluicectl", "common"), "-s", t.control, *words,
                               "controllers"], capture_output=True, timeout=5 * SCALE, check=False)
        text = done.stdout.decode()
        assert done.returncode == 0 and "[31m" in text, done
        unsafe = "\x7f" if words else "\x7f\u202e"
        assert not [c for c in text if ord(c) < 32 and c != "\n" or c in unsafe], (words, text)
    conn.close()


def test_connect_before_anything_else_is_the_only_legal_command():
    for what in (property_get(0, True), property_set(0x14, CC_ENABLE), sqe(ADM_IDENTIFY, cdw10=1),
                 sqe(READ, 1), fabrics(FC_AUTH_RECV), fabrics(FC_DISCONNECT), sqe(ADM_KEEP_ALIVE)):
        conn = fresh()
        conn.fails((SC_OPCODE, SC_SEQUENCE), what)
        cqe = conn.connect(target().nqn)
        assert cqe.status == 0, "Connect after a refused command"
        conn.close()


def test_connect_twice_on_one_queue_is_refused():
    host = Host(target())
    cqe = host.admin.connect(target().nqn)
    assert cqe.status in (SC_SEQUENCE, SC_BUSY) and cqe.dnr, cqe
    host.admin.keep_alive()
    io = host.io()
    cqe = io.connect(target().nqn, qid=1, cntlid=host.cntlid)
    assert cqe.status in (SC_SEQUENCE, SC_BUSY) and cqe.dnr, cqe
    io.read(0, 1)
    host.close()


def io_connect(host, status, ipo=None, where=None, **kw):
    conn = fresh()
    args = {"subnqn": host.subnqn, "hostnqn": host.hostnqn, "hostid": host.hostid, "qid": 1,
            "cntlid": host.cntlid, **kw}
    cqe = conn.connect(args.pop("subnqn"), args.pop("hostnqn"), args.pop("hostid"), **args)
    assert cqe.status in (status if isinstance(status, tuple) else (status,)) and cqe.dnr, cqe
    if ipo is not None and cqe.status == SC_PARAM:
        assert (cqe.dw0 & 0xFFFF, cqe.dw0 >> 16 & 1) == (ipo, where), cqe
    conn.close()


def left_behind(t):
    """An I/O queue whose host has closed its side; the target does not see that while it waits for the host
    to take what was read."""
    host = Host(t, rcvbuf=65536)
    io = host.io(sqsize=3)
    n = (256 << 10) // io.bs
    for _ in range(20):
        io.rw(READ, 0, n, read=n * io.bs)
    io.sock.shutdown(socket.SHUT_WR)
    return host, io


def connecting(t, **kw):
    conn = Conn(t.addr, **kw)
    conn.handshake()
    body = connect_data(HOSTID, 0xFFFF, t.nqn, HOSTNQN)
    return conn, conn.submit(connect_sqe(0, 31, 0, 0, length=len(body)), data=body, mode="raw")


def test_connect_waits_for_commands_that_its_host_has_left_behind():
    """They must not overtake what comes next: a host that was killed sends its writes again."""
    with Target(config({1: "ram:16M"})) as t:
        host, io = left_behind(t)
        conn, command = connecting(t)
        conn.quiet(0.3)
        Host(t, hostid=bytes(range(16))).close()  # another host does not wait
        gone, _ = connecting(t)
        gone.close()
        io.expect_closed()
        assert conn.wait(command, 10 * SCALE).status == 0
        conn.close()
        host.close()


def test_connect_waits_no_longer_than_a_handshake_may_take():
    with Target(config({1: "ram:16M"}, sluice={"handshake_timeout": "500ms"})) as t:
        host, io = left_behind(t)
        conn, _ = connecting(t)
        conn.expect_closed(10 * SCALE)
        io.expect_closed()
        Host(t).close()
        host.close()


def test_connect_io_with_a_wrong_controller_is_invalid_16():
    host = Host(target())
    for cntlid in (host.cntlid ^ 0x4000, 0xFFFF, 0xFFFE, 0xFFF0):
        io_connect(host, SC_PARAM, 16, DATA, cntlid=cntlid)
    host.close()


def test_connect_io_with_another_host_name_is_invalid_512():
    host = Host(target())
    io_connect(host, SC_PARAM, 512, DATA, hostnqn="someone-else")
    host.close()


def test_connect_io_with_another_hostid_is_invalid_0():
    host = Host(target())
    io_connect(host, SC_PARAM, 0, DATA, hostid=bytes([7]) * 16)
    host.close()


def test_connect_io_to_another_subsystem_is_refused():
    host = Host(target())
    io_connect(host, (SC_PARAM, SC_HOST), subnqn=OTHER)
    io_connect(host, SC_PARAM, subnqn=DISCOVERY_NQN)
    host.close()


def test_connect_io_qid_above_granted_is_invalid_42():
    host = Host(target(), queues=2)
    for qid in (host.granted + 1, 0x100, 0xFFFF):
        io_connect(host, SC_PARAM, 42, SQE, qid=qid)
    host.close()


def test_connect_io_qid_in_use_is_invalid_42():
    host = Host(target())
    io = host.io(1)
    io_connect(host, SC_PARAM, 42, SQE, qid=1)
    io.read(0, 1)
    host.close()


def test_connect_io_qid_can_be_used_again_after_its_connection_ended():
    host = Host(target())
    host.io(1).close()

    def again():
        try:
            return host.io(1)
        except AssertionError:
            return None
    try:
        until(again, "queue 1 can be connected again").read(0, 1)
    except Closed:
        pass  # the older rule: losing an I/O queue ends the association
    host.close()


def test_connect_io_sqsize_limits_are_invalid_44():
    host = Host(target())
    mqes = host.admin.property_get(0, True) & 0xFFFF
    io_connect(host, SC_PARAM, 44, SQE, sqsize=0)
    if mqes < 0xFFFF:
        io_connect(host, SC_PARAM, 44, SQE, sqsize=mqes + 1)
    io = host.io(sqsize=mqes)
    io.read(0, 1)
    host.close()


def test_connect_io_before_enable_is_refused():
    host = Host(target(), enable=False)
    io_connect(host, (SC_SEQUENCE, SC_PARAM, SC_BUSY))
    host.close()


def test_connect_io_before_set_features_has_a_defined_outcome():
    host = Host(target(), queues=0)
    conn = fresh()
    cqe = conn.connect(target().nqn, qid=1, cntlid=host.cntlid)
    assert cqe.status in (0, SC_PARAM, SC_SEQUENCE), cqe
    conn.close()
    host.close()


def test_connect_io_on_a_discovery_controller_is_refused():
    host = Host(target(), subnqn=DISCOVERY_NQN)
    io_connect(host, SC_PARAM)
    host.close()


def test_connect_with_transport_sgl_is_fetched_or_refused():
    """Connect data is in-capsule on TCP; R2T is allowed by the letter, a clean refusal is enough."""
    conn = fresh()
    body = connect_data(HOSTID, 0xFFFF, target().nqn, HOSTNQN)
    command = conn.submit(connect_sqe(), data=body, mode="r2t")
    cqe = conn.wait(command)
    assert cqe.status in (0, SC_SGL_TYPE, SC_FIELD, SC_SGL_LEN), cqe
    conn.close()


def test_connect_flow_control_off_is_confirmed_by_sqhd_ffff():
    conn, cqe = try_connect(cattr=4)
    assert cqe.status == 0 and cqe.sqhd == 0xFFFF, cqe
    conn.close()
    host = Host(target())
    io = host.open()
    cqe = io.connect(target().nqn, qid=1, cntlid=host.cntlid, cattr=4)
    assert cqe.status == 0 and cqe.sqhd == 0xFFFF, cqe
    host.close()


def test_connect_more_controllers_than_allowed_is_busy_and_retryable():
    with Target(config({1: "ram:16M"}, sluice={"controllers": 4})) as t:
        hosts = [Host(t) for _ in range(4)]
        conn = Conn(t.addr)
        conn.handshake()
        cqe = conn.connect(t.nqn)
        assert cqe.status == SC_BUSY and not cqe.dnr, cqe
        conn.close()
        hosts.pop().close()

        def again():
            c = Conn(t.addr)
            c.handshake()
            got = c.connect(t.nqn)
            c.close()
            return got.status == 0
        until(again, "a place became free")
        for h in hosts:
            h.close()


main(globals())
