#!/usr/bin/env python3
"""Limits through the whole: rates by the daemon's own books, changes under load, VMs that share, what is kept.

A slow machine may fall below a rate, never above it. So the ceiling is checked against the clock, from the outside;
the floor against the tokens: what was not used must still be there.
"""
import json
import os
import signal
import stat
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from nvmetcp import *
from daemon import find_program
from initiator import HOSTNQN, Initiator, Load, hosts, volume
import rawshm
import vhost

OTHER_UID = 65534


def target(**kw):
    return Target(config({1: "ram:64M", 2: "ram:64M"}), **kw)


def conf(t, vms=None, qos=None):
    return {"hosts": hosts(t), "reactors": 2,
            "volumes": [volume("v", (t, 1), **({"qos": qos} if qos else {})), volume("w", (t, 2))],
            "vms": vms or [{"name": "me", "disks": ["v", "w"]}]}


def show(i, name):
    return i.ctl("qos.show", name=name)[0]


def busy(i, name, rate, **limits):
    """A limit that load runs into: returns when its burst is used up."""
    i.ctl("qos.set", name=name, limits={"burst_ms": 500, **limits})
    tokens = "byte_tokens" if any("bandwidth" in k for k in limits) else "tokens"
    until(lambda: show(i, name)[tokens] < max(2, rate / 20), f"{limits} is reached", 20)


def check_rate(i, name, rate, *, seconds, bytes_=False):
    """Between two looks: no more than the rate and what was saved, and no less than that without what still is."""
    passed, tokens = ("passed_bytes", "byte_tokens") if bytes_ else ("passed", "tokens")
    slack = 2 * 65536 if bytes_ else 4  # one I/O that each reactor let pass before it was charged
    outer = time.monotonic()
    a = show(i, name)
    inner = time.monotonic()
    time.sleep(seconds)
    inner = time.monotonic() - inner
    b = show(i, name)
    outer = time.monotonic() - outer
    done = b[passed] - a[passed]
    most = rate * outer + a[tokens] - b[tokens] + slack
    least = rate * inner + a[tokens] - b[tokens] - slack
    assert done <= most * 1.001, (name, rate, done, most, a, b)
    if b[tokens] < rate * 0.4:  # else it was not asked for half a second: tokens have lapsed
        assert done >= least * 0.98, (name, rate, done, least, a, b)
    assert b["held"] > a["held"] and b["wait_max_ns"] > 0, (a, b)


def test_rates_are_kept_from_slow_to_fast_and_change_under_load():
    with target() as t, Initiator(conf(t)) as i:
        load = i.load("v", "--rw", "randread", "--qd", "32", "--jobs", "2", "--time", "60")
        for name in "me", "v":
            for rate in 50, 1000, 10000:
                busy(i, name, rate, iops=rate)
                check_rate(i, name, rate, seconds=1.5)
            busy(i, name, 8 << 20, bandwidth="8M", iops="none")
            check_rate(i, name, 8 << 20, seconds=1, bytes_=True)
            i.ctl("qos.clear", name=name)
        rc, out, err = load.stop()
        assert rc == 0 and out["errors"] == 0, (out, err)


def test_reads_and_writes_have_limits_of_their_own():
    with target() as t, Initiator(conf(t, qos={"write_iops": 200, "burst_ms": 0})) as i:
        load = [i.load("v", "--rw", kind, "--qd", "4", "--time", "60") for kind in ("randread", "randwrite")]
        until(lambda: show(i, "v")["held"] > 50, "writes are held", 20)
        stats = [i.ctl("stats")["volumes"][0] for _ in range(2) if not time.sleep(0.5)]
        reads, writes = (stats[1][k] - stats[0][k] for k in ("reads", "writes"))
        assert reads > 0 and writes <= 200 * 10, stats
        for one in load:
            rc, out, err = one.stop()
            assert rc == 0 and out["errors"] == 0, (out, err)


def test_a_thousand_changes_in_a_row_do_not_disturb_a_verified_load():
    with target() as t, Initiator(conf(t)) as i:
        load = i.load("v", "--rw", "randrw", "--bs", "8k", "--qd", "16", "--jobs", "2", "--verify", "--time", "60")
        until(lambda: i.ctl("stats")["volumes"][0]["reads"] > 0, "load")
        for n in range(1000):
            name = ("me", "v")[n % 2]
            if n % 7 == 0:
                i.ctl("qos.clear", name=name)
            else:
                i.ctl("qos.set", name=name, limits={
                    ("iops", "bandwidth", "read_iops", "write_bandwidth")[n % 4]: [2000 + n, 5000 + 31 * n % 9000]})
        for name in "me", "v":
            i.ctl("qos.clear", name=name)
        before = i.ctl("stats")["volumes"][0]["reads"]
        until(lambda: i.ctl("stats")["volumes"][0]["reads"] > before + 100, "nothing is held any more", 20)
        rc, out, err = load.stop()
        assert rc == 0 and out["errors"] == out["verify"]["wrong"] == 0, (out, err)
        assert all(r["waiting"] == 0 for r in i.ctl("qos.show"))


