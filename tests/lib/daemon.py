"""Starts the real sluice-target for a test, watches it, stops it by its pid.

Target(...) runs it with arguments or with a configuration (a dict in nvmetcli's format) and waits
for its "listening on" lines. Its output is kept; a death, a sanitizer report or a valgrind
error makes check() speak, and runner.py asks after every test. SLUICE_WRAPPER or RUN_VALGRIND=1 run
it in valgrind.
Nothing outlives the script: stop_all() runs at exit.
"""
import atexit
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
SLOW = os.environ.get("RUN_VALGRIND") or os.environ.get("SLUICE_WRAPPER")
SCALE = float(os.environ.get("TIMEOUT_SCALE", "10" if SLOW else "1"))
NQN = "nqn.2026-11.io.sluice:test"
SICK = re.compile(r"Sanitizer|runtime error:|Assertion .* failed|SUMMARY: |==\d+== .*(Invalid|uninit|"
                  r"lost|ERROR SUMMARY: [1-9])")
VALGRIND = "valgrind -q --error-exitcode=99 --leak-check=full --trace-children=no"
_all = []
_addresses = []


def find_program(name, where):
    """An uninstalled program: $SLUICE_TARGET for the target, $SLUICE_BUILD, the build tree we run in."""
    env = os.environ.get("SLUICE_TARGET")
    if name == "sluice-target" and env:
        return env
    roots = [os.environ.get("SLUICE_BUILD"), os.environ.get("TOP_BUILDDIR"), os.getcwd(), TOP]
    for root in roots:
        path = os.path.join(root, where, name) if root else ""
        if path and os.access(path, os.X_OK):
            return path
    sys.exit(f"{name} not found: build first, or set SLUICE_BUILD")


def sanitizer_env():
    """Freed memory that AddressSanitizer holds back would look like a leak to tests of memory."""
    old = os.environ.get("ASAN_OPTIONS", "")
    return {"ASAN_OPTIONS": f"{old}:quarantine_size_mb=4:malloc_context_size=10".lstrip(":")}


def config(namespaces=None, *, nqn=NQN, hosts=None, ports=None, referrals=(), sluice=None,
           serial="SLUICETEST01", attr=None, extra_subsystems=()):
    """A configuration in nvmetcli's format. namespaces: {nsid: device path or dict};
    hosts: NQNs that may connect, None for any; ports: (portid, traddr, subsystem NQNs or None)."""
    def subsystem(name, spaces, allowed, ser):
        return {"nqn": name, "allowed_hosts": list(allowed or []),
                "attr": {"allow_any_host": "1" if allowed is None else "0", "serial": ser,
                         **(attr or {})},
                "namespaces": [{"nsid": n, "enable": 1,
                                "device": dev if isinstance(dev, dict) else {"path": dev}}
                               for n, dev in spaces.items()]}
    subs = [subsystem(nqn, namespaces or {1: "ram:64M"}, hosts, serial)]
    subs += [subsystem(*s) for s in extra_subsystems]
    names = [s["nqn"] for s in subs]
    known = sorted({h for s in subs for h in s["allowed_hosts"]})
    out = {"hosts": [{"nqn": h} for h in known],
           "ports": [{"portid": pid, "addr": {"trtype": "tcp", "traddr": traddr, "trsvcid": "0",
                                              "adrfam": "ipv6" if ":" in traddr else "ipv4",
                                              "treq": "not specified"},
                      "referrals": list(referrals), "subsystems": names if only is None else only}
                     for pid, traddr, only in ports or [(1, "127.0.0.1", None)]],
           "subsystems": subs, "sluice": {"discovery_port": 0, **(sluice or {})}}
    return out


def loopback():
    """An address of this machine that no other test uses now."""
    _addresses.append(None)
    number = (os.getpid() * 16 + len(_addresses)) % (250 * 250 * 250)
    return f"127.{1 + number // 62500}.{1 + number // 250 % 250}.{1 + number % 250}"


