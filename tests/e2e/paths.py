#!/usr/bin/env python3
"""Targets that die under an initiator: others do not notice, commands go another way or wait."""
import atexit
import os
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from nvmetcp import *
from daemon import find_program
from initiator import Initiator, hosts, volume

A, B = "nqn.2026-11.io.sluice:a", "nqn.2026-11.io.sluice:b"
DEPTH = 1024


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def target(nqn, port=0):
    return Target(None, "--listen", f"127.0.0.1:{port}", "--nqn", nqn, "ram:64M", nqn=nqn)


def me(*disks):
    return [{"name": "me", "disks": [{"volume": d} for d in disks]}]


def load(i, name, *args):
    """A sluice-perf that runs until it is done, or killed."""
    words = [find_program("sluice-perf", "initiator/client"), "--socket", i.shm, "--volume", name,
             "--quiet", *args]
    perf = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    atexit.register(perf.kill)
    return perf


def finish(perf):
    _, err = perf.communicate(timeout=40 * SCALE)
    assert perf.returncode == 0, err.decode()


def of_volume(i, name):
    return {v["name"]: v for v in i.ctl("stats")["volumes"]}[name]


def state(i, n):
    return i.ctl("paths")[n]["state"]


def test_dead_target_does_not_delay_commands_to_another():
    port = free_port()
    with target(B) as b:
        a = target(A, port)
        conf = {"reactors": 1, "hosts": hosts((A, "127.0.0.1", port), b),
                "volumes": [volume("dead", a, max_part="4k"), volume("live", b)],
                "vms": me("dead", "live")}
        with Initiator(conf) as i:
            a.kill()
            until(lambda: state(i, 0) == "reconnecting", "the loss to be seen", 10)
            stuck = [load(i, "dead", "--rw", "read", "--bs", "64k", "--qd", str(DEPTH), "--count",
                          str(DEPTH)) for _ in range(2)]
            until(lambda: of_volume(i, "dead")["parts"] > 8 * DEPTH, "many parts to wait", 10)
            for _ in range(2):
                rc, _, err = i.perf("live", "--rw", "randrw", "--bs", "64k", "--count", "200",
                                    "--verify", timeout=20 * SCALE)
                assert rc == 0, err
            dead = of_volume(i, "dead")
            assert dead["reads"] == dead["errors"] == 0, dead
            with target(A, port):
                for perf in stuck:
                    finish(perf)
            assert of_volume(i, "dead")["errors"] == 0


def test_waiting_commands_go_by_whichever_path_comes_first():
    conf = config({1: "ram:64M"}, nqn=A, ports=[(1, "127.0.0.1", None), (2, "127.0.0.1", None)])
    with Target(conf, nqn=A) as t:
        one, two = (f"127.0.0.1:{port}" for _, port in t.listening)
        ways = [(A, "127.0.0.1", port) for _, port in t.listening]
        with Initiator({"reactors": 1, "hosts": hosts(*ways), "volumes": [volume("v", t)],
                        "vms": me("v")}) as i:
            until(lambda: state(i, 0) == state(i, 1) == "live", "both paths", 10)
            perf = load(i, "v", "--rw", "randrw", "--verify", "--time", "60", "--count", "30000")
            until(lambda: of_volume(i, "v")["reads"] > 100, "load", 10)
            for port in t.ctl("ports"):
                if port["portid"] in (1, 2):
                    t.ctl("port.remove", portid=port["portid"])
            until(lambda: "live" not in (state(i, 0), state(i, 1)), "both paths to be lost", 10)
            t.ctl("port.add", listen=two)
            finish(perf)
            assert state(i, 0) == "reconnecting" and state(i, 1) == "live", (one, i.ctl("paths"))
            assert of_volume(i, "v")["errors"] == 0


main(globals())
