#!/usr/bin/env python3
"""Discovery controllers in "hosts": paths come and go with what they tell, under load."""
import os
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from nvmetcp import *
from initiator import HOSTNQN, Initiator, hosts, volume

A, B = "nqn.2026-11.io.sluice:a", "nqn.2026-11.io.sluice:b"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def discovery(*ports, **settings):
    """What "hosts" is with discovery controllers there, and nothing else."""
    return hosts(*[(DISCOVERY_NQN, "127.0.0.1", p) for p in ports], keep_alive_tmo=2, **settings)


def me(*disks):
    return [{"name": "me", "disks": [{"volume": d} for d in disks]}]


def ports(i):
    """The paths there are: port -> state."""
    return {int(p["addr"].rpartition(":")[2]): p["state"] for p in i.ctl("paths")}


def subsystem(nqn, serial="S"):
    return {"nqn": nqn, "allowed_hosts": [], "attr": {"allow_any_host": "1", "serial": serial},
            "namespaces": [{"nsid": 1, "enable": 1, "device": {"path": "ram:64M"}}]}


def reads(i, name):
    return {v["name"]: v["reads"] for v in i.ctl("stats")["volumes"]}[name]


def goes_on(i, name):
    was = reads(i, name)
    until(lambda: reads(i, name) > was + 50, "the load to go on", 10 * SCALE)


def referral(port):
    return {"name": f"next{port}", "enable": 1,
            "addr": {"trtype": "tcp", "adrfam": "ipv4", "traddr": "127.0.0.1", "trsvcid": str(port),
                     "portid": "77", "treq": "not specified"}}


def remove_port(t, port):
    gone, = [p["portid"] for p in t.ctl("ports") if p["port"] == port]
    t.ctl("port.remove", portid=gone)


def test_paths_come_and_go_with_the_ports_of_a_target_under_load():
    disc = free_port()
    with Target(config({1: "ram:64M"}, nqn=A, sluice={"discovery_port": disc}), nqn=A) as t:
        first, second = t.addr[1], free_port()
        with Initiator({"reactors": 2, "hosts": discovery(disc), "volumes": [volume("v", t)],
                        "vms": me("v")}) as i:
            assert i.state("v") == "ready" and ports(i) == {first: "live"}, i.log()
            perf = i.load("v", "--rw", "randrw", "--verify", "--qd", 16, "--time", 300)
            goes_on(i, "v")
            t.ctl("port.add", listen=f"127.0.0.1:{second}")
            until(lambda: ports(i) == {first: "live", second: "live"}, "the new path", 10 * SCALE)
            goes_on(i, "v")
            remove_port(t, first)
            until(lambda: ports(i) == {second: "live"}, "the old path to go", 10 * SCALE)
            goes_on(i, "v")
            row, = i.ctl("discoveries")
            assert (row["state"], row["ways"], row["unusable"]) == ("live", 1, 0), row
            rc, _, err = perf.stop()
            assert rc == 0, err
            stats = i.ctl("stats")["volumes"][0]
            assert stats["errors"] == 0, stats
            assert "nobody tells of it any more" in i.log()


def test_a_way_that_is_discovered_later_compresses_as_its_volume_wants():
    disc = free_port()
    with Target(config({1: "ram:64M"}, nqn=A, sluice={"discovery_port": disc}), nqn=A) as t:
        with Initiator({"hosts": discovery(disc), "vms": me("v"),
                        "volumes": [volume("v", t, stages=[{"compress": "zstd", "level": 1}])]}) as i:
            until(lambda: i.state("v") == "ready", "the volume", 10 * SCALE)
            rc, _, err = i.perf("v", "--rw", "randrw", "--verify", "--compressible", 75, "--count", 500)
            assert rc == 0, err
            got = i.ctl("stats")["volumes"][0]["compression"]
            assert 0 < got["write_wire_bytes"] < got["write_raw_bytes"], got


def test_a_path_that_nobody_tells_of_is_kept_while_it_works_and_while_it_is_the_only_one():
    disc = free_port()
    conf = config({1: "ram:64M"}, nqn=A, hosts=[HOSTNQN], sluice={"discovery_port": disc})
    with Target(conf, nqn=A) as t, Target(config({1: "ram:16M"}, nqn=B), nqn=B) as b:
        port = t.addr[1]
        # B's discovery refers to A's: A has to be believed, and B forgets it
        b.conf["ports"][0]["referrals"] = [referral(disc)]
        b.write_conf(b.conf)
        b.ctl("reload")
        with Initiator({"hosts": discovery(b.addr[1]), "volumes": [volume("v", t)], "vms": me("v")}) as i:
            until(lambda: i.state("v") == "ready", "the volume", 10 * SCALE)
            assert ports(i) == {port: "live"}
            b.conf["ports"][0]["referrals"] = []
            b.write_conf(b.conf)
            b.ctl("reload")
            until(lambda: len(i.ctl("discoveries")) == 1, "the referral to be forgotten", 10 * SCALE)
            rc, _, err = i.perf("v", "--rw", "randrw", "--verify", "--count", 500)
            assert rc == 0, err
            assert ports(i) == {port: "live"}
            t.kill()
            until(lambda: ports(i) == {port: "reconnecting"}, "the loss to be seen", 10 * SCALE)
            perf = i.load("v", "--rw", "read", "--count", 100)
            t.conf["ports"][0]["addr"]["trsvcid"] = str(port)
            t.start()
            rc, _, err = perf.finish()
            assert rc == 0, err
            assert ports(i) == {port: "live"}


