#!/usr/bin/env python3
"""What an I/O costs the daemons, in instructions and system calls, is no more than what figures.json has.

For each fixed conversation a daemon under callgrind talks with a peer in lock-step (peers.py). figures.json holds the
most that ten runs on a busy machine have cost; beyond that, INSTRUCTIONS and CALLS are allowed. No clock decides.
After a change that makes an I/O dearer on purpose, or cheaper, in the build directory:

  ./run ../../tests/guard/cost.py --record

Instructions are judged where compiler and flags are those of the record. Elsewhere system calls are.
"""
import json
import os
import re
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
os.environ.setdefault("TIMEOUT_SCALE", "6")
sys.path[:0] = [os.path.join(HERE, "..", "lib"), HERE]
from callgrind import Counter
from daemon import NQN, Shared, Target, config, find_program, stop_all
from initiator import Initiator, hosts, volume
from peers import CAPSULE, ShmClient, TcpHost, VhostDriver
from runner import Skip, main

FIGURES = os.path.join(HERE, "figures.json")
INSTRUCTIONS, CALLS = 1.15, 1.3         # times the recorded figure; runs differ by up to 7 % and 50 %, and three are tried
RECORD_RUNS = 10
DIGEST_NQN = "nqn.2026-11.io.sluice:digests"

SMALL = [(write, 4096, depth) for write in (False, True) for depth in (1, 32)]
BATCHES = [(write, 4096, 32) for write in (False, True)]
LARGE = [(write, 131072, 8) for write in (False, True)]
CONVERSATIONS = {                       # with whom: what
    "target_null": SMALL + LARGE,
    "target_ram": BATCHES,
    "target_digests": BATCHES + LARGE,
    "initiator_shm": SMALL + LARGE,
    "initiator_digests": BATCHES + LARGE,
    "initiator_vhost": BATCHES + LARGE,
}


class Scene:
    """Both daemons, one of them counted; the peers of that one, by name."""

    def __init__(self, counted):
        sluice = {"reactors": 1, "poll_us": 0, "in_capsule": CAPSULE}
        self.target = Target(config({1: "null:64M", 2: "null:64M", 3: "ram:64M"}, sluice=sluice,
                                    extra_subsystems=[(DIGEST_NQN, {1: "null:64M"}, None, "SLUICETEST02")]), start=False)
        if counted == "target":
            self.start_counted(self.target)
            self.peers = {"target_null": TcpHost(self.target, 1, False), "target_ram": TcpHost(self.target, 3, False),
                          "target_digests": TcpHost(self.target, 1, True)}
        else:
            self.target.start()
            self.start_counted(self.initiator())
            self.peers = {"initiator_shm": ShmClient(self.daemon, "plain"),
                          "initiator_digests": ShmClient(self.daemon, "digests"),
                          "initiator_vhost": VhostDriver(self.disk)}

    def start_counted(self, daemon):
        self.daemon = daemon
        self.counter = Counter(daemon.dir, os.path.basename(daemon.command()[0]))
        daemon.prefix = self.counter.prefix
        daemon.start()

    def initiator(self):
        addr = self.target.addr
        paths = hosts((NQN, *addr)) + hosts((DIGEST_NQN, *addr), hdr_digest=True, data_digest=True)
        paths[0]["subsystems"] += paths.pop()["subsystems"]
        self.disk = os.path.join(self.target.dir, "disk")
        return Initiator({"reactors": 1, "poll_us": 0, "hosts": paths,
                          "volumes": [volume("plain", (self.target, 1)), volume("vhost", (self.target, 2)),
                                      volume("digests", {"nqn": DIGEST_NQN, "nsid": 1})],
                          "vms": [{"name": "guard", "uid": os.getuid(), "disks": [
                              {"volume": "plain"}, {"volume": "digests"},
                              {"volume": "vhost", "vhost-user-blk": self.disk}]}]}, start=False)

    @property
    def proc(self):
        return self.daemon.proc

    def cost(self, who, write, size, depth):
        """Instructions by function, and system calls, for each I/O."""
        rounds = 256 // depth if size <= CAPSULE else 16
        self.peers[who].load(write, size, depth, 4)     # what is learnt is learnt
        return self.counter.cost(self.daemon, lambda: self.peers[who].load(write, size, depth, rounds), rounds * depth)