def test_a_vm_on_two_volumes_has_one_limit():
    with target() as t, Initiator(conf(t)) as i:
        loads = [i.load(name, "--qd", qd, "--time", "60") for name, qd in (("v", 64), ("w", 1))]
        busy(i, "me", 2000, iops=2000)
        check_rate(i, "me", 2000, seconds=2)
        assert all(v["reads"] > 100 for v in i.ctl("stats")["volumes"]), i.ctl("stats")["volumes"]
        for load in loads:
            rc, _, err = load.stop()
            assert rc == 0, err


def both_fronts_read(client, disk, done):
    """Keeps a shared-memory queue and a virtqueue of one VM full until done(); how much each has got."""
    queue, memory = client.queue(entries=64), client.memory(32 * 4096)
    held, shm, ring = set(), 0, []
    while not done():
        while len(held) < 16:
            held.add(queue.submit(2, 1, 8 * len(held), 8, [(memory.addr + 4096 * len(held), 4096)]))
        ring += [disk.submit(vhost.T_IN, 8 * n, n=4096) for n in range(16 - sum(not r.done for r in ring))]
        for cid, status in list(queue.reap().items()):
            assert status == [0], status
            held.remove(cid)
            del queue.done[cid]
            shm += 1
        disk.reap()
        assert all(r.status == vhost.S_OK for r in ring if r.done)
        time.sleep(0.002)
    return shm, sum(r.done for r in ring)


def test_a_vm_with_a_shared_memory_queue_and_a_vhost_disk_has_one_limit():
    rate, burst_ms = 200, 100
    vms = [{"name": "me", "uid": os.getuid(), "disks": ["v"], "qos": {"iops": rate, "burst_ms": burst_ms}}]
    with target() as t, Initiator(conf(t, vms), start=False) as i:
        socket = os.path.join(i.dir, "disk.sock")
        vms[0]["disks"].append({"volume": "w", "vhost-user-blk": socket})
        start = time.monotonic()
        i.start()
        client, disk = rawshm.Client(i.shm), vhost.Disk(socket)
        end = time.monotonic() + 2.5
        got = both_fronts_read(client, disk, lambda: time.monotonic() > end and show(i, "me")["passed"] > 250)
        books = show(i, "me")
        most = rate * (time.monotonic() - start + burst_ms / 1000) + 2  # one I/O for each reactor
        assert sum(got) <= books["passed"] <= most, (got, books, most)
        assert min(got) >= sum(got) / 5, got     # they take turns: neither is let starve
        disk.close()
        client.close()


def test_the_example_with_limits_runs():
    """examples/qos.json with the address, sockets and users of this test."""
    with open(os.path.join(os.environ["TOP_SRCDIR"], "examples", "qos.json"), encoding="utf-8") as f:
        example = json.load(f)
    nqn = example["hosts"][0]["subsystems"][0]["nqn"]
    with Target(config({1: "ram:64M"}, nqn=nqn), nqn=nqn) as t:
        example["hosts"][0]["subsystems"][0]["ports"][0].update(traddr=t.addr[0], trsvcid=str(t.addr[1]))
        del example["control"], example["shm"]
        example["vms"][0]["uid"] = os.getuid()
        with Initiator(example) as i:
            rows = {(r["kind"], r["name"]): r for r in i.sluicectl("qos", "show")}
            for kind, name, limits in (
                    ("volume", "vol0", {"iops": "20000-40000", "bandwidth": "200M-400M", "burst_ms": 10}),
                    ("vm", "vm1", {"iops": "10000-20000", "write_bandwidth": "100M", "burst_ms": 20}),
                    ("vm", "vm2", {"iops": "5000-20000", "bandwidth": "-"})):
                row = rows[kind, name]
                assert {k: row[k] for k in limits} == limits, row
            assert i.ctl("capacity.show")[0]["iops"] == "200000"
            rc, out, err = i.perf("vol0", "--rw", "randrw", "--qd", "64", "--time", "1")
            assert rc == 0 and out["errors"] == 0, (out, err)
            rows = {r["name"]: r for r in i.sluicectl("qos", "show")}
            assert rows["vm1"]["passed"] == rows["vol0"]["passed"] == out["all"]["ops"] > 0, (rows, out)
            assert rows["vm2"]["passed"] == 0, rows


