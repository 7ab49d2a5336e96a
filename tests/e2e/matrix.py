#!/usr/bin/env python3
"""Verified load over both daemons, in every combination that matters of members, stripes, sizes, SG shapes, digests.

A row of the covering set is an initiator of its own over the same four targets: sluice-perf --verify first; then the
volume as a second client sees it, byte for byte, against the targets' files with the stripes undone here; then
random commands of that second client, against a flat copy that it keeps; then the counters of all daemons.
"""
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from nvmetcp import *
import blocks
import shm
from initiator import Initiator, books, hosts, target_books, volume

K, M = 1 << 10, 1 << 20
LOADED = 5 * M         # of a volume, by sluice-perf
FACTORS = {
    "members": (1, 2, 3, 8),
    "stripe": (4 * K, 32 * K, 256 * K, M),
    "bs": (4 * K, 512, 12 * K, 128 * K, M),
    "sg": (1, 2, 7, 1024),
    "digest": ("", "hdr_digest", "data_digest", "hdr_digest data_digest"),
    "max_part": (128 * K, 4 * K, M),
    "lba": (512, 4096),
    "reactors": (1, 2),
    "jobs": (1, 2),
    "more": ("", "merge", "placement", "zero_copy"),
}


def possible(row):
    """Also for rows that are not complete yet."""
    bs, lba, sg = row.get("bs", M), row.get("lba", 512), row.get("sg", 1)
    return bs >= lba and sg <= bs


def covering_set():
    """Rows that hold every possible pair of values of two factors; greedy, and always the same."""
    rng = random.Random(7)
    names = list(FACTORS)
    due = {((a, x), (b, y)) for i, a in enumerate(names) for b in names[i + 1:]
           for x in FACTORS[a] for y in FACTORS[b] if possible({a: x, b: y})}

    def pairs(row):
        return {((a, row[a]), (b, row[b])) for i, a in enumerate(names) for b in names[i + 1:]}

    def candidate(seed_pair):
        row = dict(seed_pair)
        for name in rng.sample(names, len(names)):
            if name in row:
                continue
            fits = [v for v in FACTORS[name] if possible({**row, name: v})]
            rng.shuffle(fits)
            row[name] = max(fits, key=lambda v: sum(
                1 for k, w in row.items() if ((k, w), (name, v)) in due or ((name, v), (k, w)) in due))
        return row

    rows = []
    while due:
        seed_pair = min(due, key=str)
        best = max((candidate(seed_pair) for _ in range(12)), key=lambda r: len(pairs(r) & due))
        due -= pairs(best)
        rows.append(best)
    return rows


