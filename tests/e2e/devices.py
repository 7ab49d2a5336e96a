#!/usr/bin/env python3
"""vhost-user-blk devices through their lives: who may connect and when, stopping, growing, leaving."""
import os
import signal
import stat
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from controller import Controller, Link, hosts_json
from daemon import ControlError
from runner import Skip, main, until
from vhost import *

STRANGER, OWNER = 23456, 12345


def row(world, n=0):
    return next(r for r in world.initiator.ctl("vms") if r["socket"] == world.sockets[n])


def counters(world, n=0):
    return world.initiator.ctl("stats")["vhost"][n]


def as_user(uid, path):
    """What a process of that user finds at the socket: "refused", "closed", "served"."""
    code = ("import os, socket, struct, sys\n"
            f"os.setgroups([]); os.setgid({uid}); os.setuid({uid})\n"
            "s = socket.socket(socket.AF_UNIX); s.settimeout(20)\n"
            "try: s.connect(sys.argv[1])\n"
            "except OSError: print('refused'); sys.exit()\n"
            "try:\n"
            "  s.sendall(struct.pack('<III', 1, 1, 0))\n"
            "  print('served' if s.recv(12) else 'closed')\n"
            "except OSError: print('closed')\n")
    return subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True,
                          timeout=30 * SCALE, check=True).stdout.strip()


def test_a_socket_is_for_the_vms_user_and_root():
    if os.geteuid() != 0:
        raise Skip("only root can give a socket to somebody else")
    with World() as w:
        w.initiator.conf["vms"][0]["uid"] = OWNER
        w.initiator.write_conf(w.initiator.conf)
        w.initiator.ctl("reload")
        os.chmod(w.initiator.dir, 0o711)
        st = os.stat(w.sockets[0])
        assert (st.st_uid, stat.S_IMODE(st.st_mode)) == (OWNER, 0o600), st
        assert as_user(STRANGER, w.sockets[0]) == "refused"
        assert as_user(OWNER, w.sockets[0]) == "served"
        os.chmod(w.sockets[0], 0o666)  # an administrator's mistake
        assert as_user(STRANGER, w.sockets[0]) == "closed"
        assert f"uid {STRANGER}" in w.log()
        w.disk().close()  # root


def test_a_socket_that_a_killed_daemon_left_is_taken_and_a_live_one_is_not():
    with World() as w:
        w.crash()
        d = w.disk()
        d.write(0, pattern(4096, 1))
        conf = dict(w.initiator.conf, control=None, shm=os.path.join(w.initiator.dir, "other.sock"))
        del conf["control"]
        other = Initiator(conf, start=False)
        done = subprocess.run(other.command(), capture_output=True, text=True, timeout=30 * SCALE,
                              check=False)
        assert done.returncode == 1 and "another daemon answers there" in done.stderr, done.stderr
        assert d.read(0, 4096) == pattern(4096, 1)
        d.close()


def test_one_vmm_at_a_time_is_served():
    with World() as w:
        d = w.disk()
        m = w.master()
        m.gone()
        assert "is connected already; refused" in w.log()
        d.write(8, pattern(512, 2))
        d.sock.close()  # and another one at once: the end of the first is not waited for in vain
        e = Disk(w.sockets[0], wait=0.1)
        assert e.read(8, 512) == pattern(512, 2)
        e.close()


def test_a_vmm_waits_for_a_volume_that_is_not_ready_but_not_for_long():
    with World() as w:
        w.initiator.stop_only()
        w.targets[1].signal(signal.SIGSTOP)
        w.initiator.start()
        m = w.master()
        m.send(GET_FEATURES)
        m.gone()
        began = time.monotonic()
        w.master().gone()
        assert time.monotonic() - began < 3 * SCALE, "it waits once only"
        assert "the volume is not ready" in w.log()
        w.targets[1].signal(signal.SIGCONT)
        until(lambda: w.initiator.state("v0") == "ready", "the volume is ready", 30)
        d = w.disk()
        d.write(0, pattern(65536, 3))
        assert w.flat(0, 0, 65536) == pattern(65536, 3)
        d.close()