def test_a_referral_is_followed_one_level_and_comes_and_goes():
    with Target(config({1: "ram:64M"}, nqn=A), nqn=A) as a, \
            Target(config({1: "ram:16M"}, nqn=B, referrals=[referral(a.addr[1])]), nqn=B) as b, \
            Target(config({1: "ram:16M"}, nqn="nqn.x:c", referrals=[referral(b.addr[1])])) as c:
        with Initiator({"hosts": discovery(c.addr[1]), "volumes": [volume("b", b)], "vms": me("b")}) as i:
            until(lambda: i.state("b") == "ready", "the volume of the referral", 10 * SCALE)
            until(lambda: "1 referrals of its own are not followed" in i.log(), "it to be told", 5 * SCALE)
            assert sorted(p for p in ports(i)) == [b.addr[1]]
            rows = {r["addr"]: r for r in i.ctl("discoveries")}
            assert rows[f"127.0.0.1:{b.addr[1]}"]["referred_by"].endswith(f":{c.addr[1]}"), rows
            assert len(rows) == 2, rows
            i.sluicectl("volume", "add", "a", A + "/1")
            assert "no discovery controller knows a way" in \
                {v["name"]: v["why"] for v in i.ctl("volumes")}["a"]
            # two levels away no more
            c.conf["ports"][0]["referrals"].append(referral(a.addr[1]))
            c.write_conf(c.conf)
            c.ctl("reload")
            until(lambda: i.state("a") == "ready", "the second volume", 10 * SCALE)


def test_a_volume_waits_for_a_subsystem_that_comes_later():
    with Target(config({1: "ram:16M"}, nqn=B), nqn=B) as t:
        with Initiator({"hosts": discovery(t.addr[1]), "vms": me("v"),
                        "volumes": [volume("v", {"nqn": A, "nsid": 1})]}) as i:
            assert i.state("v") == "waiting" and "no discovery controller knows a way to it" in \
                i.ctl("volumes")[0]["why"], i.ctl("volumes")
            t.conf["subsystems"].append(subsystem(A))
            t.conf["ports"][0]["subsystems"].append(A)
            t.write_conf(t.conf)
            t.ctl("reload")
            until(lambda: i.state("v") == "ready", "the volume", 10 * SCALE)
            rc, _, err = i.perf("v", "--rw", "randrw", "--verify", "--count", 300)
            assert rc == 0, err


def test_a_discovery_controller_that_is_away_is_tried_again_and_what_it_told_stays():
    disc = free_port()
    with Target(config({1: "ram:64M"}, nqn=A), nqn=A) as a:
        conf = config({1: "ram:16M"}, nqn=B, ports=[(1, "127.0.0.1", None)], referrals=[referral(a.addr[1])])
        conf["ports"][0]["addr"]["trsvcid"] = str(disc)
        b = Target(conf, nqn=B, start=False)
        with Initiator({"hosts": discovery(disc), "volumes": [volume("v", a)], "vms": me("v")}) as i:
            row, = i.ctl("discoveries")
            assert row["state"] == "down" and "refused" in row["why"], row
            assert i.state("v") == "waiting"
            b.start()
            until(lambda: i.state("v") == "ready", "the volume", 10 * SCALE)
            b.kill()
            until(lambda: {r["state"] for r in i.ctl("discoveries")} == {"down", "live"}, "the loss", 10 * SCALE)
            rc, _, err = i.perf("v", "--rw", "randrw", "--verify", "--count", 300)
            assert rc == 0, err
            assert ports(i) == {a.addr[1]: "live"}
            b.start()
            until(lambda: {r["state"] for r in i.ctl("discoveries")} == {"live"}, "it to be back", 10 * SCALE)
            b.stop()


def test_a_reload_that_changes_hosts_changes_paths():
    with Target(config({1: "ram:64M"}, nqn=A, ports=[(1, "127.0.0.1", None), (2, "127.0.0.1", None)]), nqn=A) as t:
        one, two = (port for _, port in t.listening[:2])
        with Initiator({"hosts": hosts((A, "127.0.0.1", one)), "volumes": [volume("v", t)],
                        "vms": me("v")}) as i:
            assert ports(i) == {one: "live"}
            i.conf["hosts"] = hosts((A, "127.0.0.1", two))
            i.write_conf(i.conf)
            i.ctl("reload")
            until(lambda: ports(i) == {one: "live", two: "live"}, "the second path", 10 * SCALE)
            remove_port(t, one)
            until(lambda: ports(i) == {two: "live"}, "the first one to go", 10 * SCALE)


main(globals())
