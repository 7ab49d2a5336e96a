#!/usr/bin/env python3
"""Compressed volumes: what travels is smaller, what is stored is what was written, whatever the targets can."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from nvmetcp import *
from daemon import loopback
import blocks
import shm
from initiator import Initiator, hosts, volume

K, M = 1 << 10, 1 << 20
SIZE = 4 * M
STRIPE = 16 * K


def target(name, size=SIZE, can=True, **more):
    t = Target(config({}, nqn=f"nqn.2026-11.io.sluice:{name}", ports=[(1, loopback(), None)],
                      sluice={"compress": can}),
               nqn=f"nqn.2026-11.io.sluice:{name}", start=False)
    t.path = t.add_file(1, size, **more)
    t.start()
    return t.pin()


def restart(t, can):
    t.kill()
    t.conf["sluice"]["compress"] = can
    t.start()


def compressed(targets, stage=None, settings=None, **more):
    return Initiator({"hosts": hosts(*targets, ctrl_loss_tmo=600, **(settings or {})),
                      "volumes": [volume("v", *targets, block=STRIPE,
                                         stages=[{"compress": "zstd", **(stage or {})}], **more)],
                      "vms": [{"name": "me", "disks": ["v"]}], "reactors": 2})


def stop(*targets):
    problem = "".join(t.stop() for t in targets)
    assert not problem, problem


def stats_of(i):
    return next(v for v in i.ctl("stats")["volumes"] if v["name"] == "v")


def shown(i):
    v, = i.sluicectl("volumes")
    return v["state"], v["stage"], v["why"]


def moves(i, commands):
    done = lambda: stats_of(i)["reads"] + stats_of(i)["writes"]
    goal = done() + commands
    until(lambda: done() >= goal, f"{commands} commands", 30)


def check_members(i, targets):
    """What a client reads is what the members' files hold, uncompressed, and sound."""
    files = []
    for t in targets:
        with open(t.path, "rb") as f:
            files.append(f.read())
    with shm.Disk(i.shm, "v", random.Random(1)) as disk:
        plain = blocks.flat(files, STRIPE if len(targets) > 1 else SIZE, disk.vol.size)
        blocks.same(disk.all(), plain, "the volume against its members' files")


def clean(i):
    stats = i.ctl("stats")
    assert not any(v["count"] for v in stats["violations"]), stats["violations"]
    zip_stats = stats_of(i)["compression"]
    assert zip_stats["bad_frames"] == 0, zip_stats
    return zip_stats


def test_what_compresses_travels_smaller_and_what_does_not_as_it_is():
    for members, percent, least, most in ((3, 75, 0.1, 0.5), (1, 0, 1, 1)):
        targets = [target(n) for n in "abc"[:members]]
        with compressed(targets) as i:
            assert shown(i) == ("ready", "zstd", ""), shown(i)
            rc, result, err = i.perf("v", "--rw", "randrw", "--bs", "64k", "--sg", 3, "--verify", "--sweep",
                                     "--compressible", percent, "--count", 300)
            assert rc == 0 and result["verify"]["wrong"] == 0, (err, result)
            got, v = clean(i), stats_of(i)
            assert least <= got["write_wire_bytes"] / got["write_raw_bytes"] <= most, (members, percent, got)
            assert got["write_raw_bytes"] == v["write_bytes"] and got["read_raw_bytes"] == v["read_bytes"], (got, v)
            served = [n for t in targets for n in t.ctl("stats")["namespaces"]]
            assert all(bool(n["compressed_write_bytes"]) == (percent > 0) for n in served), served
            assert sum(n["write_bytes"] for n in served) == v["write_bytes"], (served, v)
            assert sum(n["read_bytes"] for n in served) == v["read_bytes"], (served, v)
            check_members(i, targets)
        stop(*targets)


