#!/usr/bin/env python3
"""sluice-initiator as its administrator sees it: start, volumes and VMs come and go, reload, stop."""
import atexit
import os
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from nvmetcp import *
from daemon import find_program
from initiator import Initiator, hosts, volume
import json
import signal

A, B = "nqn.2026-11.io.sluice:a", "nqn.2026-11.io.sluice:b"


def target(nqn, spec="ram:64M", **kw):
    return Target(config({1: spec}, nqn=nqn), nqn=nqn, **kw)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def refused(i, method, says, **params):
    try:
        i.ctl(method, **params)
    except ControlError as e:
        assert says in str(e), f"'{says}' is not in '{e}'"
    else:
        raise AssertionError(f"{method} {params} was not refused")


def me(*disks):
    return [{"name": "me", "disks": [{"volume": d} for d in disks]}]


def test_volume_over_two_targets_carries_a_verified_load():
    with target(A) as a, target(B) as b:
        with Initiator({"hosts": hosts(a, b), "volumes": [volume("v", a, b, block="32k")],
                        "vms": me("v")}) as i:
            assert "v: 128 MiB, 512-byte blocks, 2 members in stripes of 32K" in i.log(), i.log()
            rc, _, err = i.perf("v", "--rw", "randrw", "--bs", "64k", "--qd", "8", "--count", "2000",
                                "--verify")
            assert rc == 0, err
            stats = i.ctl("stats")
            assert sum(v["count"] for v in stats["violations"]) == 0, stats["violations"]
            v, = stats["volumes"]
            assert v["reads"] + v["writes"] >= 2000 and v["errors"] == 0, v
            assert v["parts"] == sum(p["parts"] for p in stats["paths"]), stats
            for p in stats["paths"]:
                assert p["parts"] > 500, stats["paths"]


def test_volume_waits_for_a_target_that_comes_later():
    port = free_port()
    conf = {"hosts": hosts((A, "127.0.0.1", port)), "vms": me("v"),
            "volumes": [{"name": "v", "members": [A + "/1"]}]}
    with Initiator(conf) as i:
        assert i.state("v") == "waiting"
        assert "v: waiting: " in i.log() and "refused" in i.log(), i.log()
        with Target(None, "--listen", f"127.0.0.1:{port}", "--nqn", A, "ram:64M", nqn=A):
            until(lambda: i.state("v") == "ready", "the volume to become ready", 10 * SCALE)
            rc, _, err = i.perf("v", "--rw", "write", "--count", "100")
            assert rc == 0, err


def test_volumes_and_vms_come_and_go():
    with target(A) as a, target(B) as b:
        with Initiator({"hosts": hosts(a, b), "volumes": [], "vms": []}) as i:
            assert i.ctl("volumes") == [] and i.ctl("vms") == [] and i.ctl("paths") == []
            refused(i, "volume.add", "no entry of \"hosts\" leads to", name="x", members=["nqn.x/1"])
            refused(i, "volume.add", "block: must be a power of two", name="x", members=[A],
                    block="33k")
            i.ctl("volume.add", name="v", members=[A, {"nqn": B}], block="4k", max_part="8k")
            until(lambda: i.state("v") == "ready", "the volume to become ready", 5 * SCALE)
            v, = i.ctl("volumes")
            assert v["stripe_bytes"] == 4096 and v["part_bytes"] == 8192 and v["members"] == 2, v
            assert [p["state"] for p in i.ctl("paths")] == ["live", "live"]
            refused(i, "volume.add", "is a member of volume 'v'", name="w", members=[B])
            refused(i, "volume.add", "there is a volume 'v' already", name="v", members=[B])
            refused(i, "vm.add", "there is no volume 'w'", name="m", disks=["w"])
            rc, _, err = i.perf("v", "--count", "1")  # nobody may come yet
            assert rc != 0 and f"uid {os.geteuid()}" in err, err
            i.ctl("vm.add", name="m", disks=["v"])
            refused(i, "vm.add", "is vm 'm' already", name="n", disks=["v"])
            rc, _, err = i.perf("v", "--rw", "randrw", "--count", "1000", "--verify")
            assert rc == 0, err
            refused(i, "volume.remove", "is a disk of vm 'm'", name="v")
            i.ctl("vm.remove", name="m")
            refused(i, "vm.remove", "there is no vm 'm'", name="m")
            i.ctl("volume.remove", name="v")
            until(lambda: i.ctl("paths") == [], "the paths to end", 5 * SCALE)
            until(lambda: a.count() == 0 and b.count() == 0, "the connections to close", 5 * SCALE)


def test_vm_that_is_removed_under_load_loses_its_client_only():
    with target(A) as a, target(B) as b:
        with Initiator({"hosts": hosts(a, b), "volumes": [volume("v", a), volume("w", b)],
                        "vms": me("v")}) as i:
            words = [find_program("sluice-perf", "initiator/client"), "--socket", i.shm, "--volume", "v",
                     "--time", "60", "--quiet"]
            with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as perf:
                atexit.register(perf.kill)
                until(lambda: i.ctl("stats")["volumes"][0]["reads"] > 100, "load", 10 * SCALE)
                assert i.ctl("vms")[0]["pid"] == perf.pid
                i.ctl("vm.remove", name="me")
                perf.wait(10 * SCALE)
                assert perf.returncode != 0 and perf.stderr.read()
            until(lambda: i.ctl("status")["clients"] == 0, "the client to go", 5 * SCALE)
            i.ctl("vm.add", name="me", disks=["w", "v"])
            rc, _, err = i.perf("v", "--count", "100")
            assert rc == 0, err


