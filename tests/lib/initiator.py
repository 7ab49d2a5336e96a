"""Starts the real sluice-initiator for a test, as daemon.py does the target, and sluicectl and sluice-perf for it."""
import atexit
import json
import os
import signal
import subprocess
import tempfile
import time

from daemon import SCALE, Target, find_program

HOSTNQN = "nqn.2014-08.org.nvmexpress:uuid:2cd2c43b-a90a-45c1-a8cd-86b33ab273b5"


def hosts(*targets, **settings):
    """nvme-cli's JSON: one path to the subsystem of each target, or of each (nqn, addr, port)."""
    where = [t if isinstance(t, tuple) else (t.nqn, *t.addr) for t in targets]
    return [{"hostnqn": HOSTNQN, "hostid": HOSTNQN.rpartition(":")[2], "subsystems": [
        {"nqn": nqn, "ports": [{"transport": "tcp", "traddr": addr, "trsvcid": str(port),
                                "reconnect_delay": 1, **settings}]}
        for nqn, addr, port in where]}]


def volume(name, *members, **more):
    """Members are targets, (target, nsid), or what the file has."""
    def member(m):
        if isinstance(m, Target):
            return {"nqn": m.nqn, "nsid": 1}
        return {"nqn": m[0].nqn, "nsid": m[1]} if isinstance(m, tuple) else m
    return {"name": name, "members": [member(m) for m in members], **more}


class Initiator(Target):
    """A running sluice-initiator. conf: its file as a dict; control and shm are filled in."""

    def __init__(self, conf, *args, **kw):
        super().__init__(conf, *args, start=False)
        self.control = os.path.join(self.dir, "initiator.ctl")
        self.shm = os.path.join(self.dir, "shm.sock")
        self.conf_path = os.path.join(self.dir, "initiator.json")
        if kw.get("start", True):
            self.start()

    def command(self):
        self.conf.setdefault("control", self.control)
        self.conf.setdefault("shm", self.shm)
        self.write_conf(self.conf)
        return [find_program("sluice-initiator", "initiator"), "-c", self.conf_path, *self.args]

    def wait_ready(self):
        end = time.monotonic() + 10 * SCALE
        while "\nready\n" not in "\n" + self.log():
            assert self.proc.poll() is None, "the initiator did not start\n" + self.log()
            assert time.monotonic() < end, "the initiator is not ready after 10 s\n" + self.log()
            time.sleep(0.005)

    def state(self, name):
        return {v["name"]: v["state"] for v in self.ctl("volumes")}.get(name)

    def load(self, name, *args):
        """sluice-perf, started: a Load."""
        return Load(self.shm, name, args)

    def perf(self, name, *args, timeout=60 * SCALE):
        """sluice-perf to its end: exit status, its JSON, standard error."""
        return self.load(name, *args).finish(timeout)

    def sluicectl(self, *words):
        """What sluicectl --json prints."""
        done = subprocess.run([find_program("sluicectl", "common"), "-s", self.control, "--json", *words],
                              capture_output=True, text=True, timeout=20 * SCALE, check=False)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        return json.loads(done.stdout)

    def memory(self):
        """Resident bytes by kind, {"anon", "file", "shmem"}. Memory of VFs and queues is the clients' and
        counts as shmem."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
            rows = dict(line.split(":", 1) for line in f)
        return {kind[3:].lower(): int(rows[kind].split()[0]) << 10
                for kind in ("RssAnon", "RssFile", "RssShmem")}


class Load:
    """A running sluice-perf. It ends by itself, or stop() asks it to."""

    def __init__(self, socket, name, args):
        words = [find_program("sluice-perf", "initiator/client"), "--socket", socket,
                 "--volume", name, "--json", "--quiet", *[str(a) for a in args]]
        # Files and not pipes: nobody reads while it runs.
        self.files = [tempfile.TemporaryFile("w+", encoding="utf-8") for _ in range(2)]
        self.proc = subprocess.Popen(words, stdout=self.files[0], stderr=self.files[1],
                                     stdin=subprocess.DEVNULL)
        atexit.register(self.kill)

    def running(self):
        return self.proc.poll() is None

    def kill(self):
        if self.running():
            self.proc.kill()
            self.proc.wait()

    def stop(self, timeout=90 * SCALE):
        """SIGINT, then finish()."""
        if self.running():
            self.proc.send_signal(signal.SIGINT)
        return self.finish(timeout)

    def finish(self, timeout=60 * SCALE):
        """Exit status, its JSON, standard error."""
        try:
            self.proc.wait(timeout)
        finally:
            self.kill()
            atexit.unregister(self.kill)
        out, err = [f.seek(0) or f.read() for f in self.files]
        for f in self.files:
            f.close()
        assert "Sanitizer" not in err and "runtime error:" not in err, err
        return self.proc.returncode, json.loads(out or "null"), err


def target_books(targets):
    """What the namespaces of targets have counted, together."""
    spaces = [n for t in targets for n in t.ctl("stats")["namespaces"]]
    return {key: sum(n[key] for n in spaces) for key in ("read_bytes", "write_bytes", "errors")}


def books(i, *targets, before=None):
    """The counters of an initiator at rest and of all its targets (since before, if they have a past), none of
    which failed: they must add up to one and the same load. Returns sums."""
    def total(rows, key):
        return sum(r[key] for r in rows)
    assert i.sluicectl("grants") == {"grants": [], "not_listed": 0}
    stats = i.sluicectl("stats")
    paths, volumes, reactors = stats["paths"], stats["volumes"], stats["reactors"]
    assert total(stats["violations"], "count") == total(paths, "violations") == 0, stats["violations"]
    assert total(paths, "lost") == total(paths, "ddgst_errors") == total(volumes, "errors") == 0, stats
    if not total(volumes, "merged"):
        assert total(paths, "parts") == total(volumes, "parts"), stats
    assert total(reactors, "rx_direct") + total(reactors, "rx_staged") == total(reactors, "rx_bytes")
    served = target_books(targets)
    for key, was in (before or {}).items():
        served[key] -= was
    assert served["errors"] == 0, served
    for key in ("read_bytes", "write_bytes"):
        assert total(volumes, key) == served[key], (key, volumes, served)
    assert total(paths, "read_bytes") == total(volumes, "read_bytes"), stats
    assert total(reactors, "rx_bytes") > total(volumes, "read_bytes")
    return {"parts": total(paths, "parts"), "merged": total(volumes, "merged"),
            "ops": sum(total(volumes, k) for k in ("reads", "writes", "others")),
            **{k: total(volumes, k) for k in ("reads", "writes", "others", "read_bytes", "write_bytes")},
            **{k: total(reactors, k) for k in ("rx_direct", "rx_staged", "tx_bytes", "tx_zc_bytes")}}
