"""The initiator against the wire limit; for tests/bench/run.

sluice-perf and the initiator share the core that the wire limit's client has to itself, the target has the
other. A volume has one member, or two in two subsystems of that target, each with its own connection.
"""
import json
import os
import re
import statistics
import subprocess
import sys

import daemon
from initiator import Initiator, hosts, volume
from measure import CLIENT_CPU, IN_CAPSULE, RAM_BYTES, SERVER_CPU, Shape, cpu_seconds

A, B = "nqn.2026-11.io.sluice:a", "nqn.2026-11.io.sluice:b"
VOLUMES = {"null": ("null", 1), "striped": ("null", 2), "ram": ("ram", 1)}      # what serves it, members
EVENTS = {"calls": "raw_syscalls:sys_enter", "kicks": "syscalls:sys_enter_write"}


def start(poll_us):
    """One target and one initiator, each with one reactor."""
    target = daemon.Target(daemon.config(
        {1: "null:64G", 2: f"ram:{RAM_BYTES >> 20}M", 3: "null:64G"}, nqn=A,
        extra_subsystems=[(B, {1: "null:64G"}, None, "SLUICETEST02")],
        sluice={"reactors": 1, "in_capsule": IN_CAPSULE, "poll_us": poll_us}),
        nqn=A, prefix=["taskset", "-c", str(SERVER_CPU)])
    members = {"null": [(target, 1)], "ram": [(target, 2)], "striped": [(target, 3), {"nqn": B, "nsid": 1}]}
    return target, Initiator({
        "reactors": [CLIENT_CPU], "poll_us": poll_us, "hosts": hosts((A, *target.addr), (B, *target.addr)),
        "volumes": [volume(name, *members[name], block="32k") for name in VOLUMES],
        "vms": [{"name": "bench", "uid": os.geteuid(), "disks": [{"volume": name} for name in VOLUMES]}]})


def json_of(words):
    """A program to its end: its JSON, and what it said on standard error."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stderr.strip()}")
    return json.loads(done.stdout), done.stderr


class VolumeShape(Shape):
    """Direction, block size, depth and volume; and the runs of both sides."""

    def __init__(self, rw, bs, qd, poll_us, name):
        super().__init__(rw, bs, qd, False, poll_us)
        self.name, (self.kind, self.members) = name, VOLUMES[name]
        self.runs, self.counts = [], {}

    def perf(self, initiator, *more):
        """The words that start sluice-perf on the client's core."""
        return ["taskset", "-c", str(CLIENT_CPU), daemon.find_program("sluice-perf", "initiator/client"),
                "--socket", initiator.shm, "--volume", self.name, "--json", "--quiet", "--rw", self.rw,
                "--bs", str(self.bs), "--qd", str(self.qd), *more]

    def run_volume(self, machine, initiator, seconds):
        def run():
            before = cpu_seconds(initiator.pid)
            got, _ = json_of(self.perf(initiator, "--time", f"{seconds * 1e3:.0f}ms"))
            ops = got["all"]["ops"]
            return {"iops": got["all"]["iops"],
                    "daemon_us": (cpu_seconds(initiator.pid) - before) / ops * 1e6,
                    "client_us": got["cpu"]["client_percent"] / 100 * got["seconds"] / ops * 1e6}

        self.runs.append(machine.undisturbed(run, initiator.pid))

    def measure(self, machine, initiator, runs, seconds):
        self.calibrate(machine, seconds)
        json_of(self.perf(initiator, "--time", "100ms"))
        for _ in range(runs):
            self.run_wire(machine, self.kind, seconds)
            self.run_volume(machine, initiator, seconds)
        self.count(initiator)

    def count(self, initiator):
        """System calls and wake-ups for each I/O, in runs of their own."""
        def events(load, *whose):
            got, counts = json_of(["perf", "stat", "-x,", "-e", ",".join(EVENTS.values()), *whose, "--", *load])
            return dict(zip(EVENTS, map(int, re.findall(r"^(\d+),", counts, re.MULTILINE)))), got["all"]["ops"]

        idle, _ = events(self.perf(initiator, "--count", "1"))
        client, ops = events(self.perf(initiator, "--time", "300ms"))
        calls, kicks = (client[k] - idle[k] for k in ("calls", "kicks"))
        served, served_ops = events(self.perf(initiator, "--time", "300ms"), "-p", str(initiator.pid))
        self.counts = {"daemon": served["calls"] / served_ops, "client": calls / ops,
                       "kicks": kicks / ops, "sleeps": (calls - kicks) / ops}

    def ratios(self):
        return [v["iops"] / w["iops"] for v, w in zip(self.runs, self.wire[self.kind])]

    def cells(self):
        def median(rows, what):
            return statistics.median(row[what] for row in rows)

        def each(count):            # I/Os for each of them
            return f"{1 / count:.1f}" if count * 1000 > 1 else "-"

        wire, r, c = self.wire[self.kind], self.ratios(), self.counts
        yield from (self.rw, f"{self.bs >> 10} KiB", str(self.qd), self.kind, str(self.members))
        yield from (f"{median(wire, 'iops') / 1e3:.1f}", f"{median(self.runs, 'iops') / 1e3:.1f}")
        yield from (f"**{statistics.median(r):.2f}**", f"{min(r):.2f}-{max(r):.2f}")
        yield from (f"{median(wire, 'client_cpu_us'):.2f}", f"{median(self.runs, 'daemon_us'):.2f}",
                    f"{median(self.runs, 'client_us'):.2f}", f"{c['daemon']:.3f}", f"{c['client']:.3f}",
                    each(c["kicks"]), each(c["sleeps"]))

    def summary(self):
        return (f"{self.name} {self.rw} {self.bs} depth {self.qd} poll {self.poll_us}: "
                f"{statistics.median(self.ratios()):.2f}")


def table(opts, machine, poll_us):
    """Measures all shapes with that poll_us; yields the lines of their table."""
    shapes = [VolumeShape(rw, bs, qd, poll_us, name)
              for name in opts.volumes for bs in opts.bs for rw in opts.rw for qd in opts.qd]
    target, initiator = start(poll_us)
    with target, initiator:
        for number, shape in enumerate(shapes, 1):
            shape.measure(machine, initiator, opts.runs, opts.time)
            print(f"[{number}/{len(shapes)}]", shape.summary(), file=sys.stderr, flush=True)
    how = f"spinning up to {poll_us} us before sleeping" if poll_us else "sleeping at once"
    yield from (f"## Target and initiator {how}", "")
    yield ("| | block | depth | served by | members | wire k/s | volume k/s | ratio | spread | CPU us: wire "
           "| daemon | client | syscalls: daemon | client | I/Os a wake-up: daemon | client |")
    yield "|---|--:|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    yield from ("| " + " | ".join(shape.cells()) + " |" for shape in shapes)
    yield ""


NOTES = """\
- *wire* is as above; its client has the core to itself that `sluice-perf` and the daemon share here. A volume of two
  members has two connections, *wire* has one.
- *CPU us* of *wire* are its client's. Those of the daemon and of the client are for each I/O of the volume; together
  they are what fits onto one core, and what they leave of it is waiting.
- *syscalls* are all of the daemon's, spinning too, and the client's, for each I/O.
- *I/Os a wake-up* are how many I/Os one write to the daemon's eventfd and one sleep of the client stand for: what is
  submitted at once takes at most one write, and a client sleeps at most once for what it takes at once. "-": none.
- A daemon that spins is in the way of a client on the same core. It learns that, and sleeps where only that client can
  bring work; each such change of threads costs both of them system calls, which this machine makes dear."""