class Farm:
    """Four targets that serve all rows; each has, for both block sizes, a large and a small namespace on files, no
    two of the same size. One target does direct I/O; disks are too slow for more."""

    def __init__(self):
        self.targets, self.files, self.sizes = [], {}, {}
        for n in range(4):
            t = Target(config({}, nqn=f"nqn.2026-11.io.sluice:{n}", sluice={"reactors": 1 + n % 2}),
                       nqn=f"nqn.2026-11.io.sluice:{n}", start=False)
            t.conf["subsystems"][0]["namespaces"] = []
            for nsid in (1, 2, 3, 4):
                self.sizes[t.nqn, nsid] = (5 * M if nsid % 2 else 2 * M) + 20 * K * n
                self.files[t.nqn, nsid] = t.add_file(nsid, self.sizes[t.nqn, nsid],
                                                     block_size=512 if nsid < 3 else 4096,
                                                     direct="off" if n else "auto")
            t.start()
            self.targets.append(t)

    def members(self, count, lba):
        """(NQN, nsid): over as many targets as there are, then their second namespaces."""
        first = 1 if lba == 512 else 3
        return [(self.targets[i % 4].nqn, first + i // 4) for i in range(count)]

    def wipe(self, members):
        """What an earlier row wrote is no error of this one."""
        for m in members:
            os.truncate(self.files[m], 0)
            os.truncate(self.files[m], self.sizes[m])

    def size(self, members, stripe):
        """Whole stripes, of the smallest member."""
        least = min(self.sizes[m] for m in members)
        return least if len(members) == 1 else least // stripe * stripe * len(members)

    def flat(self, members, stripe, size):
        contents = []
        for m in members:
            with open(self.files[m], "rb") as f:
                contents.append(f.read())
        return blocks.flat(contents, stripe, size)


farms = []


def farm():
    """One for all tests of this script."""
    if not farms:
        farms.append(Farm())
    return farms[0]


def initiator_for(f, row, *volumes):
    digests = {word: True for word in row["digest"].split()}
    conf = {"hosts": hosts(*f.targets, **digests), "reactors": row["reactors"], "volumes": list(volumes),
            "vms": [{"name": "me", "disks": [v["name"] for v in volumes]}]}
    if row["more"] == "placement":
        conf["placement"] = "direct"
    if row["more"] == "zero_copy":
        conf["zero_copy"] = "always"
    return Initiator(conf)


def volume_for(name, members, row):
    return volume(name, *[{"nqn": n, "nsid": k} for n, k in members], block=row["stripe"],
                  max_part=row["max_part"], merge=row["more"] == "merge")


def load_arguments(row):
    count = {512: 1500, 4 * K: 1500, 12 * K: 900, 128 * K: 250, M: 60}[row["bs"]]
    if row["sg"] == 1024:
        count = min(count, 300)
    return ["--rw", "randrw", "--rwmixread", 50, "--bs", row["bs"], "--sg", row["sg"], "--qd", 16, "--jobs",
            row["jobs"], "--count", count, "--size", LOADED, "--flush", 50, "--verify", "--sweep"]


def walk(disk, image, rng, rounds):
    """Random commands, against the flat copy of the volume."""
    unit, size = disk.vol.block, disk.vol.size
    for _ in range(rounds):
        most = min(rng.choice((4 * K, 64 * K, M)), disk.vol.max_transfer, size)
        length = rng.randint(1, most // unit) * unit
        at = rng.randint(0, (size - length) // unit) * unit
        extents = min(rng.choice((1, 2, 5, 60, 1024)), length)
        what = rng.random()
        if what < 0.45:
            data = rng.randbytes(length)
            disk.write(at, data, extents, fua=what < 0.1)
            image[at:at + length] = data
        elif what < 0.5:
            disk.command(shm.WRITE_ZEROES, at, length)
            image[at:at + length] = bytes(length)
        else:
            blocks.same(disk.read(at, length, extents), bytes(image[at:at + length]),
                        f"{length} bytes at {at} in {extents} extents")


def check_data(i, f, name, members, row, rng):
    """Against the targets' files, before and after commands of another client. Returns its commands."""
    size = f.size(members, row["stripe"])
    assert i.ctl("volumes")[0]["size"] == size, i.ctl("volumes")
    want = f.flat(members, row["stripe"], size)
    stamps = blocks.judge_all(want[:LOADED], name, row["lba"], 1 if row["lba"] == 4096 else 3)
    assert stamps, "sluice-perf wrote nothing"
    with shm.Disk(i.shm, name, rng) as disk:
        blocks.same(disk.all(), want, "the volume against its members' files")
        image = bytearray(want)
        walk(disk, image, rng, 25)
        disk.command(shm.FLUSH, 0, 0)
    blocks.same(f.flat(members, row["stripe"], size), bytes(image), "the files after the second client")
    return len(stamps)


def run_row(number, row):
    f, rng = farm(), random.Random(number)
    name = f"row{number}"
    members = f.members(row["members"], row["lba"])
    f.wipe(members)
    before = target_books(f.targets)
    with initiator_for(f, row, volume_for(name, members, row)) as i:
        rc, result, err = i.perf(name, *load_arguments(row))
        assert rc == 0, (row, err, result)
        assert result["verify"]["checked"] > 0 and result["verify"]["wrong"] == 0, (row, result)
        check_data(i, f, name, members, row, rng)
        until(lambda: i.ctl("status")["clients"] == 0, "the clients to go", 20)
        return books(i, *f.targets, before=before)


def row_test(number, row):
    def test():
        try:
            sums = run_row(number, row)
        except AssertionError as e:
            raise AssertionError(f"row {number}, {row}: {e}") from e
        print(f"     {', '.join(f'{k} {v}' for k, v in row.items())}: {sums['ops']} commands, {sums['parts']} parts")
    return test


for _number, _row in enumerate(covering_set()):
    globals()[f"test_row_{_number}_of_the_covering_set_keeps_data_and_counters_true"] = row_test(_number, _row)


def test_clients_at_once_with_volumes_of_their_own_do_not_disturb_each_other():
    f, rng = farm(), random.Random(0)
    row = {"digest": "", "reactors": 2, "more": ""}
    plan = {  # volume: members (target, nsid), stripe, load
        "a": ([(0, 1), (1, 1)], 64 * K, ["--rw", "randrw", "--bs", "64k", "--bs-min", 512, "--sg", 5, "--jobs", 2, "--trim", 5]),
        "b": ([(2, 1), (3, 1), (1, 2)], 4 * K, ["--rw", "randrw", "--bs", "12k", "--jobs", 3, "--flush", 20]),
        "c": ([(3, 2)], 4 * K, ["--rw", "write", "--bs", 512, "--qd", 64]),
        "d": ([(2, 2), (0, 2)], M, None),
    }
    members = {name: [(f.targets[t].nqn, nsid) for t, nsid in p[0]] for name, p in plan.items()}
    for m in members.values():
        f.wipe(m)
    volumes = [volume_for(name, members[name], {"stripe": p[1], "max_part": 128 * K,
                                                "more": "merge" if name == "c" else ""})
               for name, p in plan.items()]
    before = target_books(f.targets)
    with initiator_for(f, row, *volumes) as i:
        loads = {name: i.load(name, *p[2], "--verify", "--size", LOADED, "--time", "1h")
                 for name, p in plan.items() if p[2]}
        until(lambda: all(v["writes"] > 50 for v in i.ctl("stats")["volumes"][:3]), "load", 20)
        with shm.Disk(i.shm, "d", rng) as disk:
            image = bytearray(disk.vol.size)
            walk(disk, image, rng, 60)
            blocks.same(disk.all(), bytes(image), "volume d")
            assert all(load.running() for load in loads.values())
        for name, load in loads.items():
            rc, result, err = load.stop()
            assert rc == 0 and result["verify"]["wrong"] == 0, (name, err)
        for name, m in members.items():
            with shm.Disk(i.shm, name, rng) as disk:
                want = f.flat(m, plan[name][1], disk.vol.size)
                blocks.same(disk.all(), want, f"volume {name} against its members' files")
            if name != "d":
                assert blocks.judge_all(want[:LOADED], name, 512, 5), name
        until(lambda: i.ctl("status")["clients"] == 0, "the clients to go", 20)
        sums = books(i, *f.targets, before=before)
        print(f"     {sums['ops']} commands, {sums['parts']} parts, {sums['merged']} merged")
        assert sums["merged"] > 0, sums


def test_sweep_of_sluice_perf_finds_what_is_old_misplaced_or_damaged():
    """Something happens to the file behind everybody's back, and then the load ends."""
    f = farm()
    spoils = {
        "was written": lambda file, old: os.pwrite(file, old, 0),
        "holds LBA": lambda file, old: os.pwrite(file, os.pread(file, 128 * K, 0), 128 * K),
        "is wrong": lambda file, old: [os.pwrite(file, b"?", at + 77) for at in range(0, 256 * K, 512)],
    }
    # Not through the target that does direct I/O: the file is changed in the page cache.
    member = (f.targets[1].nqn, 1)
    row = {"digest": "", "reactors": 1, "more": ""}
    for says, spoil in spoils.items():
        f.wipe([member])
        with initiator_for(f, row, volume("v", {"nqn": member[0]})) as i, \
                open(f.files[member], "r+b", buffering=0) as file:
            def written():
                return i.ctl("stats")["volumes"][0]["writes"]
            load = i.load("v", "--rw", "randwrite", "--bs", "16k", "--bs-min", 512, "--size", "256k", "--time",
                          "1h", "--verify", "--sweep", "--rate", 200)
            until(lambda: written() > 60, "load", 20)
            old = os.pread(file.fileno(), 256 * K, 0)
            until(lambda: written() > 120, "load", 20)
            spoil(file.fileno(), old)
            rc, result, err = load.stop()
        assert rc == 1 and result["errors"] == 0, (rc, result, err)
        assert result["verify"]["wrong"] > 0 and says in err, (says, result, err)


if __name__ == "__main__":
    main(globals())