def test_get_vring_base_waits_for_what_is_in_flight():
    with World() as w:
        for packed in False, True:
            d = w.disk(packed=packed)
            w.targets[0].signal(signal.SIGSTOP)
            reqs = [d.submit(T_OUT, 64 * n, pattern(4096, (packed, n))) for n in range(20)]
            until(lambda: counters(w)["requests"] == 20, "all are in flight", 10)
            d.send(GET_VRING_BASE, struct.pack("<II", 0, 0))
            d.quiet(0.3)
            w.targets[0].signal(signal.SIGCONT)
            _, base = struct.unpack("<II", d.recv(GET_VRING_BASE)[0])
            d.reap()
            assert all(r.done and r.status == S_OK for r in reqs), "they had ended before the answer"
            if not packed:
                assert base == 20, base
            d.start(0, base)
            assert d.read(64 * 19, 4096) == pattern(4096, (packed, 19))
            d.close()


def test_a_stop_that_waits_for_a_dead_target_ends_in_time_and_loses_nothing():
    with World(disks=2) as w:
        d, other = w.disk(inflight=True), w.disk(1)
        w.targets[0].signal(signal.SIGSTOP)
        req = d.submit(T_OUT, 0, pattern(4096, 4))
        until(lambda: counters(w)["requests"] == 1, "it is in flight", 10)
        began = time.monotonic()
        d.sock.settimeout(40 * SCALE)
        d.send(GET_VRING_BASE, struct.pack("<II", 0, 0))
        d.gone()
        assert 14 < time.monotonic() - began < 25 * SCALE
        assert "did not end within 15 s" in w.log() and not d.reap()
        w.targets[0].signal(signal.SIGCONT)
        e = w.disk(old=d)
        e.wait(req)
        assert w.flat(0, 0, 4096) == pattern(4096, 4)
        other.write(0, pattern(512, 5))
        e.close()
        other.close()


def test_a_disk_that_is_removed_completes_what_it_took():
    with World(disks=2) as w:
        d, other = w.disk(inflight=True), w.disk(1)
        w.targets[0].signal(signal.SIGSTOP)
        req = d.submit(T_OUT, 0, pattern(4096, 6))
        until(lambda: counters(w)["requests"] == 1, "it is in flight", 10)
        w.initiator.ctl("vm.remove", name="vm0")
        assert not os.path.exists(w.sockets[0])
        w.targets[0].signal(signal.SIGCONT)
        d.wait(req)
        d.gone()
        until(lambda: len(w.initiator.ctl("stats")["vhost"]) == 1, "the device is gone", 10)
        other.write(0, pattern(512, 7))
        w.initiator.ctl("vm.add", name="vm0", uid=os.getuid(),
                        disks=[{"volume": "v0", "vhost-user-blk": w.sockets[0]}])
        e = w.disk(old=d)
        assert e.read(0, 4096) == pattern(4096, 6)
        e.close()
        other.close()


def test_a_daemon_that_stops_leaves_what_hangs_to_the_next():
    with World() as w:
        d = w.disk(inflight=True)
        d.write(0, pattern(4096, 8))
        w.targets[0].signal(signal.SIGSTOP)
        req = d.submit(T_OUT, 0, pattern(4096, 9))
        until(lambda: counters(w)["requests"] == 2, "it is in flight", 10)
        w.initiator.stop_only(timeout=30 * SCALE)
        assert not d.reap(), "nobody has failed it"
        w.targets[0].signal(signal.SIGCONT)
        w.initiator.start()
        e = w.disk(old=d)
        e.wait(req)
        assert e.read(0, 4096) == pattern(4096, 9)
        e.close()


def upgrade(world):
    """Returns when the new program is ready, and how long nobody answered."""
    began = time.monotonic()
    pid = world.initiator.proc.pid
    world.initiator.ctl("upgrade")
    until(lambda: world.log().count("\nready\n") == 2, "the new program is ready", 10)
    assert world.initiator.proc.pid == pid and world.initiator.proc.poll() is None
    return time.monotonic() - began


