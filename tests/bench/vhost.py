#!/usr/bin/env python3
"""vhost-user-blk beside the shared-memory queue, and beside qemu-storage-daemon, on the same master.

  ./run ../../tests/bench/vhost.py [--time S] [--runs N] [--realtime]

A null namespace behind one target on the first core, one path over loopback, the initiator and whoever
loads it on the second: what is compared is the fronts. For each shape sluice-perf loads the volume
through its shared-memory queue and tests/bench/vhost through its socket, alternating; a ratio is the
median of the ratios of neighbouring runs. qemu-storage-daemon, on the first core, exports null-co,
without a network: not the same work, but what people use today. It is left out where it is not there.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import daemon
from initiator import Initiator, hosts, volume
from measure import CLIENT_CPU, SERVER_CPU

SIZE = 1 << 30
SHAPES = [(rw, bs, qd) for rw in ("read", "write") for bs in (4096, 131072) for qd in (1, 32, 128)]


def master(socket, rw, bs, qd, seconds):
    words = ["taskset", "-c", str(CLIENT_CPU), daemon.find_program("vhost", "tests/bench"), "-s", socket, "-b", str(bs), "-d", str(qd),
             "-t", str(seconds)] + (["-w"] if rw == "write" else [])
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stderr.strip()}")
    return json.loads(done.stdout)


def shm(i, rw, bs, qd, seconds):
    words = ["taskset", "-c", str(CLIENT_CPU), daemon.find_program("sluice-perf", "initiator/client"), "--socket", i.shm,
             "--volume", "v", "--rw", "rand" + rw, "--bs", str(bs), "--qd", str(qd), "--time", f"{seconds * 1e3:.0f}ms",
             "--json", "--quiet"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)[rw]["iops"]


class Qemu:
    """qemu-storage-daemon on null-co, or nothing."""

    def __init__(self, path):
        self.path, self.proc = path, None
        program = shutil.which("qemu-storage-daemon")
        if not program:
            return
        self.proc = subprocess.Popen([
            "taskset", "-c", str(SERVER_CPU), program, "--blockdev", f"null-co,node-name=n,size={SIZE}",
            "--export", f"vhost-user-blk,id=e,node-name=n,writable=on,addr.type=unix,addr.path={path}"])
        end = time.monotonic() + 10
        while not os.path.exists(path) and time.monotonic() < end and self.proc.poll() is None:
            time.sleep(0.01)

    def stop(self):
        if self.proc:
            self.proc.terminate()
            self.proc.wait()


def median(rows, key=None):
    return statistics.median(r[key] if key else r for r in rows)


def measure(i, socket, qemu, opts):
    print("| | block | depth | shm k/s | vhost k/s | ratio | kicks | interrupts | qemu k/s |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for rw, bs, qd in SHAPES:
        ours, beside, other = [], [], []
        for _ in range(opts.runs):
            beside.append(shm(i, rw, bs, qd, opts.time))
            ours.append(master(socket, rw, bs, qd, opts.time))
            if qemu.proc:
                other.append(master(qemu.path, rw, bs, qd, opts.time)["iops"])
        a, b = median(beside), median(ours, "iops")
        ratio = median([o["iops"] / s for o, s in zip(ours, beside)])
        print(f"| {rw} | {bs >> 10} KiB | {qd} | {a / 1e3:.1f} | {b / 1e3:.1f} | **{ratio:.2f}** | "
              f"{median(ours, 'kicks_per_io'):.3f} | {median(ours, 'calls_per_io'):.3f} | "
              f"{f'{median(other) / 1e3:.1f}' if other else '-'} |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--time", type=float, default=1, help="seconds of a run")
    p.add_argument("--runs", type=int, default=3, help="runs of each shape")
    p.add_argument("--poll-us", type=int, default=50, help="both daemons spin that long")
    p.add_argument("--realtime", action="store_true", help="above all other programs: for a machine that is shared")
    opts = p.parse_args()
    if opts.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    t = daemon.Target(daemon.config({1: f"null:{SIZE}"}, sluice={"poll_us": opts.poll_us}),
                      prefix=["taskset", "-c", str(SERVER_CPU)])
    with tempfile.TemporaryDirectory() as where:
        socket = os.path.join(where, "disk.sock")
        qemu = Qemu(os.path.join(where, "qemu.sock"))
        uid = os.getuid()
        i = Initiator({"reactors": [CLIENT_CPU], "hosts": hosts(t), "volumes": [volume("v", t)], "poll_us": opts.poll_us,
                       "vms": [{"name": "perf", "uid": uid, "disks": [{"volume": "v"}]},
                               {"name": "vm", "uid": uid, "disks": [{"volume": "v", "vhost-user-blk": socket}]}]})
        try:
            measure(i, socket, qemu, opts)
        finally:
            qemu.stop()
            problem = i.stop() + t.stop()
    sys.exit(problem)


main()
