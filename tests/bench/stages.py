#!/usr/bin/env python3
"""What a stage costs: a volume with it beside the same volume without, and beside the cipher alone. A Markdown table.

  ./run ../../tests/bench/stages.py [--time SECONDS] [--rounds N]

Both volumes are on null: namespaces of one target, of 4096-byte blocks, in one initiator of one reactor; the target on
core 0, initiator and sluice-perf on core 1. Runs alternate, and a ratio is the median of the ratios of neighbours, since
such machines drift. Reads of the encrypted volume decrypt zeroes, which takes as long as anything else. The cipher
alone is "openssl speed" on core 1, blocks of 4096 bytes.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib"), HERE]
import daemon
from initiator import Initiator, hosts, volume
from measure import CLIENT_CPU, SERVER_CPU, cpu_seconds, json_of


BLOCK = 4096
KEYS = {"aes-128-xts": 32, "aes-256-xts": 64}
SHAPES = [(rw, bs, qd) for rw in ("randread", "randwrite") for bs in (4096, 131072) for qd in (32,)]
median = statistics.median


def cipher_alone(name, seconds):
    """GB/s of one core."""
    done = subprocess.run(["taskset", "-c", str(CLIENT_CPU), "openssl", "speed", "-elapsed", "-seconds", str(max(1, round(seconds))),
                           "-bytes", str(BLOCK), "-evp", name], capture_output=True, text=True, timeout=120, check=True)
    return float(re.search(rf"^{name}\s+([\d.]+)k", done.stdout, re.MULTILINE | re.IGNORECASE).group(1)) / 1e6


def run(i, name, shape, seconds):
    """I/Os a second, and the initiator's CPU microseconds for each."""
    rw, bs, qd = shape
    cpu = cpu_seconds(i.pid)
    got = json_of(["taskset", "-c", CLIENT_CPU, daemon.find_program("sluice-perf", "initiator/client"), "--socket", i.shm,
                   "--volume", name, "--rw", rw, "--bs", bs, "--qd", qd, "--time", f"{seconds * 1e3:.0f}ms", "--json", "--quiet"])
    assert got["errors"] == 0, got
    return got["all"]["iops"], (cpu_seconds(i.pid) - cpu) / got["all"]["ops"] * 1e6


def rows(i, seconds, rounds, alone):
    for name, speed in alone.items():
        for shape in SHAPES:
            pairs = [(run(i, "plain", shape, seconds), run(i, name, shape, seconds)) for _ in range(rounds)]
            plain, staged = [[median(v) for v in zip(*side)] for side in zip(*pairs)]
            ratio = median(s[0] / p[0] for p, s in pairs)
            cost = median(s[1] - p[1] for p, s in pairs)
            limit = shape[1] / speed / 1e3
            yield [name, shape[0], f"{shape[1] >> 10} KiB", shape[2], f"{plain[0] / 1e3:.1f}", f"{staged[0] / 1e3:.1f}",
                   f"**{ratio:.2f}**", f"{plain[1]:.2f}", f"{staged[1]:.2f}", f"{limit:.2f}", f"{limit / cost:.2f}" if cost > 0 else "-"]


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--time", type=float, default=0.5)
    args.add_argument("--rounds", type=int, default=5)
    args = args.parse_args()
    spaces = {n: "null:1G" for n in range(1, 2 + len(KEYS))}
    conf = daemon.config(spaces)
    for space in conf["subsystems"][0]["namespaces"]:
        space.setdefault("sluice", {})["block_size"] = BLOCK
    t = daemon.Target(conf, prefix=["taskset", "-c", str(SERVER_CPU)])
    volumes = [volume("plain", (t, 1))]
    for n, (name, size) in enumerate(KEYS.items(), 2):
        path = os.path.join(t.dir, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
            f.write(os.urandom(size))
        volumes.append(volume(name, (t, n), stages=[{"encrypt": "aes-xts", "key_file": path}]))
    alone = {name: cipher_alone(name, args.time) for name in KEYS}
    with Initiator({"hosts": hosts(t), "reactors": [CLIENT_CPU], "volumes": volumes,
                    "vms": [{"name": "me", "disks": [v["name"] for v in volumes]}]}) as i:
        print("| stage | load | block | depth | plain k/s | staged k/s | ratio "
              "| CPU us: plain | staged | cipher alone us | alone / added |")
        print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
        for row in rows(i, args.time, args.rounds, alone):
            print("| " + " | ".join(map(str, row)) + " |", flush=True)
    problem = t.stop()
    assert not problem, problem


if __name__ == "__main__":
    main()
