#!/usr/bin/env python3
"""Targets die and come back under verified load: commands wait, nothing fails before ctrl_loss_tmo, nothing stale is read.

The files of a killed target stay, so every block that was acknowledged must be there. Ports stay too, on a loopback
address that no other test uses.
"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from nvmetcp import *
from daemon import loopback
import blocks
import shm
import signal
from initiator import Initiator, hosts, volume

K, M = 1 << 10, 1 << 20
SIZE = 8 * M
PATH_ERROR = "370"


def target(name, size=SIZE, **more):
    t = Target(config({}, nqn=f"nqn.2026-11.io.sluice:{name}", ports=[(1, loopback(), None)]),
               nqn=f"nqn.2026-11.io.sluice:{name}", start=False)
    t.path = t.add_file(1, size, **more)
    t.start()
    return t.pin()


def initiator(targets, volumes, **settings):
    return Initiator({"hosts": hosts(*targets, **{"ctrl_loss_tmo": 600, **settings}), "volumes": volumes,
                      "vms": [{"name": "me", "disks": [v["name"] for v in volumes]}]})


def mixed(*more):
    return ["--rw", "randrw", "--rwmixread", 40, "--flush", 100, "--verify", "--sweep", "--time", "1h", *more]


def progress(i, name):
    return next(v["reads"] + v["writes"] for v in i.ctl("stats")["volumes"] if v["name"] == name)


def moves(i, name, commands=100):
    """Waits until so many more commands ended."""
    goal = progress(i, name) + commands
    until(lambda: progress(i, name) >= goal, f"{commands} commands on {name}", 30)


def path_of(i, t):
    return next(p for p in i.ctl("paths") if p["nqn"] == t.nqn)


def lost(i):
    return sum(p["lost"] for p in i.ctl("stats")["paths"])


def check_files(i, name, targets, stripe, rng):
    """What a second client sees is what is in the files, and every stamp is sound and at its place."""
    with shm.Disk(i.shm, name, rng) as disk:
        contents = []
        for t in targets:
            with open(t.path, "rb") as f:
                contents.append(f.read())
        want = blocks.flat(contents, stripe, disk.vol.size)
        blocks.same(disk.all(), want, f"volume {name} against its members' files")
        return blocks.judge_all(want, name, disk.vol.block, 5)


def no_violation(i):
    stats = i.sluicectl("stats")
    assert all(v["count"] == 0 for v in stats["violations"]), stats["violations"]
    until(lambda: i.sluicectl("grants") == {"grants": [], "not_listed": 0}, "the grants to go", 20)


def crashes(rounds, *load, stripe=32 * K, direct="off", **settings):
    """kill -9 of one of two targets after the other, with the load on."""
    rng = random.Random(3)
    ab = [target("a", direct=direct), target("b", direct=direct)]
    with initiator(ab, [volume("v", *ab, block=stripe)], **settings) as i:
        running = i.load("v", *mixed(*load))
        for round_ in range(rounds):
            moves(i, "v", 200)
            t = ab[round_ % 2]
            t.kill()
            if round_ % 3 == 2:
                until(lambda: path_of(i, t)["attempts"] > 1, "an attempt that fails", 30)
            t.start()
            until(lambda: path_of(i, t)["state"] == "live", "the path to come back", 30)
        moves(i, "v", 500)
        assert running.running(), running.finish()
        rc, result, err = running.stop()
        assert rc == 0 and result["errors"] == 0 and result["verify"]["wrong"] == 0, (err, result)
        assert check_files(i, "v", ab, stripe, rng)
        print(f"     {result['all']['ops']} commands, {rounds} crashes, {lost(i)} parts were sent again")
        assert lost(i) > 0, "no crash met a part on its way"
        no_violation(i)
    stop(*ab)


def stop(*targets):
    problem = "".join(t.stop() for t in targets)
    assert not problem, problem


def test_kill_9_of_targets_in_turn_costs_no_command_and_no_byte():
    crashes(6, "--bs", "32k", "--bs-min", 512, "--sg", 3, "--qd", 16, "--jobs", 2)


def test_kill_9_with_digests_and_large_commands_costs_nothing_either():
    crashes(3, "--bs", "256k", "--sg", 9, "--qd", 8, hdr_digest=True, data_digest=True, direct="auto")


def test_kill_9_of_both_targets_at_once_costs_nothing_either():
    rng = random.Random(4)
    ab = [target("a"), target("b")]
    with initiator(ab, [volume("v", *ab, block=4 * K)]) as i:
        running = i.load("v", *mixed("--bs", "8k", "--qd", 32, "--trim", 5))
        for _ in range(3):
            moves(i, "v", 300)
            for t in ab:
                t.kill()
            for t in reversed(ab):
                t.start()
        moves(i, "v", 500)
        rc, result, err = running.stop()
        assert rc == 0 and result["errors"] == 0 and result["verify"]["wrong"] == 0, (err, result)
        check_files(i, "v", ab, 4 * K, rng)
        no_violation(i)
    stop(*ab)


def test_target_that_stands_still_for_a_while_costs_no_command():
    """SIGSTOP: connections stay open and silent. Keep Alive finds it dead; when it goes on it has old commands in
    its sockets, which must not overwrite what was written since."""
    rng = random.Random(5)
    ab = [target("a"), target("b")]
    with initiator(ab, [volume("v", *ab, block=4 * K)], keep_alive_tmo=1) as i:
        running = i.load("v", *mixed("--bs", "8k", "--qd", 32, "--rate", 4000))
        for t in ab:
            moves(i, "v", 300)
            t.signal(signal.SIGSTOP)
            until(lambda: path_of(i, t)["state"] != "live", "the silence to be noticed", 20)
            t.signal(signal.SIGCONT)
            until(lambda: path_of(i, t)["state"] == "live", "the path to come back", 20)
        moves(i, "v", 500)
        rc, result, err = running.stop()
        assert rc == 0 and result["errors"] == 0 and result["verify"]["wrong"] == 0, (err, result)
        check_files(i, "v", ab, 4 * K, rng)
        assert lost(i) > 0
        no_violation(i)
    stop(*ab)


def test_ctrl_loss_tmo_ends_waiting_commands_with_a_path_error():
    a, b = target("a"), target("b")
    with initiator([a, b], [volume("v", a), volume("w", b)], ctrl_loss_tmo=2) as i:
        running = i.load("v", *mixed("--bs", "4k"))
        moves(i, "v")
        a.kill()
        until(lambda: path_of(i, a)["state"] in ("given up", "failed", "dead"), "the path to be given up", 20)
        rc, result, err = running.stop()
        assert rc == 1 and result["errors"] > 0, (err, result)
        assert {s["status"] for s in result["statuses"]} <= {PATH_ERROR, "082"}, result["statuses"]
        assert result["verify"]["wrong"] == 0, (err, result)
        rc, _, err = i.perf("w", "--rw", "randrw", "--count", 500, "--verify")
        assert rc == 0, err
        no_violation(i)
    stop(b)


def test_fast_io_fail_tmo_ends_commands_while_the_path_is_tried_on():
    a = target("a")
    with initiator([a], [volume("v", a)], fast_io_fail_tmo=1) as i:
        running = i.load("v", *mixed("--bs", "4k", "--rate", 500))
        moves(i, "v")
        a.kill()
        until(lambda: path_of(i, a)["state"] == "failing", "fast_io_fail_tmo", 20)
        with shm.Disk(i.shm, "v", random.Random(6)) as disk:
            assert disk.queue.io(shm.READ, disk.vol.nsid, 0, 1, [(disk.addr, disk.vol.block)]) == 0x370
        a.start()
        until(lambda: path_of(i, a)["state"] == "live", "the path to come back", 20)
        moves(i, "v")
        rc, result, err = running.stop()
        assert rc == 1 and result["errors"] > 0 and result["verify"]["wrong"] == 0, (err, result)
        assert {s["status"] for s in result["statuses"]} == {PATH_ERROR}, result["statuses"]
        rc, result, err = i.perf("v", "--rw", "randrw", "--count", 500, "--verify")
        assert rc == 0, err
        no_violation(i)
    stop(a)


def test_dead_target_does_not_delay_a_volume_of_others():
    """The commands on a volume with a dead member all wait; another volume of the same client goes on."""
    a, b, c = target("a"), target("b"), target("c")
    with initiator([a, b, c], [volume("dead", a, b), volume("well", c)]) as i:
        one = i.load("dead", *mixed("--bs", "64k", "--qd", 64))
        other = i.load("well", *mixed("--bs", "4k", "--qd", 4))
        moves(i, "dead")
        b.kill()
        until(lambda: path_of(i, b)["state"] != "live", "the loss", 30)
        time.sleep(0.2)
        stands = progress(i, "dead")
        for _ in range(5):
            moves(i, "well", 1000)
        assert path_of(i, b)["state"] != "live" and progress(i, "dead") <= stands + 64
        b.start()
        moves(i, "dead")
        for load in (one, other):
            rc, result, err = load.stop()
            assert rc == 0 and result["errors"] == 0 and result["verify"]["wrong"] == 0, (err, result)
        no_violation(i)
    stop(a, b, c)


def test_sigterm_under_load_ends_clients_cleanly_and_loses_nothing():
    a, b = target("a"), target("b")
    volumes = [volume("v", a, b), ]
    i = initiator([a, b], volumes)
    loads = [i.load("v", *mixed("--bs", "16k", "--size", "4M"))]
    with shm.Disk(i.shm, "v", random.Random(8)) as disk:
        moves(i, "v", 300)
        disk.write(12 * M, b"\x55" * 64 * K, 5)
        problem = i.stop()
        assert not problem, problem
        rc, _, err = loads[0].finish()
        assert rc == 1 and "WRONG" not in err and "holds" not in err, err
        assert disk.shm.sock.recv(4096) == b"", "the socket is closed"
    with initiator([a, b], volumes) as i:
        with shm.Disk(i.shm, "v", random.Random(8)) as disk:
            assert disk.read(12 * M, 64 * K, 7) == b"\x55" * 64 * K
        rc, result, err = i.perf("v", "--rw", "randrw", "--bs", "16k", "--size", "4M", "--count", 1000,
                                 "--verify")
        assert rc == 0, (err, result)
    stop(a, b)


def test_initiator_killed_under_load_leaves_its_clients_an_error_and_the_disk_sound():
    a, b = target("a"), target("b")
    volumes = [volume("v", a, b)]
    i = initiator([a, b], volumes)
    load = i.load("v", *mixed("--bs", "16k", "--size", "4M"))
    moves(i, "v", 300)
    i.kill()
    rc, _, err = load.finish()
    assert rc == 1 and "sluice-perf: " in err and "holds" not in err, err
    until(lambda: a.count() == b.count() == 0, "the connections to close", 30)
    with initiator([a, b], volumes) as i:
        rc, result, err = i.perf("v", "--rw", "randrw", "--bs", "16k", "--size", "4M", "--count", 1000,
                                 "--verify")
        assert rc == 0, (err, result)
        assert check_files(i, "v", [a, b], 32 * K, random.Random(9))
    stop(a, b)


if __name__ == "__main__":
    main(globals())