def test_an_upgrade_goes_on_with_every_connection_and_request():
    with World(disks=2) as w:
        disks = [w.disk(n, packed=bool(n), inflight=True, rings=3) for n in range(2)]
        disks[0].open_back()
        for n in range(30):
            for d, k in zip(disks, "ab"):
                d.write(n * 8, pattern(4096, (k, n)), ring=n % 3)
        reqs = [d.submit(T_OUT, 4096 + 2048 * n, pattern(MIB, (n, "x")), ring=n % 3)
                for n in range(4) for d in disks]
        upgrade(w)
        for n in range(30, 45):
            for d, k in zip(disks, "ab"):
                d.write(n * 8, pattern(4096, (k, n)), ring=n % 3)
        for d in disks:
            d.wait()
        assert all(r.status == S_OK for r in reqs)
        for n in range(45):
            for d, k in zip(disks, "ab"):
                assert d.read(n * 8, 4096, ring=n % 3) == pattern(4096, (k, n))
        assert "pid %d was taken over" % os.getpid() in w.log()
        assert disks[0].vring_base(1) > 0
        for t in w.targets:
            t.ctl("ns.resize", nqn=t.nqn, nsid=1, size="24M")
        assert struct.unpack("<III", disks[0].back.recv(64)) == (BACKEND_CONFIG_CHANGE, 1, 0)
        disks[1].close()
        until(lambda: row(w, 1)["client"] is None, "it has gone", 5)
        w.disk(1).close()  # its socket lives, too
        disks[0].close()


def test_an_upgrade_in_the_middle_of_a_message_and_with_a_target_that_hangs():
    with World() as w:
        d = w.disk(inflight=True)
        w.targets[0].signal(signal.SIGSTOP)
        req = d.submit(T_OUT, 0, pattern(4096, 14))
        until(lambda: counters(w)["requests"] == 1, "it is in flight", 10)
        message = struct.pack("<III", GET_CONFIG, VERSION, 12 + 60) + struct.pack("<III", 0, 60, 0)
        d.send_raw(message[:7])
        time.sleep(0.1)
        w.initiator.ctl("upgrade")
        time.sleep(0.6 * SCALE)
        w.targets[0].signal(signal.SIGCONT)
        d.send_raw(message[7:] + bytes(60))
        assert struct.unpack("<Q", d.recv(GET_CONFIG)[0][12:20])[0] == 65536
        d.wait(req)
        assert w.flat(0, 0, 4096) == pattern(4096, 14)
        d.close()


def test_an_upgrade_whose_check_takes_long_hands_over_all_the_same():
    """The new program reads its file from a pipe, twice, and the first time it has to wait for it."""
    with World() as w:
        d = w.disk(inflight=False)
        d.write(0, pattern(4096, 16))
        path = w.initiator.conf_path
        with open(path, encoding="utf-8") as f:
            text = f.read()
        os.unlink(path)
        os.mkfifo(path)

        def feed(seconds):
            time.sleep(seconds)
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
        feeder = threading.Thread(target=feed, args=(2.5,))
        feeder.start()
        w.initiator.ctl("upgrade")
        feeder.join()
        feed(0)
        until(lambda: "was taken over" in w.log(), "it is taken over", 10)
        assert d.read(0, 4096) == pattern(4096, 16)
        d.close()


def test_an_upgrade_to_a_program_that_refuses_changes_nothing():
    with World() as w:
        d = w.disk()
        with open(w.initiator.conf_path, "a", encoding="utf-8") as f:
            f.write("}")
        try:
            w.initiator.ctl("upgrade")
        except ControlError as e:
            assert "does not take" in str(e), e
        else:
            raise AssertionError("it upgraded")
        d.write(0, pattern(512, 15))
        d.close()


def test_a_volume_that_grows_is_told_to_who_has_a_channel_and_seen_by_all():
    with World(disks=2) as w:
        d, mute = w.disk(0, start=False), w.disk(1)
        d.set_protocol(d.protocol)
        d.open_back()
        assert struct.unpack("<Q", d.get_config()[:8])[0] == 65536
        for t in w.targets:
            for nsid in 1, 2:
                t.ctl("ns.resize", nqn=t.nqn, nsid=nsid, size="24M")
        head = d.back.recv(64)
        assert struct.unpack("<III", head) == (BACKEND_CONFIG_CHANGE, 1, 0), head
        assert struct.unpack("<Q", d.get_config()[:8])[0] == 98304
        until(lambda: struct.unpack("<Q", mute.get_config()[:8])[0] == 98304, "it grows", 10)
        mute.write(98303, pattern(512, 10))
        mute.write(98304, pattern(512, 10), status=S_IOERR)
        d.close()
        mute.close()