def test_reload_changes_only_what_differs():
    with target(A) as a, target(B) as b:
        conf = {"hosts": hosts(a, b), "volumes": [volume("v", a)], "vms": me("v")}
        with Initiator(conf) as i:
            before = {p["nqn"]: p["cntlid"] for p in i.ctl("paths")}
            conf["volumes"].append(volume("w", b, merge=True))
            conf["vms"] = me("v", "w")
            i.write_conf(conf)
            i.signal(signal.SIGHUP)
            until(lambda: i.state("w") == "ready", "the new volume", 5 * SCALE)
            paths = {p["nqn"]: p["cntlid"] for p in i.ctl("paths")}
            assert paths[A] == before[A] and set(paths) == {A, B}, (before, paths)
            assert i.ctl("vms")[0]["disks"] == "v, w"
            conf["volumes"][0]["qos"] = {"iops": [2, 1]}
            i.write_conf(conf)
            refused(i, "reload", "volumes[0].qos.iops: the peak must not be below")
            assert i.state("v") == i.state("w") == "ready"
            del conf["volumes"][0]
            conf["vms"] = me("w")
            i.write_conf(conf)
            i.ctl("reload")
            assert [v["name"] for v in i.ctl("volumes")] == ["w"]
            rc, _, err = i.perf("w", "--rw", "write", "--count", "100")
            assert rc == 0, err


def test_capacity_follows_the_namespace():
    with target(A) as a:
        with Initiator({"hosts": hosts(a), "volumes": [volume("v", a)], "vms": me("v")}) as i:
            assert i.ctl("volumes")[0]["size"] == 64 << 20
            a.ctl("ns.resize", nqn=A, nsid=1, size="96M")
            until(lambda: i.ctl("volumes")[0]["size"] == 96 << 20, "it to grow", 5 * SCALE)
            a.ctl("ns.resize", nqn=A, nsid=1, size="32M")
            until(lambda: "room for 32 MiB only" in i.log(), "it to be told", 5 * SCALE)
            assert i.ctl("volumes")[0]["size"] == 96 << 20


def test_discover_prints_what_the_target_tells():
    with target(A) as a, Initiator({"hosts": [], "volumes": []}) as i:
        log = i.ctl("discover", addr=f"127.0.0.1:{a.addr[1]}")
        row, = [r for r in log["records"] if r["subnqn"] == A]
        assert row["traddr"] == "127.0.0.1" and row["trsvcid"] == str(a.addr[1]), row
        assert row["trtype"] == "tcp" and row["subtype"] == "nvme subsystem", row
        refused(i, "discover", "refused", addr=f"127.0.0.1:{free_port()}")
        refused(i, "discover", "is no IPv4 or IPv6 address", addr="localhost")


def test_stop_does_not_wait_for_a_dead_target_for_ever():
    with target(A) as a:
        i = Initiator({"hosts": hosts(a), "volumes": [volume("v", a)], "vms": me("v")})
        words = [find_program("sluice-perf", "initiator/client"), "--socket", i.shm, "--volume", "v",
                 "--time", "60", "--quiet"]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as perf:
            atexit.register(perf.kill)
            until(lambda: i.ctl("stats")["volumes"][0]["reads"] > 100, "load", 10 * SCALE)
            a.signal(signal.SIGSTOP)
            began = time.monotonic()
            problem = i.stop(20 * SCALE)
            a.signal(signal.SIGCONT)
            assert not problem, problem
            assert time.monotonic() - began < 15 * SCALE
            perf.wait(10 * SCALE)
            assert perf.returncode != 0


def start_fails(conf, *args, says):
    i = Initiator(conf, *args, start=False)
    done = subprocess.run(i.command(), capture_output=True, text=True, timeout=20 * SCALE, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and says in done.stderr, done.stderr


def test_start_with_a_wrong_file_says_where():
    start_fails({"volumes": [{"name": "v", "members": [A]}], "hosts": []},
                says="volumes[0].members[0]: no entry of \"hosts\" leads to")
    start_fails({"hosts": [], "vms": [{"name": "x", "disks": [
        {"volume": "v", "vhost-user-blk": ""}]}]}, says="vms[0].disks[0].vhost-user-blk: ")
    start_fails({"hosts": [], "shm": "/nowhere/at/all/shm.sock"}, says="/nowhere/at/all/shm.sock")


def test_example_files_are_good():
    for name in "initiator-two-targets.json", "qos.json":
        example = os.path.join(os.environ.get("TOP_SRCDIR", "."), "examples", name)
        done = subprocess.run([find_program("sluice-initiator", "initiator"), "--check", "-c", example],
                              capture_output=True, text=True, timeout=20 * SCALE, check=False)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        with open(example, encoding="utf-8") as f:
            assert json.load(f)["volumes"]


main(globals())
