#!/usr/bin/env python3
"""What limits cost that are set and never reached: 4 KiB at depth 32 with them beside the same without. A Markdown table.

  ./run ../../tests/bench/limits.py [--time SECONDS] [--pairs N] [--realtime]

One target on core 0 with a null: namespace, one initiator on core 1 with a volume on it, sluice-perf beside it; one
reactor each. The same daemons run all the time: sluicectl sets the limits and takes them away. Runs alternate, which of a
pair is the first, too, and a ratio is the median of the ratios of the pairs, since such machines drift.
"""
import argparse
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib"), HERE]
import daemon
from initiator import HOSTNQN, Initiator, hosts, volume
from measure import CLIENT_CPU, SERVER_CPU, cpu_seconds, json_of

LIMITS = ["iops=2000000", "bandwidth=20G"]  # four times what a core reaches here
median = statistics.median


def qos(d, verb, names, *limits):
    for name in names:
        subprocess.run([daemon.find_program("sluicectl", "common"), "-s", d.control, "qos", verb, name, *limits],
                       check=True, timeout=20, stdout=subprocess.DEVNULL)


def run(d, i, rw, seconds):
    """I/Os a second, and CPU microseconds of d for each."""
    cpu = cpu_seconds(d.pid)
    got = json_of(["taskset", "-c", CLIENT_CPU, daemon.find_program("sluice-perf", "initiator/client"), "--socket", i.shm,
                   "--volume", "v", "--rw", rw, "--bs", 4096, "--qd", 32, "--time", f"{seconds * 1e3:.0f}ms", "--json", "--quiet"])
    assert got["errors"] == 0, got
    return got["all"]["iops"], (cpu_seconds(d.pid) - cpu) / got["all"]["ops"] * 1e6


def books(d, names):
    """Commands that were counted by these limits, none of which had to wait."""
    rows = [r for r in d.ctl("qos.show") if r["name"] in names]
    assert all(r["held"] == 0 for r in rows), rows
    return sum(r["passed"] for r in rows)


def pair(d, i, names, rw, seconds, limits_first):
    got = {}
    for limits in (limits_first, not limits_first):
        qos(d, "set" if limits else "clear", names, *(LIMITS if limits else ()))
        before = books(d, names)
        got[limits] = run(d, i, rw, seconds)
        assert (books(d, names) > before) == limits, (limits, before)
    qos(d, "clear", names)
    return got[False], got[True]


def row(d, i, what, names, rw, args):
    pairs = [pair(d, i, names, rw, args.time, bool(n % 2)) for n in range(args.pairs)]
    ratios = sorted(with_[0] / without[0] for without, with_ in pairs)
    without, with_ = [[median(v) for v in zip(*side)] for side in zip(*pairs)]
    return [what, rw.removeprefix("rand"), f"{without[0] / 1e3:.1f}", f"{with_[0] / 1e3:.1f}", f"**{median(ratios):.3f}**",
            f"{ratios[0]:.2f}-{ratios[-1]:.2f}", f"{without[1]:.3f}", f"{with_[1]:.3f}"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--time", type=float, default=0.5, help="seconds of a run")
    p.add_argument("--pairs", type=int, default=9)
    p.add_argument("--realtime", action="store_true", help="above all other programs: for a machine that is shared")
    args = p.parse_args()
    if args.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))
    t = daemon.Target(daemon.config({1: "null:1G"}), prefix=["taskset", "-c", str(SERVER_CPU)])
    with Initiator({"hosts": hosts(t), "reactors": [CLIENT_CPU], "volumes": [volume("v", t)],
                    "vms": [{"name": "me", "disks": ["v"]}]}) as i:
        print("| limits of | load | without k/s | with k/s | ratio | spread | CPU us of that daemon: without | with |")
        print("|---|---|--:|--:|--:|--:|--:|--:|")
        for rw in "randread", "randwrite":
            for d, what, names in ((i, "the initiator: volume and VM", ["v", "me"]),
                                   (t, "the target: namespace and host", [f"{t.nqn}/1", f"{t.nqn}/{HOSTNQN}"])):
                run(d, i, rw, args.time / 2)
                print("| " + " | ".join(row(d, i, what, names, rw, args)) + " |", flush=True)
    problem = t.stop()
    assert not problem, problem


if __name__ == "__main__":
    main()