def test_a_reload_opens_and_closes_sockets_and_leaves_the_others_alone():
    with World(disks=2) as w:
        d, gone = w.disk(0), w.disk(1)
        conf = w.initiator.conf
        vms = conf["vms"]
        conf["vms"] = vms[:1]
        w.initiator.write_conf(conf)
        w.initiator.ctl("reload")
        gone.gone()
        assert not os.path.exists(w.sockets[1])
        d.write(0, pattern(512, 11))
        conf["vms"] = vms
        w.initiator.write_conf(conf)
        w.initiator.ctl("reload")
        e = w.disk(1)
        e.write(0, pattern(512, 12))
        assert d.read(0, 512) == pattern(512, 11)
        e.close()
        d.close()


def test_a_socket_that_cannot_be_had_is_told_and_changes_nothing():
    with World() as w:
        try:
            w.initiator.ctl("vm.add", name="x", uid=os.getuid(), disks=[
                {"volume": "v0", "vhost-user-blk": "/nowhere/at/all/x.sock"}])
        except ControlError as e:
            assert "/nowhere/at/all/x.sock" in str(e), e
        else:
            raise AssertionError("it was added")
        assert [r["name"] for r in w.initiator.ctl("vms")] == ["vm0"]


def test_lost_memory_of_one_guest_disturbs_no_connection_to_a_target():
    """Rings stay, data does not: what touches it is our system calls, on connections that all share."""
    with World(disks=2, members=1) as w:
        other = w.disk(1)
        for kind in T_OUT, T_IN:
            data = Region(16 * MIB, 16 * MIB, 0x7E0000000000, seal=False)
            d = w.disk(mem=Memory(Region(0, 16 * MIB, 0x7F0000000000), data))
            os.ftruncate(data.fd, 4096)
            req = d.prepare(kind, 0, n=MIB, at=20 * MIB)
            d.add(req, d.segs(req))
            beside = [other.submit(T_OUT, 2048 * n, pattern(MIB, n)) for n in range(4)]
            os.eventfd_write(d.rings[0].kick, 1)
            d.gone()
            other.wait(*beside)
            for n in range(4):
                assert other.read(2048 * n, MIB) == pattern(MIB, n)
        assert "taken away by its owner" in w.log()
        path, = w.initiator.ctl("paths")
        assert path["state"] == "live" and path["attempts"] <= 1, path
        other.close()


def test_payload_goes_through_no_buffer_of_ours_with_direct_placement():
    with World(conf={"placement": "direct"}) as w:
        d = w.disk()
        for n in range(8):
            d.write(2048 * n, pattern(MIB, n))
            assert d.read(2048 * n, MIB) == pattern(MIB, n)
        stats = w.initiator.ctl("stats")
        assert sum(p["read_bytes"] for p in stats["paths"]) >= 8 * MIB, stats["paths"]
        assert sum(p["copied_bytes"] for p in stats["paths"]) == 0, stats["paths"]
        # What is staged is headers of PDUs.
        assert sum(r["rx_staged"] for r in stats["reactors"]) < 65536, stats["reactors"]
        d.close()


class Cached:
    """A disk on a scripted controller with a volatile write cache, which tells how it was written."""

    def __init__(self):
        self.ctrl, self.seen = Controller("nqn.2026-11.io.sluice:cached", size=1 << 20), []
        for what, do in ("write", Link.do_write), ("zeroes", Link.do_zeroes), ("flush", Link.do_flush):
            self.ctrl.arm(what, self.note(do), times=10000)
        self.initiator = Initiator({}, start=False)
        self.socket = os.path.join(self.initiator.dir, "disk.sock")
        self.initiator.conf.update({
            "hosts": hosts_json(self.ctrl.entry()),
            "volumes": [{"name": "v", "members": [self.ctrl.nqn + "/1"]}],
            "vms": [{"name": "vm", "uid": os.getuid(), "disks": [
                {"volume": "v", "vhost-user-blk": self.socket}]}]})
        self.initiator.start()

    def note(self, do):
        def noted(link, c):
            self.seen.append("flush" if c.name == "flush" else "through" if c.cdw12 >> 30 & 1 else "back")
            do(link, c)
        return noted

    def how(self, d):
        """What a write, zeroes and a flush of d are to the controller."""
        self.seen.clear()
        d.write(0, pattern(512, 1))
        d.ranges(T_WRITE_ZEROES, (8, 8, 0))
        if d.acked & F_FLUSH:
            d.io(T_FLUSH)
        return self.seen

    def stop(self):
        problem = self.initiator.stop() + "".join(self.ctrl.problems)
        self.ctrl.close()
        assert not problem, problem