def crash(members, *load, settings=None, stage=None, **more):
    """A verified load over members that are killed and started in turn."""
    targets = [target(n) for n in "abc"[:members]]
    with compressed(targets, stage, settings, **more) as i:
        running = i.load("v", "--rw", "randrw", "--verify", "--sweep", "--flush", 100, "--time", "1h",
                         "--compressible", 60, *load)
        for t in targets:
            moves(i, 100)
            t.kill()
            t.start()
        moves(i, 100)
        rc, result, err = running.stop()
        assert rc == 0 and result["errors"] == 0 and result["verify"]["wrong"] == 0, (err, result)
        got = clean(i)
        assert 0 < got["write_wire_bytes"] < got["write_raw_bytes"], got
        assert 0 < got["read_wire_bytes"] < got["read_raw_bytes"], got
        check_members(i, targets)
    stop(*targets)


def test_verified_load_over_crashes_is_sound_on_three_members():
    crash(3, "--bs", "32k", "--bs-min", 512, "--sg", 3, "--qd", 16)


def test_the_same_with_digests_a_fast_level_and_little_staging_memory():
    crash(2, "--bs", "128k", "--sg", 9, "--qd", 16, settings={"hdr_digest": True, "data_digest": True},
          stage={"level": -5}, staging="64k")


def test_a_target_that_cannot_is_refused_unless_told_otherwise():
    able, unable = target("a"), target("b", can=False)
    with compressed([able, unable]) as i:
        state, _, why = shown(i)
        assert state == "failed" and why.startswith("nqn.2026-11.io.sluice:b has no compression"), why
        restart(unable, True)
        until(lambda: shown(i)[0] == "ready", "ready when it can", 20)
    restart(unable, False)
    with compressed([able, unable], {"otherwise": "raw"}) as i:
        assert shown(i) == ("ready", "zstd, 1 of 2 members raw", ""), shown(i)
        rc, _, err = i.perf("v", "--rw", "randrw", "--bs", "16k", "--count", 500, "--verify", "--sweep",
                            "--compressible", 75)
        assert rc == 0, err
        clean(i)
        ours, theirs = (t.ctl("stats")["namespaces"][0] for t in (able, unable))
        assert ours["compressed_write_bytes"] > 0 and theirs["compressed_write_bytes"] == 0, (ours, theirs)
        assert theirs["write_bytes"] > 0 and theirs["errors"] == 0, theirs
    stop(able, unable)


def test_a_target_that_comes_back_without_it_is_sent_blocks_as_they_are():
    t = target("a")
    with compressed([t], {"otherwise": "raw"}) as i:
        running = i.load("v", "--rw", "randrw", "--bs", "16k", "--qd", 16, "--verify", "--sweep", "--time", "1h",
                         "--compressible", 75)
        for can in (False, True):
            moves(i, 200)
            restart(t, can)
        moves(i, 200)
        rc, result, err = running.stop()
        assert rc == 0 and result["errors"] == 0 and result["verify"]["wrong"] == 0, (err, result)
        clean(i)
        assert t.ctl("stats")["namespaces"][0]["errors"] == 0
        assert shown(i)[1] == "zstd"
    stop(t)


def test_a_volume_that_comes_later_turns_it_on_where_others_are_connected():
    t = Target(config({1: "ram:4M", 2: "ram:4M"}))
    with Initiator({"hosts": hosts(t), "volumes": [volume("plain", (t, 1))],
                    "vms": [{"name": "me", "disks": ["plain"]}]}) as i:
        until(lambda: i.state("plain") == "ready", "ready", 20)
        i.ctl("volume.add", name="v", members=[f"{t.nqn}/2"], stages=[{"compress": "zstd"}])
        until(lambda: i.state("v") == "ready", "ready", 20)
    stop(t)


def test_the_example_of_a_compressed_volume_runs():
    """examples/compressed.json with the addresses, sockets and user of this test."""
    with open(os.path.join(os.environ["TOP_SRCDIR"], "examples", "compressed.json"), encoding="utf-8") as f:
        conf = json.load(f)
    t = target("a")
    conf["hosts"][0]["subsystems"][0]["ports"][0].update(traddr=t.addr[0], trsvcid=str(t.addr[1]))
    conf["vms"][0]["uid"] = os.getuid()
    del conf["control"], conf["shm"]
    with Initiator(conf) as i:
        rc, _, err = i.perf("vol0", "--rw", "randrw", "--bs", "16k", "--count", 500, "--verify",
                            "--compressible", 50)
        assert rc == 0, err
    stop(t)


if __name__ == "__main__":
    main(globals())
