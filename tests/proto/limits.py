#!/usr/bin/env python3
"""Limits of namespaces and hosts in the target: what is held, in which order, and how it ends.

A rate of one command in many seconds holds whatever comes after the first one until the test is over; what must go on
goes on all the same. Who lets commands go is the test: it raises the limit, takes it away, or refunds.
"""
import json
import os
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from nvmetcp import *

A, B = "nqn.2026-11.io.sluice:host-a", "nqn.2026-11.io.sluice:host-b"
MODES = "capsule", "r2t"
HELD = {"bandwidth": 1024, "burst_ms": 0}       # 4 KiB is four seconds, 64 KiB a minute


def two_spaces():
    return Target(config({1: "ram:16M,bs=512", 2: "ram:16M,bs=512"}))


target = Shared(two_spaces)


class Limit:
    """What holds while the with-block runs, and its books."""

    def __init__(self, t, rest, **limits):
        self.t, self.name = t, f"{t.nqn}/{rest}"
        t.ctl("qos.set", name=self.name, limits=limits)

    def set(self, **limits):
        self.t.ctl("qos.set", name=self.name, limits=limits)

    def clear(self):
        self.t.ctl("qos.clear", name=self.name)

    def refund(self, amount):
        self.t.ctl("qos.refund", name=self.name, amount=amount)

    @property
    def books(self):
        return self.t.ctl("qos.show", name=self.name)[0]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.t.proc and self.t.proc.poll() is None:
            self.clear()


def used_up(io, limit):
    """One command passes, however large, and is paid back for a long time."""
    io.write(0, bytes(65536))
    assert limit.books["byte_tokens"] < -60000, limit.books


