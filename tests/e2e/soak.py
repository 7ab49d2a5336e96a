#!/usr/bin/env python3
"""Mixed verified load for SOAK_SECONDS (20), with kill -9 and restart of one of two targets every SOAK_EVERY (30) seconds.

Two sluice-perf processes, two jobs each, on two volumes striped over both targets: reads and writes of all sizes, trims,
flushes. Nothing may fail, and at the end everything that was written is read once more.

    SOAK_SECONDS=600 ./run tests/e2e/soak.py
"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from nvmetcp import *
from daemon import loopback
import json
import runner
from initiator import Initiator, hosts, volume

SECONDS = float(os.environ.get("SOAK_SECONDS", "20"))
EVERY = min(float(os.environ.get("SOAK_EVERY", "30")), SECONDS / 4)
K, M = 1 << 10, 1 << 20
LOADS = {
    "small": ["--bs", "32k", "--bs-min", "512", "--sg", 3, "--qd", 32],
    "large": ["--bs", "1M", "--bs-min", "4k", "--sg", 17, "--qd", 8],
}


def target(name):
    nqn = f"nqn.2026-11.io.sluice:{name}"
    t = Target(config({}, nqn=nqn, ports=[(1, loopback(), None)]), nqn=nqn, start=False)
    t.add_file(1, "64M", direct="off")
    t.add_file(2, "64M", direct="off")
    t.start()
    return t.pin()


def initiator(targets):
    volumes = [volume("small", *[(t, 1) for t in targets], block="4k"),
               volume("large", *[(t, 2) for t in targets], block="64k")]
    return Initiator({"hosts": hosts(*targets), "reactors": 2, "volumes": volumes,
                      "vms": [{"name": "me", "disks": ["small", "large"]}]})


def crash(t, i):
    t.kill()
    t.start()
    until(lambda: all(p["state"] == "live" for p in i.ctl("paths")), "all paths to be back", 20)


def report(i, results, crashes):
    stats = i.sluicectl("stats")

    def total(rows, key):
        return sum(row[key] for row in stats[rows])
    print(f"     {SECONDS:.0f} s, {crashes} crashes: {sum(r['all']['ops'] for r in results.values())} commands, "
          f"{total('volumes', 'errors')} errors, {total('paths', 'violations')} violations, "
          f"{total('volumes', 'parts')} parts, {total('paths', 'lost')} sent again, "
          f"{total('volumes', 'read_bytes') / 1e6:.0f} MB read, "
          f"{total('volumes', 'write_bytes') / 1e6:.0f} MB written")
    for name, r in results.items():
        print(f"     {name}: {json.dumps({k: r[k]['ops'] for k in ('read', 'write')})}, {r['trims']} trims, "
              f"{r['flushes']} flushes, {r['verify']['checked']} blocks checked, {r['verify']['wrong']} wrong, "
              f"slowest command {r['all']['max_ns'] / 1e9:.2f} s")
    return stats


def test_mixed_load_with_a_restart_every_while_has_no_error_and_no_stale_byte():
    ab = [target("a"), target("b")]
    crashes = 0
    with initiator(ab) as i:
        begun = time.monotonic()
        loads = {name: i.load(name, "--rw", "randrw", "--rwmixread", 50, "--jobs", 2, "--trim", 2, "--flush", 50,
                              "--verify", "--sweep", "--time", f"{int(SECONDS)}s", *more)
                 for name, more in LOADS.items()}
        while (left := begun + SECONDS - time.monotonic()) > 0:
            time.sleep(min(EVERY, left))
            if left > EVERY:
                crash(ab[crashes % 2], i)
                crashes += 1
        done = {name: load.finish(120 * SCALE) for name, load in loads.items()}
        for name, (rc, result, err) in done.items():
            assert rc == 0 and result["errors"] == 0 and result["verify"]["wrong"] == 0, (name, err, result)
        until(lambda: i.ctl("status")["clients"] == 0, "the clients to go", 10)
        stats = report(i, {name: result for name, (_, result, _) in done.items()}, crashes)
        assert all(v["count"] == 0 for v in stats["violations"]), stats["violations"]
        assert all(v["errors"] == 0 for v in stats["volumes"]), stats["volumes"]
        assert i.sluicectl("grants") == {"grants": [], "not_listed": 0}
        # A part is sent once, and again whenever it was lost.
        assert sum(p["parts"] - p["lost"] for p in stats["paths"]) == sum(v["parts"] for v in stats["volumes"]), stats
    problem = "".join(t.stop() for t in ab)
    assert not problem and crashes > 0, problem


runner.LIMIT = max(runner.LIMIT, int((SECONDS + 120) * SCALE))
if __name__ == "__main__":
    main(globals())
