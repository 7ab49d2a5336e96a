#!/usr/bin/env python3
"""Verified load over a network that loses, delays and reorders packets, over links that go down, over cut connections.

tests/lib/link.py makes the network, with netem where the kernel has it. TCP repairs most of it; what it cannot is an
outage for the initiator. Nothing of it may cost a command or a byte.
"""
import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import link
link.enter()
from nvmetcp import *
from initiator import Initiator, hosts, volume

A, B = "nqn.2026-11.io.sluice:a", "nqn.2026-11.io.sluice:b"


def progress(i):
    v, = i.ctl("stats")["volumes"]
    return v["reads"] + v["writes"]


def moves(i, commands):
    goal = progress(i) + commands
    until(lambda: progress(i) >= goal, f"{commands} commands", 40)


def good(load, at_least):
    rc, result, err = load.finish(90 * SCALE)
    assert rc == 0 and result["errors"] == 0 and result["verify"]["wrong"] == 0, (err, result)
    assert result["all"]["ops"] >= at_least, result
    return result


def calm(i):
    stats = i.sluicectl("stats")
    assert all(v["count"] == 0 for v in stats["violations"]), stats["violations"]
    assert i.sluicectl("grants") == {"grants": [], "not_listed": 0}
    return sum(p["lost"] for p in stats["paths"])


def run_over(loss=0, delay=0, reorder=0, count=1200, during=None, load=(), **settings):
    try:
        net = link.Link(loss, delay, reorder)
    except link.NoLink as e:
        raise Skip(str(e)) from e
    with net, Target(config({1: "ram:16M"}, nqn=A, ports=[(1, net.there, None)]), nqn=A, prefix=net.prefix) as a, \
            Target(config({1: "ram:16M"}, nqn=B, ports=[(1, net.there, None)]), nqn=B, prefix=net.prefix) as b:
        with Initiator({"hosts": hosts(a, b, keep_alive_tmo=2, **settings), "volumes": [volume("v", a, b)],
                        "vms": [{"name": "me", "disks": ["v"]}]}) as i:
            running = i.load("v", "--rw", "randrw", "--rwmixread", 50, "--bs", "64k", "--bs-min", 512, "--sg", 5, "--qd",
                             32, "--verify", "--sweep", "--size", "8M", *(load or ["--count", count]))
            if during:
                during(net, i)
            result = good(running, count)
            lost = calm(i)
        print(f"     by {net.how}: {net.close()}; {result['all']['ops']} commands, {lost} sent again, slowest "
              f"{result['all']['max_ns'] / 1e9:.2f} s")
        return lost


def test_lost_packets_cost_no_command():
    run_over(loss=1)


def test_lost_packets_cost_no_command_with_digests():
    run_over(loss=1, count=800, hdr_digest=True, data_digest=True)


def test_delay_and_reordered_packets_cost_no_command():
    run_over(delay=5, reorder=2)


def test_loss_delay_and_reordering_together_cost_no_command():
    run_over(loss=1, delay=5, reorder=1, count=600)


def test_link_that_goes_down_under_load_costs_no_command():
    """For a moment, which TCP survives, and for longer than the keep alive allows."""
    def during(net, i):
        for seconds in (0.5, 5 * SCALE):
            moves(i, 200)
            net.down()
            time.sleep(seconds)
            net.up()
        moves(i, 200)
    lost = run_over(load=["--time", f"{int(10 * SCALE)}s"], count=400, during=during)
    assert lost > 0, "no part was on its way when the link was down for long"


class Proxy:
    """Carries TCP connections in pieces of at most chunk bytes, and cuts each after about so many bytes: with a reset,
    wherever in a PDU that is."""

    def __init__(self, to, chunk, cut, seed):
        self.to, self.chunk, self.cut, self.rng = to, chunk, cut, random.Random(seed)
        self.cuts, self.listener = 0, socket.create_server(("127.0.0.1", 0))
        self.addr = self.listener.getsockname()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                left = self.listener.accept()[0]
            except OSError:
                return
            try:
                right = socket.create_connection(self.to, 5)
            except OSError:
                left.close()
                continue
            budget = [self.rng.randint(self.cut // 2, self.cut * 3 // 2)]
            ends = (left, right)
            for s in ends:
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for one, other in (ends, ends[::-1]):
                threading.Thread(target=self.carry, args=(one, other, budget, ends), daemon=True).start()

    def carry(self, one, other, budget, ends):
        rng = random.Random(self.rng.random())
        try:
            while data := one.recv(rng.randint(1, self.chunk)):
                other.sendall(data[:max(0, budget[0])])
                budget[0] -= len(data)
                if budget[0] <= 0:
                    self.cuts += 1
                    break
        except OSError:
            pass
        for s in ends:  # a reset to both, and the other thread wakes
            try:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()


def run_cut(chunk, cut, at_least, seconds, **settings):
    link.run("ip", "link", "set", "lo", "up", check=False)
    with Target(config({1: "ram:16M"}, nqn=A), nqn=A) as a, Target(config({1: "ram:16M"}, nqn=B), nqn=B) as b:
        proxies = [Proxy(t.addr, chunk, cut, n) for n, t in enumerate((a, b))]
        where = [(t.nqn, *p.addr) for t, p in zip((a, b), proxies)]
        # A connection must live through the set-up of its controller, so the limit is above that.
        with Initiator({"hosts": hosts(*where, **settings), "volumes": [volume("v", a, b, block="4k")],
                        "vms": [{"name": "me", "disks": ["v"]}]}) as i:
            running = i.load("v", "--rw", "randrw", "--rwmixread", 50, "--bs", "64k", "--bs-min", 512, "--sg", 9, "--qd",
                             16, "--verify", "--sweep", "--size", "4M", "--time", f"{seconds}s")
            result = good(running, at_least)
            lost = calm(i)
        cuts = sum(p.cuts for p in proxies)
        print(f"     {cuts} connections cut, {result['all']['ops']} commands, {lost} sent again")
        for p in proxies:
            p.close()
        assert lost > 0 and cuts > 2, (lost, cuts)


def test_connections_cut_anywhere_in_a_pdu_cost_no_command():
    run_cut(64 << 10, 3 << 20, 100, 8)


def test_connections_that_trickle_and_are_cut_cost_no_command():
    run_cut(700, 1 << 20, 50, 8, hdr_digest=True, data_digest=True)


if __name__ == "__main__":
    main(globals())