class Scenes(dict):
    def __missing__(self, counted):
        self[counted] = Shared(lambda: Scene(counted))
        return self[counted]


scenes = Scenes()


def build():
    """How the programs were made: what instructions depend on."""
    with open(find_program("sluice-target", "target"), "rb") as f:
        program = f.read()
    compiler = re.search(rb"clang version (\d+)", program) or re.search(rb"GCC: \([^)]*\) (\d+)", program)
    with open(os.path.join(os.environ.get("TOP_BUILDDIR", "."), "Makefile"), encoding="utf-8") as f:
        flags = {m[1]: m[2] for m in re.finditer(r"^(CFLAGS|SANITIZE_FLAGS) = ?(.*)$", f.read(), re.MULTILINE)}
    if flags.get("SANITIZE_FLAGS", "").strip():
        raise Skip("valgrind and sanitizers exclude each other")
    return f"{compiler[0].decode() if compiler else 'unknown'}, {flags.get('CFLAGS', '')}, {os.uname().machine}"


def name_of(who, write, size, depth):
    return f"{who}_{'write' if write else 'read'}_{size >> 10}k_depth_{depth}"


def measure(who, *what):
    """For each I/O: {"instructions", "calls"}, and the functions that cost most."""
    functions, calls = scenes[who.split("_")[0]]().cost(who, *what)
    top = sorted(functions.items(), key=lambda f: -f[1])[:12]
    return {"instructions": round(sum(functions.values())), "calls": round(calls, 3)}, top


def judge(name, recorded, attempt):
    """The least of three attempts: a busy machine cuts batches apart now and then, a change of ours does so always."""
    want, factors, got = recorded["figures"][name], {"calls": CALLS}, None
    if build() == recorded["build"]:
        factors["instructions"] = INSTRUCTIONS
    for _ in range(3):
        now, top = attempt()
        got = {kind: min(now[kind], got[kind]) for kind in now} if got else now
        worse = [kind for kind, factor in factors.items() if got[kind] > want[kind] * factor]
        if not worse:
            break
    for kind in got:
        how = f"at most {want[kind] * factors[kind]:.3f}" if kind in factors else f"not judged in a build by {build()}"
        print(f"     {name}: {got[kind]} {kind}, recorded {want[kind]}, {how}")
    assert not worse, f"more {' and '.join(worse)} for each I/O than recorded. What costs most: " + ", ".join(
        f"{function} {n:.0f}" for function, n in top) + ". If that is meant: tests/guard/cost.py --record"


def make_test(who, what):
    def test():
        if not shutil.which("valgrind"):
            raise Skip("valgrind is not installed")
        build()
        with open(FIGURES, encoding="utf-8") as f:
            judge(name_of(who, *what), json.load(f), lambda: measure(who, *what))
    return test


def record():
    """The most of ten runs, each with daemons of its own."""
    most = {}
    for run in range(RECORD_RUNS):
        for who, whats in CONVERSATIONS.items():
            for what in whats:
                got, _ = measure(who, *what)
                old = most.setdefault(name_of(who, *what), got)
                most[name_of(who, *what)] = {k: max(old[k], got[k]) for k in got}
        problem = stop_all()
        scenes.clear()
        if problem:
            sys.exit(problem)
        print(f"run {run + 1} of {RECORD_RUNS}", flush=True)
    with open(FIGURES, "w", encoding="utf-8") as f:
        json.dump({"made_by": "tests/guard/cost.py --record", "build": build(), "figures": most}, f, indent=1)
        f.write("\n")


for peer, several in CONVERSATIONS.items():
    for one in several:
        globals()[f"test_{name_of(peer, *one)}_costs_no_more_than_recorded"] = make_test(peer, one)

if "--record" in sys.argv:
    record()
else:
    main(globals())