def in_halves(io, data):
    """A write with its data in the capsule, and its bytes, for the test to send."""
    raw = io.rw(WRITE, 64, len(data) // 512, data=data, mode="capsule", send=False)
    cid = struct.unpack_from("<H", raw, 10)[0]
    io.cmds[cid] = Command(cid, raw[8:72], data, 0, True)
    io.sent += 1
    return io.cmds[cid], raw


def held(limit, n, since=0):
    until(lambda: limit.books["held"] == since + n, f"{n} commands are held")


def test_commands_beyond_the_limit_wait_in_order_and_go_when_it_is_taken_away():
    for mode in MODES:
        host = Host(target())
        io = host.io()
        with Limit(target(), 1, **HELD) as limit:
            since = limit.books["held"]
            used_up(io, limit)
            data = [pattern(i, 4096) for i in range(8)]
            writes = [io.rw(WRITE, 64, 8, data=d, mode=mode) for d in data]
            reads = [io.rw(READ, 0, 8, read=4096) for _ in range(8)]
            held(limit, 16, since)
            assert limit.books["waiting"] == 1, "the first of the connection waits for all"
            io.quiet(0.05)
            limit.clear()
            for command in writes + reads:
                assert io.wait(command).status == 0
            assert io.read(64, 8) == data[-1], f"{mode}: writes went out of order"
            assert limit.books["wait_max_ns"] > 0 and limit.books["waiting"] == 0
        host.close()


def test_what_is_held_has_no_buffer():
    with Target(config({1: "ram:16M,bs=512"}, sluice={"buffers": "2M", "mdts": "64K"})) as t, \
            Limit(t, 1, **HELD) as limit:
        host = Host(t)
        io = host.io(sqsize=127)
        used_up(io, limit)
        waiting = [io.rw(WRITE, 64 + i * 8, 8, data=bytes(4096), mode=MODES[i % 2]) for i in range(40)]
        waiting += [io.rw(READ, 0, 128, read=65536) for _ in range(40)]
        held(limit, 80)
        assert t.ctl("status")["buffers"]["used"] == 0, t.ctl("status")
        io.quiet(0.05)
        limit.clear()
        for command in waiting:
            assert io.wait(command).status == 0
        host.close()


def test_flush_admin_keep_alive_and_other_namespaces_are_never_held():
    for mode in MODES:
        host = Host(target(), kato=1000)
        io = host.io()
        with Limit(target(), 1, **HELD) as limit:
            used_up(io, limit)
            since = limit.books["held"]
            waiting = [io.rw(WRITE, i * 8, 8, data=bytes(4096), mode=mode) for i in range(8)]
            held(limit, 8, since)
            for _ in range(6):
                io.ok(FLUSH, 1)
                io.ok(FLUSH, 0xFFFFFFFF)
                io.write(0, bytes(4096), nsid=2, mode=mode)
                io.read(0, 8, nsid=2)
                assert host.admin.keep_alive().status == 0
                host.admin.identify(0, 1)
                time.sleep(0.3)         # longer than KATO, in the end
            limit.clear()
            for command in waiting:
                assert io.wait(command).status == 0
        host.close()


def test_a_held_command_is_aborted():
    for mode in MODES:
        host = Host(target())
        io = host.io()
        io.write(64, bytes(8 * 4096))
        with Limit(target(), 1, **HELD) as limit:
            used_up(io, limit)
            since = limit.books["held"]
            first, middle, last = (io.rw(WRITE, 64 + i * 8, 8, data=pattern(i, 4096), mode=mode) for i in range(3))
            held(limit, 3, since)
            for command in middle, first, last:         # the first of the line is not the first to go
                assert host.admin.abort(io.qid, command.cid)
                assert io.wait(command).status == SC_ABORTED
            assert limit.books["waiting"] == 0
            io.ok(FLUSH, 1)
        assert not any(io.read(64, 24)), "an aborted write was done"
        host.close()


def test_in_capsule_data_beyond_what_is_kept_stays_in_the_stream():
    t = Target(config({1: "ram:16M,bs=512"}, sluice={"in_capsule": "64K", "header_timeout": "1s"}))
    with t, Limit(t, 1, **HELD) as limit:
        host = Host(t)
        io = host.io(sqsize=63)
        used_up(io, limit)
        data = [pattern(i, 65536) for i in range(16)]           # twice what is kept
        writes = [io.rw(WRITE, i * 128, 128, data=d, mode="capsule") for i, d in enumerate(data)]
        held(limit, 9)                                          # eight are kept, at the ninth input stands still
        time.sleep(1.5)                                         # nobody's PDU is overdue for that
        assert host.admin.abort(io.qid, writes[8].cid)          # it makes room for nobody but goes itself
        assert io.wait(writes[8]).status == SC_ABORTED
        held(limit, 10)
        limit.clear()
        for i, command in enumerate(writes):
            if i != 8:
                assert io.wait(command).status == 0
                assert io.read(i * 128, 128) == data[i], i
        host.close()


def test_half_of_the_data_of_a_held_command_may_be_missing_when_it_goes():
    host = Host(target())
    io = host.io()
    with Limit(target(), 1, **HELD) as limit:
        used_up(io, limit)
        since = limit.books["held"]
        for abort in False, True:
            data = pattern(f"half {abort}", 4096)
            command, raw = in_halves(io, data)
            io.send(raw[:2000])
            held(limit, 1 + abort, since)
            if abort:
                assert host.admin.abort(io.qid, command.cid)
            else:
                limit.set(bandwidth="none")
            io.quiet(0.05)
            io.send(raw[2000:])
            assert io.wait(command).status == (SC_ABORTED if abort else 0)
            if not abort:
                assert io.read(64, 8) == data
                limit.set(**HELD)
                used_up(io, limit)
    host.close()


def test_a_connection_that_dies_with_held_commands_leaves_nothing_and_delays_nobody():
    t = target()
    host, other = Host(t, hostnqn=A), Host(t, hostnqn=B)
    mine, its = host.io(), other.io()
    with Limit(t, 1, **HELD) as limit:
        used_up(mine, limit)
        since = limit.books["held"]
        for i in range(12):
            its.rw(WRITE, i * 8, 8, data=bytes(4096), mode=MODES[i % 2])
        its.send(in_halves(its, bytes(4096))[1][:2000])
        read = mine.rw(READ, 0, 8, read=4096)
        held(limit, 14, since)
        its.reset()
        until(lambda: limit.books["waiting"] == 1, "it is gone")
        limit.refund("128K")
        assert mine.wait(read).status == 0
        host.admin.property_set(0x14, 0)        # CC.EN: a reset with held commands of its own
        mine.expect_closed()
        until(lambda: host.admin.property_get(0x1c) & 1 == 0, "reset")
        assert limit.books["waiting"] == 0
    host.close()
    other.close()


def test_a_reset_and_a_disconnect_end_what_is_held():
    t = target()
    for how in "reset", "disconnect":
        host = Host(t)
        io = host.io()
        with Limit(t, 1, **HELD) as limit:
            used_up(io, limit)
            since = limit.books["held"]
            waiting = [io.rw(WRITE, 0, 8, data=bytes(4096), mode=MODES[i % 2]) for i in range(6)]
            held(limit, 6, since)
            if how == "disconnect":
                assert io.cmd(fabrics(FC_DISCONNECT, bytes(2))).status == 0
                assert all(io.wait(command).status == SC_ABORTED for command in waiting)
            else:
                host.admin.property_set(0x14, 0)
                io.expect_closed()
                until(lambda: host.admin.property_get(0x1c) & 1 == 0, "reset")
            assert limit.books["waiting"] == 0
        host.close()


def test_the_target_stops_at_once_with_held_commands():
    t = two_spaces()
    limit = Limit(t, 1, **HELD)
    host = Host(t)
    io = host.io()
    used_up(io, limit)
    for i in range(12):
        io.rw(WRITE, 0, 8, data=bytes(4096), mode=MODES[i % 2])
    held(limit, 12)
    problem = t.stop(5 * SCALE)         # the first of them is due in a minute
    assert not problem, problem
    host.close()


def test_held_commands_of_a_namespace_that_is_removed_end_with_invalid_namespace():
    with Target(config({1: "ram:16M,bs=512", 2: "ram:16M,bs=512"}, sluice={"reactors": 2})) as t, \
            Limit(t, 1, **HELD) as limit:
        host = Host(t)
        ios = [host.io() for _ in range(3)]
        used_up(ios[0], limit)
        waiting = [(io, io.rw(WRITE, 0, 8, data=bytes(4096), mode=MODES[i % 2])) for io in ios for i in range(4)]
        waiting += [(io, io.rw(READ, 0, 8, read=4096)) for io in ios for _ in range(4)]
        held(limit, 24)
        t.ctl("ns.remove", nqn=t.nqn, nsid=1)
        for io, command in waiting:
            assert io.wait(command).status == SC_NS
        until(lambda: all(n["nsid"] == 2 for n in t.ctl("namespaces")), "it is gone")
        for io in ios:
            io.write(0, bytes(4096), nsid=2)
        host.close()
        t.ctl("ns.add", nqn=t.nqn, nsid=1, device="ram:1M")
        assert t.ctl("qos.show") == [], "a new one has no limits"


def test_a_host_has_its_limits_on_all_queues_and_namespaces_and_others_do_not():
    t = target()
    host, other = Host(t, hostnqn=A), Host(t, hostnqn=B)
    ios, free = [host.io() for _ in range(2)], other.io()
    with Limit(t, A, **HELD) as limit:
        used_up(ios[0], limit)
        since = limit.books["held"]
        waiting = [(io, io.rw(READ, 0, 8, read=4096, nsid=nsid)) for io in ios for nsid in (1, 2)]
        held(limit, 4, since)
        assert limit.books["waiting"] == 2, "the first of each connection"
        for nsid in 1, 2:
            free.read(0, 8, nsid=nsid)
            ios[0].ok(FLUSH, nsid)
        late = Host(t, hostnqn=A)                       # another controller of the same host
        io = late.io()
        waiting.append((io, io.rw(READ, 0, 8, read=4096)))
        held(limit, 5, since)
        limit.refund("1M")
        for conn, command in waiting:
            assert conn.wait(command).status == 0
        assert limit.books["refunds"] == 1 << 20
        late.close()
    host.close()
    other.close()


def test_host_and_namespace_both_have_to_consent():
    t = target()
    host = Host(t, hostnqn=A)
    io = host.io()
    with Limit(t, A, **HELD) as its, Limit(t, 1, **HELD) as ours:
        used_up(io, its)
        since = its.books["held"], ours.books["held"]
        command = io.rw(READ, 0, 8, read=4096)
        held(its, 1, since[0])
        assert ours.books["held"] == since[1], "it has not come there yet"
        its.clear()
        held(ours, 1, since[1])
        io.quiet(0.05)
        ours.clear()
        assert io.wait(command).status == 0
    host.close()


def test_reads_and_writes_with_limits_of_their_own_do_not_wait_for_each_other():
    host = Host(target())
    io = host.io()
    with Limit(target(), 1, write_bandwidth=1024, burst_ms=0) as limit:
        io.write(0, bytes(65536))
        write = io.rw(WRITE, 0, 8, data=bytes(4096), mode="capsule")
        until(lambda: limit.books["waiting"] == 1, "the write waits")
        for _ in range(20):
            io.read(0, 8)
        io.quiet(0.05)
    assert io.wait(write).status == 0
    host.close()


def test_fused_commands_and_copies_count():
    host = Host(target())
    io = host.io()
    old, new = pattern("old", 512), pattern("new", 512)
    io.write(0, old)
    with Limit(target(), 1, **HELD) as limit:
        used_up(io, limit)
        io2 = host.io()
        since = limit.books["held"]
        first = io2.rw(COMPARE, 0, 1, data=bytes(512), fuse=1)
        second = io2.rw(WRITE, 0, 1, data=new, fuse=2)
        held(limit, 2, since)
        io2.quiet(0.05)
        limit.clear()
        assert io2.wait(first).status == 0 and io2.wait(second).status == 0
    assert io.read(0, 1) == new
    with Limit(target(), 1, bandwidth=1 << 20, burst_ms=0) as limit:
        before = limit.books["passed_bytes"]
        ranges = b"".join(struct.pack("<8xQH14x", 0, 127) for _ in range(4))
        io.ok(COPY, 1, data=ranges, cdw10=1024, cdw12=3)
        assert limit.books["passed_bytes"] - before == 4 * 65536, limit.books
    host.close()


def test_connections_take_turns_however_many_commands_each_sends():
    for reactors in 1, 2:
        with Target(config({1: "ram:16M,bs=512"}, sluice={"reactors": reactors})) as t, \
                Limit(t, 1, iops=1, burst_ms=0) as limit:
            host = Host(t, sqsize=127)
            deep, one = host.io(sqsize=127), host.io()
            deep.read(0, 1)
            waiting = [deep.rw(READ, 0, 1, read=512) for _ in range(100)]
            held(limit, 100)
            for turn in range(5):
                mine = one.rw(READ, 0, 1, read=512)
                held(limit, 101 + turn)
                limit.refund("2iops")
                assert one.wait(mine).status == 0, "within two turns"
            limit.clear()
            for command in waiting:
                assert deep.wait(command).status == 0
            host.close()


def test_limits_in_the_file_are_applied_reloaded_and_dumped():
    def limits(space, host):
        conf = config({1: "ram:16M,bs=512"}, hosts=[A, B])
        sub = conf["subsystems"][0]
        sub["namespaces"][0]["sluice"] = {"qos": space} if space else {}
        sub["sluice"] = {"hosts": [{"nqn": A, "qos": host}]} if host else {}
        return conf

    def shown():
        return {r["name"]: (r["iops"], r["bandwidth"], r["burst_ms"]) for r in t.ctl("qos.show")}

    with Target(limits({"iops": 500}, {"bandwidth": "1M", "burst_ms": 20})) as t:
        host = Host(t, hostnqn=A)
        io = host.io()
        space, its = f"{t.nqn}/1", f"{t.nqn}/{A}"
        assert shown() == {space: ("500", "-", 10), its: ("-", "1M", 20)}, shown()
        dump = t.ctl("dump-config")["subsystems"][0]
        assert dump["namespaces"][0]["sluice"]["qos"] == {"iops": 500}, dump
        assert dump["sluice"] == {"hosts": [{"nqn": A, "qos": {"bandwidth": "1M", "burst_ms": 20}}]}, dump
        t.write_conf(limits({"iops": 7}, None))
        t.signal(signal.SIGHUP)
        until(lambda: shown() == {space: ("7", "-", 10), its: ("-", "-", 10)}, "the file holds")
        io.read(0, 1)           # the connection lives on
        done = subprocess.run([find_program("sluicectl", "common"), "-s", t.control, "qos", "set", its, "iops=900",
                               "--save"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        with open(t.conf_path, encoding="utf-8") as f:
            sub = json.load(f)["subsystems"][0]
        assert sub["sluice"]["hosts"][0]["qos"] == {"iops": 900} and sub["namespaces"][0]["sluice"]["qos"] == {"iops": 7}
        t.write_conf(limits(None, None))
        t.ctl("reload")
        until(lambda: all(row[:2] == ("-", "-") for row in shown().values()), "no limits are left")
        assert "qos" not in json.dumps(t.ctl("dump-config"))
        host.close()


def test_what_cannot_be_is_refused_in_a_sentence():
    def refused(says, method, **params):
        try:
            t.ctl(method, **params)
        except ControlError as e:
            assert says in str(e), f"'{says}' is not in '{e}'"
        else:
            raise AssertionError(f"{method} {params} was not refused")
    t = target()
    refused("is not NQN/NSID or NQN/HOSTNQN", "qos.set", name="x", limits={"iops": 1})
    refused("has no namespace 9", "qos.set", name=f"{t.nqn}/9", limits={"iops": 1})
    refused("must be one number", "qos.set", name=f"{t.nqn}/1", limits={"iops": [1, 2]})
    refused("iosp", "qos.set", name=f"{t.nqn}/1", limits={"iosp": 1})
    refused("bandwidth", "qos.set", name=f"{t.nqn}/1", limits={"bandwidth": 1})
    refused("the name of the host", "qos.set", name=f"{t.nqn}/", limits={"iops": 1})
    refused("amount", "qos.refund", name=f"{t.nqn}/1", amount="0")


main(globals())
