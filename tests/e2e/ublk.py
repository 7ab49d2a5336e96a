#!/usr/bin/env python3
"""Block devices where there is no ublk driver: one clear sentence, and nothing else suffers. With one:
tests/interop/ublk.sh."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from nvmetcp import *
from daemon import find_program
from initiator import Initiator, hosts, volume

NQN = "nqn.2026-11.io.sluice:u"
HINT = "ublk: /dev/ublk-control is not there: load the driver with \"modprobe ublk_drv\""


def need_no_driver():
    if os.path.exists("/dev/ublk-control"):
        raise Skip("there is a ublk driver here")


def conf(t, **more):
    return {"hosts": hosts(t), "volumes": [volume("v", t)], "vms": [{"name": "me", "disks": ["v"]}], **more}


def refused(i, method, says, **params):
    try:
        i.ctl(method, **params)
    except ControlError as e:
        assert says in str(e), f"'{says}' is not in '{e}'"
    else:
        raise AssertionError(f"{method} {params} was not refused")


def test_device_without_a_driver_is_refused_with_what_to_do():
    need_no_driver()
    with Target(config({1: "ram:16M"}, nqn=NQN), nqn=NQN) as t, Initiator(conf(t)) as i:
        refused(i, "ublk.add", HINT, volume="v")
        refused(i, "ublk.add", HINT, volume="v", queues=2, depth=16)
        refused(i, "ublk.del", "there is no ublk device '/dev/ublkb0'", name="/dev/ublkb0")
        assert i.ctl("ublk.list") == []
        assert i.state("v") == "ready"


def test_reload_with_a_device_says_why_and_goes_on():
    need_no_driver()
    with Target(config({1: "ram:16M"}, nqn=NQN), nqn=NQN) as t, Initiator(conf(t)) as i:
        i.write_conf({**i.conf, "ublk": ["v"]})
        refused(i, "reload", HINT)
        assert i.state("v") == "ready"


def test_start_with_a_device_ends_with_the_sentence():
    need_no_driver()
    with Target(config({1: "ram:16M"}, nqn=NQN), nqn=NQN) as t:
        i = Initiator(conf(t, ublk=[{"volume": "v"}]), start=False)
        done = subprocess.run(i.command(), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1, done
        assert "sluice-initiator: " + HINT in done.stderr, done.stderr
        assert "ready\n" not in done.stdout.splitlines(True), done.stdout


def test_parameters_of_a_device_are_judged():
    with Target(config({1: "ram:16M"}, nqn=NQN), nqn=NQN) as t, Initiator(conf(t)) as i:
        refused(i, "ublk.add", "queues: must be 1-64", volume="v", queues=65)
        refused(i, "ublk.add", "depth: must be 1-512", volume="v", depth=1000)
        words = [find_program("sluicectl", "common"), "-s", i.control, "ublk", "del", "v", "--depth", "4"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2 and "go with \"ublk add\" only" in done.stderr, done


main(globals())