def test_what_a_killed_daemon_had_not_sent_never_arrives():
    """The next one sends it again, and then perhaps something else for the same blocks."""
    c, stalled, killed, ends = Cached(), threading.Event(), threading.Event(), []

    def stall(link, _):
        stalled.set()
        killed.wait(30 * SCALE)
        try:
            while link.sock.recv(65536):
                pass
            ends.append("closed")
        except ConnectionResetError:
            ends.append("reset")
        link.close()

    c.ctrl.arm("write", stall)
    d = Disk(c.socket, inflight=True)
    reqs = [d.submit(T_OUT, 8 * n, pattern(4096, n)) for n in range(32)]
    assert stalled.wait(10 * SCALE)
    c.initiator.kill()
    killed.set()
    until(lambda: ends, "the connection ends")
    assert ends == ["reset"]
    d.close()
    c.initiator.start()
    d = Disk(c.socket, old=d)
    d.wait(*reqs)
    assert bytes(c.ctrl.disk[:32 * 4096]) == b"".join(pattern(4096, n) for n in range(32))
    d.close()
    c.stop()


BACK, THROUGH = ["back", "back", "flush"], ["through", "through", "flush"]
WCE = 32  # where it stands in the configuration


def test_writes_are_durable_when_they_end_unless_the_guest_is_to_flush():
    c = Cached()
    d = Disk(c.socket)
    assert d.get_config(1, WCE) == b"\1" and c.how(d) == BACK, c.seen
    for _ in range(2):
        d.set_config(WCE, b"\0")
        assert d.get_config(1, WCE) == b"\0" and c.how(d) == THROUGH, c.seen
        d.set_config(WCE, b"\1")
        assert c.how(d) == BACK, c.seen
    d.close()
    d = Disk(c.socket, without=F_FLUSH | F_CONFIG_WCE)
    assert c.how(d) == THROUGH[:2], c.seen
    d.close()
    d = Disk(c.socket, without=F_CONFIG_WCE)
    d.set_config(WCE, b"\0")  # means nothing then
    assert c.how(d) == BACK, c.seen
    d.close()
    c.stop()


def test_the_cache_mode_that_a_guest_has_chosen_survives_the_daemon():
    c = Cached()
    for first, then, how in (b"\0", None, THROUGH), (b"\0", b"\1", BACK), (None, b"\0", THROUGH):
        d = Disk(c.socket, inflight=True)
        for mode in first, then:
            if mode is not None:
                d.set_config(WCE, mode)
        assert c.how(d) == how, c.seen
        c.initiator.kill()
        d.close()
        c.initiator.start()
        d = Disk(c.socket, old=d)
        assert c.how(d) == how, c.seen
        d.close()
        d = Disk(c.socket, old=d)  # without a crash
        assert c.how(d) == how, c.seen
        c.initiator.ctl("upgrade")
        until(lambda: c.initiator.log().count("was taken over"), "it is taken over", 10)
        assert c.how(d) == how, c.seen
        d.close()
        d = Disk(c.socket, inflight=True)  # another guest
        assert c.how(d) == BACK, c.seen
        d.close()
    c.stop()


def test_devices_are_listed_with_their_queues_and_counters():
    with World(disks=2, queues=4) as w:
        assert row(w)["client"] is None and row(w)["queues"] == 0
        d = w.disk(rings=3)
        for n in range(5):
            d.write(n, pattern(512, n), ring=n % 3)
        d.io(99, status=S_UNSUPP)
        assert row(w)["queues"] == 3 and row(w)["pid"] == os.getpid(), row(w)
        c = counters(w)
        assert (c["state"], c["requests"], c["completed"], c["refused"]) == ("connected", 6, 6, 1), c
        assert int(c["features"], 16) == d.acked and c["interrupts"] > 0, c
        status = w.initiator.ctl("status")
        assert (status["vhost_devices"], status["vhost_connected"]) == (2, 1), status
        d.close()
        until(lambda: row(w)["client"] is None, "it has gone", 5)


main(globals())
