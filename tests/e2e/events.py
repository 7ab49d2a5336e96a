#!/usr/bin/env python3
"""sluicectl events: what both daemons tell those who watch them."""
import atexit
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from controller import Controller
from nvmetcp import *
from daemon import find_program
from initiator import Initiator, hosts, volume

A = "nqn.2026-11.io.sluice:a"


class Watch:
    """A sluicectl that listens; what it has printed so far."""

    def __init__(self, daemon, *options):
        self.path = os.path.join(daemon.dir, f"events.{len(os.listdir(daemon.dir))}")
        words = [find_program("sluicectl", "common"), "-s", daemon.control, *options, "events"]
        with open(self.path, "wb") as out:
            self.proc = subprocess.Popen(words, stdout=out, stderr=subprocess.PIPE)
        atexit.register(self.proc.kill)

    def lines(self):
        with open(self.path, encoding="utf-8") as f:
            return f.read().splitlines()

    def all(self, name):
        events = [json.loads(line) for line in self.lines()]
        return [e["params"] for e in events if e["method"] == name]

    def wait(self, name, **members):
        """The first event of that name with these members, once it has come."""
        def find():
            return [e for e in self.all(name) if members.items() <= e.items()]
        return until(find, f"{name} {members} in {self.lines()}", 10)[0]

    def end(self):
        """After its daemon: exit status and what it complains of."""
        _, err = self.proc.communicate(timeout=10 * SCALE)
        return self.proc.returncode, err.decode()


def started(t, *watches):
    """Makes news until all of them have heard some."""
    sizes = iter(range(65, 1000))

    def heard():
        t.ctl("ns.resize", nqn=A, nsid=1, size=f"{next(sizes)}M")
        return all(w.lines() for w in watches)
    until(heard, "all to listen", 10, step=0.1)


def test_loss_and_return_of_a_target_are_told_by_the_initiator():
    with Target(config({1: "ram:64M"}, nqn=A), nqn=A) as t:
        t.conf["ports"][0]["addr"]["trsvcid"] = str(t.addr[1])
        with Initiator({"hosts": hosts(t), "volumes": [volume("v", t)]}) as i:
            watch, human = Watch(i, "--json"), Watch(i)
            started(t, watch, human)
            grown = watch.wait("volume", volume="v", state="ready")
            assert grown["size"] > 64 << 20 and "512-byte blocks" in grown["text"], grown
            t.kill()
            name = f"{A} at 127.0.0.1:{t.addr[1]}"
            lost = watch.wait("path", path=name, state="reconnecting")
            assert lost["why"] and lost["text"] == f"{name}: live -> reconnecting: {lost['why']}", lost
            t.start()
            watch.wait("path", path=name, state="live", why="")
            until(lambda: any(f" path: {name}: reconnecting -> live" in s for s in human.lines()),
                  "a line for people", 10)
        assert watch.end()[0] == 1 and "closed the connection" in human.end()[1]


def test_violation_is_told_with_what_the_target_wanted():
    c = Controller(A)

    def behind_the_end(link, cmd):
        link.c2h(cmd.cid, cmd.len, bytes(4096), last=True)
    conf = {"hosts": hosts((A, *c.addr)), "vms": [{"name": "me", "disks": [{"volume": "v"}]}],
            "volumes": [{"name": "v", "members": [A + "/1"]}]}
    with Initiator(conf) as i:
        events = Control(i.control)
        events.call("subscribe")
        c.arm("read", behind_the_end)
        rc, out, err = i.perf("v", "--rw", "read", "--bs", "8k", "--qd", "1", "--count", "1")
        assert rc == 1 and out["statuses"] == [{"status": "004", "count": 1}], (out, err)
        said = {}
        while said.get("method") != "violation":
            said = json.loads(events.file.readline())
        v = said["params"]
        assert v["path"] == f"{A} at 127.0.0.1:{c.addr[1]}" and v["queue"] > 0, v
        assert (v["kind"], v["offset"], v["length"]) == ("range", 8192, 4096), v
        assert f"cid {v['cid']}, offset 8192, length 4096" in v["text"], v
        events.close()
    c.close()


def test_target_tells_of_hosts_faults_and_namespaces():
    with Target(config({1: "ram:64M"}, nqn=A), nqn=A) as t:
        watch = Watch(t, "--json")
        started(t, watch)
        host = Host(t, hostnqn="nqn.host:watched")
        came = watch.wait("controller", nqn=A, host="nqn.host:watched", state="connected")
        assert came["cntlid"] == host.cntlid and "nqn.host:watched" in came["text"], came
        host.close()
        watch.wait("controller", cntlid=host.cntlid, state="gone")
        bad = Conn(t.addr)
        bad.handshake()
        bad.send(pdu(H2C_DATA, bytes(16), b"x"))
        fault = watch.wait("fault", by="target")
        assert fault["peer"].startswith("127.0.0.1:") and fault["fes"] in fault["text"], fault
        bad.close()
        t.ctl("ns.add", nqn=A, nsid=2, device="ram:8M")
        watch.wait("namespace", nqn=A, nsid=2, state="there", size=8 << 20)
        t.ctl("ns.resize", nqn=A, nsid=2, size="16M")
        watch.wait("namespace", nqn=A, nsid=2, state="there", size=16 << 20)
        t.ctl("ns.remove", nqn=A, nsid=2)
        watch.wait("namespace", nqn=A, nsid=2, state="removed")


main(globals())
