#!/usr/bin/env python3
"""Killed under load, a daemon starts again at once, on the same port and sockets."""
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

A = "nqn.2026-11.io.sluice:a"
ROUNDS = 10


old = Shared(lambda: Target(config({1: "ram:64M"}, nqn=A), nqn=A))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def reads(i):
    return i.ctl("stats")["volumes"][0]["reads"]


def load(i, *args):
    words = [find_program("sluice-perf", "initiator/client"), "--socket", i.shm, "--volume", "v",
             "--quiet", "--bs", "16k", "--qd", "64", "--time", "600", *args]
    perf = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    atexit.register(perf.kill)
    return perf


def world(t):
    return Initiator({"hosts": hosts(t), "volumes": [volume("v", t)],
                      "vms": [{"name": "me", "disks": [{"volume": "v"}]}]})


def test_initiator_that_is_killed_under_load_starts_again_at_once():
    with world(old()) as i:
        for _ in range(ROUNDS):
            perf = load(i, "--rw", "randrw")
            until(lambda: reads(i) > 50, "load", 10)
            i.kill()
            i.start()
            perf.wait(10 * SCALE)
            assert perf.returncode != 0


def test_target_that_is_killed_under_load_starts_again_at_once():
    conf = config({1: "ram:64M"}, nqn=A, ports=[(1, "127.0.0.1", None)])
    conf["ports"][0]["addr"]["trsvcid"] = str(free_port())
    with Target(conf, nqn=A) as t, world(t) as i:
        perf = load(i, "--rw", "randrw")
        for _ in range(ROUNDS):
            before = reads(i)
            until(lambda: reads(i) > before + 50, "load", 10)
            t.kill()
            t.start()
        assert perf.poll() is None
        perf.kill()
        perf.wait()


def hold(path, kind):
    """As a dead daemon whose ring still has its socket."""
    s = socket.socket(socket.AF_UNIX, kind)
    s.bind(path)
    s.listen()
    return s


def starts_when_free(daemon, held):
    """Starts it; it waits for each of what is held in turn, and is ready in the end."""
    daemon.start(wait=False)
    for n, s in enumerate(held, 1):
        until(lambda: daemon.log().count(" in use, ") == n, f"address {n} to be seen in use", 10)
        assert daemon.proc.poll() is None, daemon.log()
        s.close()
    daemon.wait_ready()
    daemon.ctl("status")


def test_target_waits_for_addresses_that_a_dead_one_still_holds():
    conf = config({1: "ram:64M"}, nqn=A, ports=[(1, "127.0.0.1", None)])
    with socket.socket() as tcp:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        conf["ports"][0]["addr"]["trsvcid"] = str(tcp.getsockname()[1])
        with Target(conf, nqn=A, start=False) as t:
            starts_when_free(t, [tcp, hold(t.control, socket.SOCK_STREAM)])


def test_initiator_waits_for_sockets_that_a_dead_one_still_holds():
    with Initiator({"hosts": [], "volumes": []}, start=False) as i:
        starts_when_free(i, [hold(i.control, socket.SOCK_STREAM), hold(i.shm, socket.SOCK_SEQPACKET)])


def test_reload_does_not_wait_for_an_address_in_use():
    """It would hold up everybody else's commands."""
    t = old()
    with socket.socket() as tcp:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        time.sleep(max(0, t.started + 11 - time.monotonic()))  # no longer its start
        began = time.monotonic()
        try:
            t.ctl("port.add", listen=f"127.0.0.1:{tcp.getsockname()[1]}")
        except ControlError as e:
            assert "in use" in str(e), e
        else:
            raise AssertionError("the port was added")
        assert " in use, " not in t.log(), t.log()
        assert time.monotonic() - began < 3 * SCALE


main(globals())
