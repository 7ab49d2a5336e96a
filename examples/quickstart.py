"""The whole job in a few seconds: two targets, a volume striped over both, a verified load. See quickstart.

Happy path: start the daemons with the commands that a person would type; run sluice-perf, kill target b at
its first line of progress and start it again at the second; ask sluicectl what happened.
Fails (exit status 1, a sentence) when a daemon does not start, a command fails, a block is wrong, a grant is
left, or the counters do not add up.
"""
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
START = 20              # seconds that a daemon may take to start on a busy machine
NQN = "nqn.2026-11.io.sluice:"
HOSTNQN = "nqn.2014-08.org.nvmexpress:uuid:2cd2c43b-a90a-45c1-a8cd-86b33ab273b5"
LOAD = shlex.split("sluice-perf --socket shm.sock --volume vol0 --rw randrw --bs 256k --qd 16 --time 6s --verify")


def say(text=""):
    print(text, flush=True)


def check(holds, sentence):
    if not holds:
        sys.exit("quickstart: " + sentence)


class Daemon:
    """A command as it is typed, its output in a file; killed when this script ends, however it ends."""

    def __init__(self, command, ready, show=True):
        self.command, self.log = command, f"log.{time.monotonic_ns()}"
        if show:
            say("\n$ " + command)
        with open(self.log, "wb") as log:
            self.proc = subprocess.Popen(shlex.split(command), stdout=log, stderr=log)
        end = time.monotonic() + START
        while not (match := re.search(ready, self.output(), re.MULTILINE)):
            check(self.proc.poll() is None and time.monotonic() < end, f"{command} does not start\n" + self.output())
            time.sleep(0.01)
        self.ready = match
        if show:
            say("".join(f"  {line}\n" for line in self.output().splitlines() if " info: " not in line).rstrip())

    def output(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def kill(self):
        self.proc.kill()
        self.proc.wait()

    def end(self):
        self.proc.terminate()
        check(self.proc.wait(START) == 0, f"{self.command} did not end well\n" + self.output())


def start_target(name, port=0, show=True):
    return Daemon(f"sluice-target --listen 127.0.0.1:{port} --nqn {NQN}{name} file:{name}.img,size=128M",
                  r"listening on .*:(\d+)", show)


def write_config(*targets):
    """initiator.json; examples/initiator-two-targets.json is one to copy."""
    subsystems = [{"nqn": NQN + name, "ports": [{"transport": "tcp", "traddr": "127.0.0.1", "trsvcid": port,
                                                 "reconnect_delay": 1}]} for name, port in targets]
    conf = {"control": "ctl.sock", "shm": "shm.sock",
            "hosts": [{"hostnqn": HOSTNQN, "hostid": HOSTNQN[-36:], "subsystems": subsystems}],
            "volumes": [{"name": "vol0", "block": "32k", "members": [NQN + name for name, _ in targets]}],
            "vms": [{"name": "me", "uid": os.geteuid(), "disks": [{"volume": "vol0"}]}]}
    with open("initiator.json", "w", encoding="utf-8") as f:
        json.dump(conf, f, indent=2)


def load(b):
    """Runs LOAD with the death of target b in it; returns b's successor."""
    progress = 0
    say("\n$ " + shlex.join(LOAD))
    with subprocess.Popen(LOAD, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as perf:
        for line in perf.stdout:
            say("  " + line.rstrip())
            progress += re.match(r" *\d+ s  read ", line) is not None
            if progress == 1 and b.proc.poll() is None:
                b.kill()
                say("      --- kill -9 of target b: what it had not answered waits in the client's memory")
            elif progress == 2 and b.proc.poll() is not None:
                b = start_target("b", b.ready[1], show=False)
                say("      --- target b is started again: the initiator finds it and sends that again")
    check(perf.returncode == 0, "the load failed")
    check(progress > 2, "the machine is too slow: target b was not killed and started again meanwhile")
    return b


def sluicectl(verb):
    done = subprocess.run(["sluicectl", "-s", "ctl.sock", "--json", verb], capture_output=True, text=True,
                          check=False)
    check(done.returncode == 0, f"sluicectl {verb}: {done.stderr}")
    return json.loads(done.stdout)


def mib(n):
    return f"{n / MIB:,.1f} MiB"


def total(rows, key):
    return sum(row[key] for row in rows)


def report():
    stats, grants, status = sluicectl("stats"), sluicectl("grants"), sluicectl("status")
    (volume,), paths, reactors = stats["volumes"], stats["paths"], stats["reactors"]
    copied = total(reactors, "tx_zc_copied_bytes")
    zero_copy = total(reactors, "tx_zc_bytes") - copied
    violations, left = total(stats["violations"], "count"), len(grants["grants"])
    say("\nWhat went where, by sluicectl stats, grants and status:\n")
    say(f"  {'':9}  {'parts':>7}  {'read':>12}  {'written':>12}  {'lost and sent again':>19}")
    for p in paths:
        say(f"  member {p['nqn'][len(NQN):]:2}  {p['parts']:7}  {mib(p['read_bytes']):>12}  "
            f"{mib(p['write_bytes']):>12}  {p['lost']:19}")
    say(f"  vol0       {volume['parts']:7}  {mib(volume['read_bytes']):>12}  {mib(volume['write_bytes']):>12}\n")
    say(f"  sent        {mib(zero_copy)} zero-copy, {mib(copied)} copied by the kernel, "
        f"{mib(total(reactors, 'tx_bytes') - zero_copy - copied)} plain")
    say(f"  received    {mib(total(reactors, 'rx_direct'))} straight into the client's memory, "
        f"{mib(total(reactors, 'rx_staged'))} through staging")
    say(f"  grants      {left} left\n  violations  {violations}\n  errors      {volume['errors']}")
    say(f"  memory      {mib(status['resident_bytes'])} resident in the initiator, however much is in flight")
    check(left == 0 and violations == 0 and volume["errors"] == 0, "that should be 0 grants, violations and errors")
    check(total(paths, "parts") == volume["parts"] + total(paths, "lost"), "the parts do not add up")
    check(all(p["parts"] > 0 and p["read_bytes"] > 0 and p["write_bytes"] > 0 for p in paths), "a member has done "
          "nothing")


def main():
    with tempfile.TemporaryDirectory(prefix="sluice-quickstart-") as scratch:
        os.chdir(scratch)
        with start_target("a") as a, start_target("b") as b:
            write_config(("a", a.ready[1]), ("b", b.ready[1]))
            with Daemon("sluice-initiator -c initiator.json", r"^ready$") as initiator:
                with load(b) as b_again:
                    report()
                    for daemon in initiator, a, b_again:
                        daemon.end()
        os.chdir("/")
    say("\nIt works: every block came back as it was written, through the death of a target. A target on your own\n"
        "file or disk, for Sluice's initiator or any other NVMe/TCP host:\n\n"
        "  build/quickstart/run sluice-target --listen 0.0.0.0:4420 /path/of/file-or-device\n\n"
        "README.md goes on from here.")


main()