def test_a_target_keeps_the_rates_of_namespaces_and_hosts():
    with target(limits={"reactors": 2}) as t:
        space, host = f"{t.nqn}/1", f"{t.nqn}/{HOSTNQN}"
        with Initiator(conf(t)) as i:
            loads = [i.load("v", "--rw", "randrw", "--verify", "--qd", "32", "--jobs", "2", "--time", "60"),
                     i.load("w", "--qd", "1", "--time", "60")]
            for name in space, host:
                for rate in 50, 5000:
                    busy(t, name, rate, iops=rate)
                    check_rate(t, name, rate, seconds=1.5)
                busy(t, name, 8 << 20, bandwidth="8M", iops="none")
                check_rate(t, name, 8 << 20, seconds=1, bytes_=True)
                t.ctl("qos.clear", name=name)
            for n in range(300):
                name = (space, host)[n % 2]
                t.ctl("qos.clear" if n % 7 == 0 else "qos.set", name=name, **({} if n % 7 == 0 else {"limits": {
                    ("iops", "bandwidth", "read_iops", "write_bandwidth")[n % 4]: 2000 + n}}))
            for name in space, host:
                t.ctl("qos.clear", name=name)
            until(lambda: all(r["waiting"] == 0 for r in t.ctl("qos.show")), "nothing is held any more", 20)
            for load in loads:
                rc, out, err = load.stop()
                assert rc == 0 and out["errors"] == 0, (out, err)
                assert out.get("verify", {}).get("wrong", 0) == 0, out


def load_of_other(i, *args):
    """sluice-perf as another user, who is another VM."""
    os.chmod(i.dir, 0o755)
    os.chmod(i.shm, 0o777)
    out = Load.__new__(Load)
    plain = subprocess.Popen

    def popen(words, **kw):
        return plain(words, user=OTHER_UID, group=OTHER_UID, extra_groups=[], **kw)
    subprocess.Popen = popen
    try:
        out.__init__(i.shm, "v", args)
    finally:
        subprocess.Popen = plain
    return out


def test_two_vms_share_a_volume_by_what_is_committed_to_them():
    if os.geteuid() != 0:
        raise Skip("needs root, to be two users")
    vms = [{"name": "me", "disks": ["v"], "qos": {"iops": [1500, 100000]}},
           {"name": "other", "uid": OTHER_UID, "disks": ["v"], "qos": {"iops": [500, 100000]}}]
    with target() as t, Initiator(conf(t, vms)) as i:
        loads = [i.load("v", "--qd", "16", "--time", "60"),
                 load_of_other(i, "--qd", "128", "--time", "60")]
        until(lambda: show(i, "other")["passed"] > 0 and show(i, "me")["passed"] > 0, "both are there", 20)
        busy(i, "v", 2000, iops=2000)
        before = [show(i, name)["passed"] for name in ("me", "other")]
        check_rate(i, "v", 2000, seconds=3)
        mine, others = (show(i, name)["passed"] - b for name, b in zip(("me", "other"), before))
        # Three to one where both can keep up; who cannot has the more depth, so it is not the smaller one.
        assert others > 300 and mine > others, (mine, others)
        for load in loads:
            rc, _, err = load.stop()
            assert rc == 0, err


def test_a_refund_lets_so_many_more_pass_and_leaves_the_rate():
    with target() as t, Initiator(conf(t)) as i:
        load = i.load("v", "--qd", "16", "--time", "60")
        busy(i, "me", 20, iops=20, burst_ms=0)
        before = show(i, "me")["passed"]
        start = time.monotonic()
        i.sluicectl("qos", "refund", "me", "700iops")
        until(lambda: show(i, "me")["passed"] >= before + 700, "the refund is used", 20)
        until(lambda: show(i, "me")["tokens"] < 1, "all of it", 20)
        done = show(i, "me")["passed"] - before
        assert done <= 700 + 20 * (time.monotonic() - start) + 4, done
        assert show(i, "me")["refunds"] == 700
        load.stop()


def test_a_client_that_goes_does_not_wait_for_what_is_held():
    with target() as t, Initiator(conf(t, qos={"bandwidth": 1024, "burst_ms": 0})) as i:
        load = i.load("v", "--bs", "128k", "--qd", "8", "--time", "60")
        until(lambda: show(i, "v")["waiting"] == 1, "it is held", 20)  # for two minutes
        load.proc.send_signal(signal.SIGKILL)
        until(lambda: i.ctl("status")["clients"] == 0, "the client is gone", 20)
        assert show(i, "v")["waiting"] == 0