class Control:
    """JSON-RPC 2.0 on the daemon's control socket, one object a line."""

    def __init__(self, path, timeout=5 * SCALE):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(timeout)
        self.sock.connect(path)
        self.file, self.id = self.sock.makefile("rwb"), 0

    def call(self, method, **params):
        self.id += 1
        request = {"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}
        self.file.write(json.dumps(request).encode() + b"\n")
        self.file.flush()
        line = self.file.readline()
        assert line, f"control socket closed during {method}"
        answer = json.loads(line)
        assert answer.get("id") == self.id, answer
        if "error" in answer:
            raise ControlError(answer["error"].get("message", str(answer["error"])))
        return answer["result"]

    def close(self):
        self.file.close()
        self.sock.close()


class ControlError(AssertionError):
    """The daemon refused a control request."""


class Target:
    """A running sluice-target. conf: a dict, or None for the one-line form with args."""

    def __init__(self, conf=None, *args, nqn=NQN, start=True, prefix=(), env=None, limits=None):
        self.nqn, self.conf, self.args, self.prefix = nqn, conf, list(args), list(prefix)
        self.env, self.proc, self.listening, self.expect_death = env, None, [], False
        self.dir = tempfile.mkdtemp(prefix="sluice-test-")
        os.chmod(self.dir, 0o755)
        self.control = os.path.join(self.dir, "target.ctl")
        self.conf_path = os.path.join(self.dir, "target.json")
        if limits and conf is not None:
            conf["sluice"].update(limits)
        if start:
            self.start()

    def add_file(self, nsid, size="64M", **sluice):
        """Before start(): a namespace on a file of its own, in place of one with that id."""
        spaces = self.conf["subsystems"][0]["namespaces"]
        spaces[:] = [n for n in spaces if n["nsid"] != nsid]
        path = os.path.join(self.dir, f"disk{nsid}.img")
        spaces.append({"nsid": nsid, "enable": 1, "device": {"path": path},
                       "sluice": {"size": size, **sluice}})
        return path

    # life

    def command(self):
        words = [find_program("sluice-target", "target")]
        if self.conf is not None:
            self.conf["sluice"].setdefault("control", self.control)
            self.write_conf(self.conf)
            words += ["-c", self.conf_path]
        return words + self.args

    def write_conf(self, conf):
        with open(self.conf_path, "w", encoding="utf-8") as f:
            json.dump(conf, f, indent=1)

    def start(self, wait=True):
        wrapper = os.environ.get("SLUICE_WRAPPER",
                                 VALGRIND if os.environ.get("RUN_VALGRIND") else "")
        self.log_path = os.path.join(self.dir, f"log.{time.monotonic_ns()}")
        with open(self.log_path, "wb") as log:
            self.proc = subprocess.Popen([*self.prefix, *wrapper.split(), *self.command()], stdout=log,
                                         stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                         env={**os.environ, **sanitizer_env(), **(self.env or {})},
                                         start_new_session=True)
        _all.append(self)
        self.started = time.monotonic()
        if wait:
            self.wait_ready()

    def wait_ready(self):
        want = len(self.conf["ports"]) if self.conf else 1
        end = time.monotonic() + 10 * SCALE
        while True:
            self.listening = [(m[1].strip("[]"), int(m[2])) for m in re.finditer(
                r"listening on (\[[^\]]*\]|[^\s:]+):(\d+)", self.log())]
            if len(self.listening) >= want:
                self.ready_after = time.monotonic() - self.started
                return
            if self.proc.poll() is not None:
                _all.remove(self)
                raise AssertionError(f"the target did not start: {self.proc.returncode}\n"
                                     + self.log())
            assert time.monotonic() < end, "the target is not ready after 10 s\n" + self.log()
            time.sleep(0.005)

    def pin(self):
        """Further start()s listen where this one does. Best with loopback(): a port of 127.0.0.1 may be taken
        by somebody's connection meanwhile."""
        for port, (_, number) in zip(self.conf["ports"], self.listening):
            port["addr"]["trsvcid"] = str(number)
        return self

    @property
    def addr(self):
        return self.listening[0]

    @property
    def pid(self):
        return self.proc.pid

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="backslashreplace") as f:
            return f.read()

    def signal(self, sig):
        self.proc.send_signal(sig)

    def kill(self):
        """kill -9: a crash, on purpose."""
        if self in _all:
            _all.remove(self)
        self.proc.kill()
        self.proc.wait()

    def stop(self, timeout=10 * SCALE):
        """SIGTERM and a clean end; returns the text of what was wrong, or an empty string."""
        problem = self.stop_only(timeout) if self.proc else ""
        if not problem:
            shutil.rmtree(self.dir, ignore_errors=True)
        return problem

    def stop_only(self, timeout=10 * SCALE):
        """stop(), but its directory stays, for another start()."""
        if self in _all:
            _all.remove(self)
        problem = self.check()
        if self.proc.poll() is None:
            self.proc.send_signal(signal.SIGTERM)
            try:
                self.proc.wait(timeout)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
                return problem + f"the target ignored SIGTERM for {timeout} s\n" + self.tail()
            if self.proc.returncode:
                problem += f"the target ended with {self.proc.returncode}\n" + self.tail()
            elif not problem and SICK.search(self.log()):
                problem = "report at exit\n" + self.tail()
        return problem

    def check(self):
        """An empty string while it lives and is well."""
        if self.proc.poll() is not None:
            return f"the target died: {self.proc.returncode}\n" + self.tail()
        return "the target complains\n" + self.tail() if SICK.search(self.log()) else ""

    def tail(self, lines=14):
        return "".join("| " + s + "\n" for s in self.log().splitlines()[-lines:])

    # looking inside

    def connections(self):
        """Connections that belong to a controller."""
        return self.ctl("connections")

    def count(self):
        """All TCP connections, those in set-up too."""
        return self.ctl("status")["connections"]

    def controllers(self):
        return self.ctl("controllers")

    def ctl(self, method, **params):
        c = Control(self.control)
        try:
            return c.call(method, **params)
        finally:
            c.close()

    def rss(self):
        """Resident bytes."""
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def cpu_ticks(self):
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as f:
            fields = f.read().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def fds(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def __enter__(self):
        return self

    def __exit__(self, etype, *_):
        problem = self.stop()
        assert etype or not problem, problem


class Shared:
    """One target for many tests of a script: started on first use, and again after a death."""

    def __init__(self, make):
        self.make, self.target = make, None

    def __call__(self):
        if self.target is None or self.target.proc.poll() is not None:
            self.target = self.make()
        return self.target


def check_all():
    """What is wrong with the daemons that run; the sick ones are stopped."""
    text = ""
    for target in list(_all):
        sick = target.check()
        if sick:
            text += sick
            _all.remove(target)
            if target.proc.poll() is None:
                target.proc.kill()
                target.proc.wait()
    return text


def tails():
    """The latest log lines of the daemons that run, for a failure that they may explain."""
    return "".join(t.tail(8) for t in _all)


def stop_all():
    return "".join(t.stop() for t in list(_all))


def _reap():
    for target in list(_all):
        if target.proc.poll() is None:
            target.proc.kill()
            target.proc.wait()


atexit.register(_reap)
