"""A bad network between two namespaces: packets are lost, late and out of order, the link goes down.

Link(...) makes a second namespace (of its own process; the script is in the first, see enter()), joins the two, and
gives it a prefix for programs that are to run there. Where the kernel has netem the joint is a veth pair with netem
on both ends. Where it has not, the joint is a pair of tun devices, and this file, run as a program, carries the packets
from one to the other and does the same to them: forward().

Can fail: no right to make namespaces or devices. The reason is raised as NoLink.
"""
import atexit
import ctypes
import fcntl
import heapq
import os
import random
import select
import signal
import struct
import subprocess
import sys
import time

HERE, THERE = "10.9.0.1", "10.9.0.2"
MTU = 9000
TUNSETIFF, IFF_TUN_NO_PI = 0x400454CA, 0x1001
CLONE_NEWNET = 0x40000000
ENTERED = "SLUICE_TEST_NETNS"


class NoLink(Exception):
    """There can be none here."""


def run(*words, check=True):
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise NoLink(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done.returncode == 0


def enter():
    """Runs the script again in a network namespace of its own, if it can; Link() tells if it could not."""
    if os.environ.get(ENTERED):
        return
    os.environ[ENTERED] = "tried"
    for flags in ("-n", "-rn"):
        if run("unshare", flags, "true", check=False):
            os.environ[ENTERED] = "yes"
            os.execvp("unshare", ["unshare", flags, sys.executable, *sys.argv])


def has_netem():
    run("ip", "link", "add", "probe", "type", "veth", "peer", "name", "eborp", check=False)
    has = run("tc", "qdisc", "add", "dev", "probe", "root", "netem", "delay", "1ms", check=False)
    run("ip", "link", "del", "probe", check=False)
    return has


class Link:
    """loss and reorder in per cent, delay in ms, each way."""

    def __init__(self, loss=0, delay=0, reorder=0):
        if os.environ.get(ENTERED) != "yes":
            raise NoLink("no right to make a network namespace")
        self.loss, self.delay, self.reorder, self.forwarder = loss, delay, reorder, None
        # pylint: disable=consider-using-with
        self.holder = subprocess.Popen(["unshare", "-n", "sleep", "1000"])
        atexit.register(self.close)
        own = os.readlink("/proc/self/ns/net")
        end = time.monotonic() + 10
        while os.readlink(f"/proc/{self.holder.pid}/ns/net") == own:
            if self.holder.poll() is not None or time.monotonic() > end:
                raise NoLink("no second namespace")
            time.sleep(0.01)
        self.prefix = ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", "--"]
        self.there = THERE
        run("ip", "link", "set", "lo", "up")
        run(*self.prefix, "ip", "link", "set", "lo", "up")
        self.how = "netem" if has_netem() else "forwarder"
        (self.join_by_netem if self.how == "netem" else self.join_by_forwarder)()
        for prefix, address in (([], HERE), (self.prefix, THERE)):
            run(*prefix, "ip", "addr", "add", f"{address}/24", "dev", "joint")
            run(*prefix, "ip", "link", "set", "joint", "mtu", str(MTU), "up")

    def join_by_netem(self):
        run("ip", "link", "add", "joint", "type", "veth", "peer", "name", "joint", "netns", str(self.holder.pid))
        more = ["reorder", f"{100 - self.reorder}%"] if self.reorder and self.delay else []
        for prefix in ([], self.prefix):
            run(*prefix, "tc", "qdisc", "add", "dev", "joint", "root", "netem", "limit", "20000", "loss",
                f"{self.loss}%", "delay", f"{self.delay}ms", *more)

    def join_by_forwarder(self):
        # pylint: disable=consider-using-with
        self.forwarder = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), str(self.holder.pid), str(self.loss), str(self.delay),
             str(self.reorder)], stdout=subprocess.PIPE, text=True)
        if self.forwarder.stdout.readline() != "ready\n":
            raise NoLink("no tun device")

    def down(self):
        run("ip", "link", "set", "joint", "down")

    def up(self):
        run("ip", "link", "set", "joint", "up")

    def close(self):
        """What the forwarder did to the packets, or an empty string."""
        atexit.unregister(self.close)
        told = ""
        if self.forwarder:
            self.forwarder.send_signal(signal.SIGTERM)
            told = self.forwarder.communicate()[0].strip()
            self.forwarder = None
        run("ip", "link", "del", "joint", check=False)
        self.holder.kill()
        self.holder.wait()
        return told

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# ---- the forwarder, a program of its own ----

def tun():
    """In the namespace that this process is in."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", b"joint", IFF_TUN_NO_PI))
    return fd


def both_ends(pid):
    here = tun()
    with open(f"/proc/{pid}/ns/net", "rb") as ns:
        if ctypes.CDLL(None, use_errno=True).setns(ns.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    return here, tun()


class Forwarder:
    def __init__(self, ends, loss, delay, reorder):
        self.ends, self.loss, self.delay, self.reorder = ends, loss / 100, delay / 1000, reorder / 100
        self.late, self.rng = [], random.Random(1)  # (due, number, end, packet)
        self.count = {"packets": 0, "lost": 0, "overtook": 0}

    def take(self, end):
        """All packets that are there, up to a bound."""
        for _ in range(64):
            try:
                packet = os.read(self.ends[end], MTU + 100)
            except OSError:  # nothing more, or the link is down
                return
            self.count["packets"] += 1
            if self.rng.random() < self.loss:
                self.count["lost"] += 1
                continue
            due = time.monotonic() + self.delay
            if self.late and self.rng.random() < self.reorder:
                self.count["overtook"] += 1
                due = 0
            heapq.heappush(self.late, (due, self.count["packets"], 1 - end, packet))

    def give(self):
        now = time.monotonic()
        while self.late and self.late[0][0] <= now:
            _, _, end, packet = heapq.heappop(self.late)
            try:
                os.write(self.ends[end], packet)
            except OSError:  # its queue is full, or the link is down: lost as on any wire
                self.count["lost"] += 1

    def run(self):
        while True:
            wait = max(0, self.late[0][0] - time.monotonic()) if self.late else 1
            ready = select.select(self.ends, [], [], wait)[0]
            for end in (0, 1):
                if self.ends[end] in ready:
                    self.take(end)
            self.give()


def main():
    pid, loss, delay, reorder = sys.argv[1:]
    forwarder = Forwarder(both_ends(pid), float(loss), float(delay), float(reorder))

    def stop(*_):
        print(", ".join(f"{v} {k}" for k, v in forwarder.count.items()), flush=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    print("ready", flush=True)
    forwarder.run()


if __name__ == "__main__":
    main()
