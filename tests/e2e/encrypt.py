#!/usr/bin/env python3
"""Encrypted volumes: what targets hold is AES-XTS of what clients wrote, and nothing else of it.

XTS is done again here, from IEEE 1619, with no more of a library than AES-ECB of the openssl command.
"""
import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from nvmetcp import *
from daemon import find_program, loopback
import blocks
import shm
from initiator import Initiator, hosts, volume

K, M = 1 << 10, 1 << 20
SIZE = 1 * M
STRIPE = 16 * K


def ecb(key, data, *words):
    return subprocess.run(["openssl", "enc", f"-aes-{len(key) * 8}-ecb", "-nopad", "-K", key.hex(), *words],
                          input=data, stdout=subprocess.PIPE, check=True).stdout


def xor(a, b):
    return (int.from_bytes(a, "little") ^ int.from_bytes(b, "little")).to_bytes(len(a), "little")


def tweaks(key, first, count, block):
    """T of each 16 bytes of these data units, IEEE 1619 section 5: alpha^j times AES of the number of the unit."""
    numbers = b"".join(n.to_bytes(16, "little") for n in range(first, first + count))
    starts, out = ecb(key, numbers), []
    for i in range(count):
        t = int.from_bytes(starts[16 * i:16 * i + 16], "little")
        for _ in range(block // 16):
            out.append(t.to_bytes(16, "little"))
            t = t << 1 ^ (0x87 | 1 << 128 if t >> 127 else 0)
    return b"".join(out)


def xts(key, data, block, *words):
    half = len(key) // 2
    t = tweaks(key[half:], 0, len(data) // block, block)
    return xor(ecb(key[:half], xor(data, t), *words), t)


def decrypt(key, data, block):
    return xts(key, data, block, "-d")


def test_the_xts_of_this_test_is_that_of_ieee_1619():
    """Vector 4, and the first block of it: the rest of this file rests on it."""
    key = bytes.fromhex("27182818284590452353602874713526" "31415926535897932384626433832795")
    out = xts(key, bytes(range(256)) * 2, 512)
    assert out.startswith(bytes.fromhex("27a7479befa1d476489f308cd4cfa6e2")), out[:16].hex()
    assert out.endswith(bytes.fromhex("0a282df920147beabe421ee5319d0568")), out[-16:].hex()
    assert decrypt(key, out, 512) == bytes(range(256)) * 2


# ---- the daemons ----

def target(name, size=SIZE, **more):
    t = Target(config({}, nqn=f"nqn.2026-11.io.sluice:{name}", ports=[(1, loopback(), None)]),
               nqn=f"nqn.2026-11.io.sluice:{name}", start=False)
    t.path = t.add_file(1, size, **more)
    t.start()
    return t.pin()


def key_file(where, key, mode=0o600):
    path = os.path.join(where, "vol0.key")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as f:
        f.write(key)
    os.chmod(path, mode)
    return path


def encrypted(targets, key_path, settings=None, **more):
    stage = {"encrypt": "aes-xts", "key_file": key_path, **more.pop("stage", {})}
    return Initiator({"hosts": hosts(*targets, ctrl_loss_tmo=600, **(settings or {})),
                      "volumes": [volume("v", *targets, block=STRIPE, stages=[stage], **more)],
                      "vms": [{"name": "me", "disks": ["v"]}], "reactors": 2})


def stop(*targets):
    problem = "".join(t.stop() for t in targets)
    assert not problem, problem


def raw(targets):
    out = []
    for t in targets:
        with open(t.path, "rb") as f:
            out.append(f.read())
    return out


def stats_of(i, name="v"):
    return next(v for v in i.ctl("stats")["volumes"] if v["name"] == name)


def check_members(i, targets, key, stripe=STRIPE):
    """The members' files hold no stamp of sluice-perf's; decrypted here they are what a client reads, and sound."""
    magic = blocks.MAGIC.to_bytes(8, "little")
    files = raw(targets)
    for content in files:
        assert magic not in content, "a target holds plain text"
    with shm.Disk(i.shm, "v", random.Random(1)) as disk:
        plain = decrypt(key, blocks.flat(files, stripe, disk.vol.size), disk.vol.block)
        blocks.same(disk.all(), plain, "the volume against its members' files, decrypted")
        found = blocks.judge_all(plain, "v", disk.vol.block, 3)
    assert len(found) > 50, len(found)


def moves(i, commands):
    done = lambda: stats_of(i)["reads"] + stats_of(i)["writes"]
    goal = done() + commands
    until(lambda: done() >= goal, f"{commands} commands", 30)


def crash(members, key, *load, settings=None, **more):
    """A verified load over members that are killed and started in turn."""
    targets = [target(n, **more.pop("target", {})) for n in "abc"[:members]]
    with encrypted(targets, key_file(targets[0].dir, key), settings, **more) as i:
        running = i.load("v", "--rw", "randrw", "--verify", "--sweep", "--flush", 100, "--time", "1h", *load)
        for t in targets:
            moves(i, 60)
            t.kill()
            t.start()
        moves(i, 100)
        rc, result, err = running.stop()
        assert rc == 0 and result["errors"] == 0 and result["verify"]["wrong"] == 0, (err, result)
        check_members(i, targets, key)
        stats = i.ctl("stats")
        assert not any(v["count"] for v in stats["violations"]), stats["violations"]
        v = stats_of(i)
        assert v["staged_out_bytes"] >= v["write_bytes"] and v["staged_in_bytes"] >= v["read_bytes"], v
        assert v["write_bytes"] > 0 and v["read_bytes"] > 0, v
    stop(*targets)


def test_verified_load_over_crashes_leaves_only_what_decrypts_on_three_members():
    crash(3, bytes(range(64)), "--bs", "32k", "--bs-min", 512, "--sg", 3, "--qd", 16)


def test_the_same_with_digests_a_small_key_and_no_more_staging_memory_than_a_part_needs():
    crash(2, bytes(range(32)), "--bs", "128k", "--sg", 9, "--qd", 16, settings={"hdr_digest": True, "data_digest": True},
          staging="64k", max_part="64k")


def test_zeroes_read_as_zeroes_and_discards_are_passed_only_when_asked_for():
    a = target("a")
    key = key_file(a.dir, bytes(range(64)))
    for discard in (False, True):
        with encrypted([a], key, stage={"discard": discard}) as i, shm.Disk(i.shm, "v", random.Random(2)) as disk:
            block = disk.vol.block
            disk.write(0, b"x" * 8 * block)
            assert disk.queue.io(shm.WRITE_ZEROES, disk.vol.nsid, 2, 4) == 0
            assert disk.read(0, 8 * block) == b"x" * 2 * block + bytes(4 * block) + b"x" * 2 * block
            assert bytes(16) not in raw([a])[0][:8 * block], "zeroes are there as they are"
    stop(a)


def test_another_key_reads_something_else():
    a = target("a")
    with encrypted([a], key_file(a.dir, bytes(range(64)))) as i, shm.Disk(i.shm, "v", random.Random(2)) as disk:
        disk.write(0, b"secret" * 1024)
    with encrypted([a], key_file(a.dir, bytes(range(1, 65)))) as i, shm.Disk(i.shm, "v", random.Random(2)) as disk:
        assert b"secret" not in disk.read(0, 6 * 1024)
    stop(a)


def test_a_key_that_will_not_do_is_refused_at_its_place():
    with target("a") as a:
        for mode, key, says in ((0o644, bytes(range(64)), "others may open it (mode 0644): chmod 0600"),
                                (0o600, bytes(range(48)), "not 48"), (0o600, bytes(64), "halves")):
            conf = {"hosts": hosts(a), "volumes": [volume("v", a, stages=[{"encrypt": "aes-xts", "key_file": "vol0.key"}])]}
            key_file(a.dir, key, mode)
            path = os.path.join(a.dir, "initiator.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump(conf, f)
            done = subprocess.run([find_program("sluice-initiator", "initiator"), "-c", path, "--check"],
                                  capture_output=True, text=True, timeout=20, check=False)
            assert done.returncode == 1, done
            assert "initiator.json:1: volumes[0].stages[0].key_file: " in done.stderr and says in done.stderr, done.stderr


# ---- the seal ----

SEAL = 4 * K
RIGHT, WRONG = bytes(range(64)), bytes(range(1, 65))
NOT_YET, NO_KEY = "not sealed yet: sluicectl volume seal v", "no seal that its key opens: another key, or not sealed yet"


def sealed(targets, key, **more):
    return encrypted(targets, key_file(targets[0].dir, key), stage={"seal": True}, **more)


def row(i, name="v"):
    return next(v for v in i.ctl("volumes") if v["name"] == name)


def waits(i, why):
    """Until it does; no command is let through then."""
    until(lambda: row(i)["why"] == why, why)
    assert (row(i)["state"], row(i)["size"]) == ("waiting", 0), row(i)
    with shm.Disk(i.shm, "v", random.Random(1)) as disk:
        for op in (shm.READ, shm.WRITE):
            status = disk.queue.io(op, disk.vol.nsid, 0, 1, [(disk.addr, 512)])
            assert status & 0x7ff == 0x82, f"{status:03x}"


def ready(i):
    until(lambda: i.state("v") == "ready", "the volume is ready", 15)


def refused(i, *words, says):
    done = subprocess.run([find_program("sluicectl", "common"), "-s", i.control, "volume", "seal", *words],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and says in done.stderr, done


def test_a_sealed_volume_knows_its_key_and_refuses_another_with_nothing_touched():
    targets = [target(n) for n in "abc"]
    with sealed(targets, RIGHT) as i:
        waits(i, NOT_YET)
        i.sluicectl("volume", "seal", "v")
        assert i.state("v") == "ready" and row(i)["size"] == 3 * SIZE - SEAL, row(i)
        rc, result, err = i.perf("v", "--rw", "randrw", "--bs", "16k", "--sweep", "--count", 600, "--verify")
        assert rc == 0 and result["verify"]["wrong"] == 0, (err, result)
        with shm.Disk(i.shm, "v", random.Random(1)) as disk:
            end = disk.vol.size // disk.vol.block
            for op in (shm.READ, shm.WRITE, shm.WRITE_ZEROES):
                for lba in (end, end + SEAL // disk.vol.block - 1):
                    assert disk.queue.io(op, disk.vol.nsid, lba, 1, [(disk.addr, 512)] if op < 3 else []) & 0x7ff == 0x80
        check_members(i, targets, RIGHT)
    before = raw(targets)
    whole = blocks.flat(before, STRIPE, 3 * SIZE)
    record = decrypt(RIGHT, whole, 512)[-512:]
    assert before[-1][-512:] == whole[-512:] and xor(record[16:26], record[:10]) == b"SLUICESEAL"
    with sealed(targets, WRONG) as i:
        waits(i, NO_KEY)
        refused(i, "v", says="neither zeroes nor a seal of this key")
        waits(i, NO_KEY)
    assert raw(targets) == before
    with sealed(targets, RIGHT) as i:
        ready(i)
        i.sluicectl("volume", "seal", "v")
        with shm.Disk(i.shm, "v", random.Random(1)) as disk:
            assert disk.read(0, 64 * K) == decrypt(RIGHT, whole[:64 * K], 512)
    assert raw(targets) == before
    with sealed(targets, WRONG) as i:
        i.sluicectl("volume", "seal", "--force", "v")
        assert i.state("v") == "ready"
    with sealed(targets, RIGHT) as i:
        waits(i, NO_KEY)
    stop(*targets)


def test_what_is_no_seal_is_not_overwritten_and_only_encrypted_volumes_have_one():
    a = target("a")
    with encrypted([a], key_file(a.dir, RIGHT)) as i, shm.Disk(i.shm, "v", random.Random(1)) as disk:
        disk.write(SIZE - 512, b"x" * 512)
        refused(i, "v", says="has no stage with \"seal\": true")
        refused(i, "w", says="there is no volume 'w'")
    before = raw([a])
    with sealed([a], RIGHT) as i:
        waits(i, NO_KEY)
        refused(i, "v", says="neither zeroes nor a seal of this key")
        assert raw([a]) == before
        i.sluicectl("volume", "seal", "--force", "v")
        assert row(i)["size"] == SIZE - SEAL, row(i)
    stop(a)


def test_a_volume_that_grows_takes_its_seal_along():
    a = target("a")
    with sealed([a], RIGHT) as i:
        i.sluicectl("volume", "seal", "v")
        a.ctl("ns.resize", nqn=a.nqn, nsid=1, size="2M")
        until(lambda: row(i)["size"] == 2 * SIZE - SEAL, "the volume has grown", 15)
    with sealed([a], RIGHT) as i:
        ready(i)
        assert row(i)["size"] == 2 * SIZE - SEAL, row(i)
    stop(a)


def test_a_seal_is_asked_for_again_when_its_target_is_back_and_a_volume_may_go_meanwhile():
    a, b = target("a"), target("b")
    with sealed([a, b], RIGHT) as i:
        i.sluicectl("volume", "seal", "v")
    b.proc.send_signal(signal.SIGSTOP)
    with sealed([a, b], RIGHT, settings={"keep_alive_tmo": 1}) as i:
        assert i.state("v") == "waiting"
        refused(i, "v", says="its members are not known yet")
        b.proc.send_signal(signal.SIGCONT)
        ready(i)
        stage = dict(i.conf["volumes"][0]["stages"][0])
        i.ctl("vm.remove", name="me")
        for n in range(30):
            i.ctl("volume.remove", name="v")
            i.ctl("volume.add", **{**i.conf["volumes"][0], "stages": [stage]})
        ready(i)
        i.ctl("volume.remove", name="v")
        i.ctl("volume.add", **{**i.conf["volumes"][0], "stages": [stage]})
        b.kill()
        until(lambda: any(p["state"] != "live" for p in i.ctl("paths")), "the path is lost", 15)
        b.start()
        ready(i)
        i.ctl("volume.remove", name="v")
        i.ctl("volume.add", **{**i.conf["volumes"][0], "stages": [stage]})
    stop(a, b)


def test_a_daemon_stops_and_a_path_ends_under_a_seal_that_is_being_written():
    a = target("a")
    for end in ("stop", "lost"):
        i = sealed([a], RIGHT, settings={"keep_alive_tmo": 1})
        waits(i, NOT_YET)
        a.proc.send_signal(signal.SIGSTOP)
        asking = subprocess.Popen([find_program("sluicectl", "common"), "-s", i.control, "volume", "seal", "v"],
                                  stderr=subprocess.PIPE, text=True)
        until(lambda: i.ctl("grants")["grants"], "the seal is asked for")
        if end == "stop":
            stop(i)
        _, err = asking.communicate(timeout=60)
        assert asking.returncode == 1 and (end == "stop" or "the path was lost" in err), err
        a.proc.send_signal(signal.SIGCONT)
        if end == "lost":
            waits(i, NOT_YET)
            stop(i)
    assert raw([a]) == [bytes(SIZE)]
    stop(a)


def test_the_example_of_an_encrypted_volume_runs():
    """examples/encrypted.json with the addresses, sockets and user of this test."""
    with open(os.path.join(os.environ["TOP_SRCDIR"], "examples", "encrypted.json"), encoding="utf-8") as f:
        conf = json.load(f)
    targets = [target(n) for n in "ab"]
    for sub, t in zip(conf["hosts"][0]["subsystems"], targets):
        sub["ports"][0].update(traddr=t.addr[0], trsvcid=str(t.addr[1]))
    key = bytes(range(64))
    conf["volumes"][0]["stages"][0]["key_file"] = key_file(targets[0].dir, key)
    conf["vms"][0]["uid"] = os.getuid()
    del conf["control"], conf["shm"]
    with Initiator(conf) as i:
        rc, _, err = i.perf("vol0", "--rw", "randrw", "--bs", "16k", "--count", 1000, "--verify")
        assert rc == 0, err
        v, = i.sluicectl("volumes")
        assert v["stage"] == "aes-256-xts", v
    stop(*targets)


if __name__ == "__main__":
    main(globals())