def test_limits_are_kept_in_the_file_when_that_is_asked_for():
    with target() as t, Initiator(conf(t)) as i:
        os.chmod(i.conf_path, 0o600)
        with open(i.conf_path, encoding="utf-8") as f:
            before = json.load(f)
        i.sluicectl("qos", "set", "v", "iops=100,200", "bandwidth=1M", "--save")
        i.sluicectl("qos", "set", "me", "read_iops=7", "burst_ms=20", "--save")
        i.sluicectl("qos", "set", "me", "write_iops=8")
        with open(i.conf_path, encoding="utf-8") as f:
            after = json.load(f)
        assert stat.S_IMODE(os.stat(i.conf_path).st_mode) == 0o600
        before["volumes"][0]["qos"] = {"iops": [100, 200], "bandwidth": "1M"}
        before["vms"][0]["qos"] = {"read_iops": 7, "burst_ms": 20}
        assert after == before, after
        i.ctl("reload")
        row = show(i, "me")
        assert row["read_iops"] == "7" and row["write_iops"] == "-", row
        i.sluicectl("qos", "clear", "v", "--save")
        with open(i.conf_path, encoding="utf-8") as f:
            assert "qos" not in json.load(f)["volumes"][0]


def test_the_capacity_is_changed_live_and_kept_when_that_is_asked_for():
    def books():
        return i.ctl("capacity.show")[0]

    vms = [{"name": "me", "disks": ["v", "w"], "qos": {"iops": [10, 100000]}}]
    with target() as t, Initiator(conf(t, vms)) as i:
        load = i.load("v", "--qd", "16", "--time", "60")
        assert books()["iops"] == "-" and books()["tokens"] is None, books()
        i.sluicectl("capacity", "set", "iops=500", "bandwidth=1G", "--save")
        with open(i.conf_path, encoding="utf-8") as f:
            assert json.load(f)["capacity"] == {"iops": 500, "bandwidth": "1G"}
        until(lambda: books()["tokens"] < 4 and books()["held"] > 50, "it is used up", 20)
        before, start = show(i, "me")["passed"], time.monotonic()
        until(lambda: show(i, "me")["passed"] > before + 100, "what is idle still passes", 20)
        assert show(i, "me")["passed"] - before <= 500 * (time.monotonic() - start) + 10
        i.ctl("reload")         # the file says the same
        assert books()["iops"] == "500" and i.ctl("qos.show")[0]["kind"] == "capacity"
        i.sluicectl("capacity", "set", "iops=none", "bandwidth=none", "--save")
        until(lambda: show(i, "me")["waiting"] == 0 and books()["waiting"] == 0, "nothing waits for it any more", 20)
        with open(i.conf_path, encoding="utf-8") as f:
            assert "capacity" not in json.load(f)
        rc, out, err = load.stop()
        assert rc == 0 and out["errors"] == 0, (out, err)


def test_what_cannot_be_is_refused_in_a_sentence():
    def refused(says, method, **params):
        try:
            i.ctl(method, **params)
        except ControlError as e:
            assert says in str(e), f"'{says}' is not in '{e}'"
        else:
            raise AssertionError(f"{method} {params} was not refused")
    with target() as t, Initiator(conf(t, [{"name": "me", "disks": ["v"]}, {"name": "v", "uid": 1, "disks": []}])) as i:
        refused("there is no volume or vm 'x'", "qos.set", name="x", limits={"iops": 1})
        refused("'v' is a volume and a vm", "qos.set", name="v", limits={"iops": 1})
        refused("limits.iops: the peak must not be below", "qos.set", name="me", limits={"iops": [2, 1]})
        refused("limits", "qos.set", name="me", limits={"iosp": 1})
        refused("amount", "qos.refund", name="me", amount="lots")
        refused("must be one number", "capacity.set", limits={"iops": [1, 2]})
        refused("read_iops", "capacity.set", limits={"read_iops": 1})
        i.ctl("qos.set", name="vm:v", limits={"iops": 1})
        assert show(i, "volume:v")["iops"] == "-" and show(i, "vm:v")["iops"] == "1"
        done = subprocess.run([find_program("sluicectl", "common"), "-s", i.control, "qos", "set", "me", "iops"],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "'iops' is not of the form LIMIT=RATE" in done.stderr, done.stderr


main(globals())
