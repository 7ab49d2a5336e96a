"""Other people's servers with a null disk, pinned to the server's core as the target is, under their own clients.

nbdkit, qemu-nbd and qemu-storage-daemon speak NBD to fio's nbd engine, tgt speaks iSCSI to libiscsi's iscsi-perf, all
over loopback TCP; qemu-storage-daemon has a vhost-user-blk socket besides, for tests/bench/vhost. The clients differ
and may be the bottleneck, so the server's CPU time for an I/O is what compares.
Whoever has them can put these beside it, on the same cores, with the same load of tests/bench/host or fio:

  SPDK     nvmf_tgt -m 0x1, then scripts/rpc.py nvmf_create_transport -t TCP; bdev_null_create n 65536 512;
           nvmf_create_subsystem NQN -a; nvmf_subsystem_add_ns NQN n; nvmf_subsystem_add_listener NQN -t tcp
           -a 127.0.0.1 -s 4420
  Linux    modprobe nvmet-tcp null_blk; nvmetcli restore of a subsystem NQN with /dev/nullb0 and a tcp port 4420
  both     ./run tests/bench/host --connect 127.0.0.1:4420 --nqn NQN --cpu 1 --rw read --bs 4k --qd 32 --random
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

SIZE = 64 << 30


class Server:
    """A running one. path: its vhost-user socket, if that is how it is loaded."""
    name, needs, reads_only, path, port = "", [], False, None, 0

    def __init__(self, server_cpu, client_cpu, directory):
        self.client_cpu, self.dir = client_cpu, directory
        self.proc = subprocess.Popen(["taskset", "-c", str(server_cpu), *self.command()],
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(100):
            if self.listens():
                return
            time.sleep(0.05)
        self.stop()
        raise RuntimeError(f"{self.name} does not listen")

    def listens(self):
        if self.path:
            return os.path.exists(self.path)
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False

    def stop(self):
        self.proc.send_signal(signal.SIGTERM)
        try:
            self.proc.wait(5)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()

    def load(self, rw, bs, qd, seconds):
        """Returns I/Os a second, I/Os."""
        out = subprocess.run(["taskset", "-c", str(self.client_cpu), "fio", "--name=peer", "--ioengine=nbd",
                              f"--uri=nbd://127.0.0.1:{self.port}/{self.export}", f"--rw={rw}", f"--bs={bs}",
                              f"--iodepth={qd}", f"--size={SIZE >> 4}", f"--runtime={seconds}", "--time_based",
                              "--norandommap", "--output-format=json"],
                             capture_output=True, text=True, check=True, timeout=120)
        job = json.loads(out.stdout[out.stdout.index("{"):])["jobs"][0][rw.removeprefix("rand")]
        return job["iops"], job["total_ios"]


class Nbdkit(Server):
    name, needs, port, export = "nbdkit, nbd", ["nbdkit", "fio"], 10901, ""

    def command(self):
        return ["nbdkit", "-f", "-i", "127.0.0.1", "-p", str(self.port), "null", str(SIZE)]


class QemuNbd(Server):
    name, needs, port, export = "qemu-nbd, nbd", ["qemu-nbd", "fio"], 10902, "n"

    def command(self):
        return ["qemu-nbd", "--image-opts", f"driver=null-co,size={SIZE},read-zeroes=off", "-x", "n", "-b", "127.0.0.1",
                "-p", str(self.port), "-t", "-e", "8"]


class QemuStorageDaemon(Server):
    name, needs, port, export = "qemu-storage-daemon, nbd", ["qemu-storage-daemon", "fio"], 10903, "n"

    def command(self):
        return ["qemu-storage-daemon", "--blockdev", f"driver=null-co,node-name=n,size={SIZE},read-zeroes=off",
                "--nbd-server", f"addr.type=inet,addr.host=127.0.0.1,addr.port={self.port}",
                "--export", "type=nbd,id=e,node-name=n,name=n,writable=on"]


class QemuVhostUser(Server):
    name, needs = "qemu-storage-daemon, vhost-user", ["qemu-storage-daemon"]

    @property
    def path(self):
        return os.path.join(self.dir, "qemu.sock")

    def command(self):
        return ["qemu-storage-daemon", "--blockdev", f"driver=null-co,node-name=n,size={SIZE},read-zeroes=off",
                "--export", f"vhost-user-blk,id=e,node-name=n,writable=on,addr.type=unix,addr.path={self.path}"]


class Tgt(Server):
    name, needs, reads_only, port = "tgt, iscsi", ["tgtd", "tgtadm", "iscsi-perf"], True, 10904
    iqn = "iqn.2026-11.io.sluice:bench"
    control = "7"               # of tgtd: which instance tgtadm speaks to

    def __init__(self, *args):
        super().__init__(*args)
        for words in (["--op", "new", "--mode", "target", "--tid", "1", "-T", self.iqn],
                      ["--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", "1", "--bstype", "null",
                       "--backing-store", "bench"],
                      ["--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL"]):
            subprocess.run(["tgtadm", "-C", self.control, "--lld", "iscsi", *words], check=True)

    def command(self):
        return ["tgtd", "-f", "-C", self.control, "--iscsi", f"portal=127.0.0.1:{self.port}"]

    def load(self, rw, bs, qd, seconds):
        """iscsi-perf reads in order; of a null disk that is the same work."""
        out = subprocess.run(["taskset", "-c", str(self.client_cpu), "iscsi-perf", "-t", str(seconds),
                              "-m", str(qd), "-b", str(bs // 512), f"iscsi://127.0.0.1:{self.port}/{self.iqn}/1"],
                             capture_output=True, text=True, timeout=120, check=True)
        rates = [int(n) for n in re.findall(r"iops average (\d+)", out.stdout)]
        return rates[-1], rates[-1] * seconds


ALL = [Nbdkit, QemuNbd, QemuStorageDaemon, QemuVhostUser, Tgt]


def start(server_cpu, client_cpu, directory):
    """Those that are installed; the others are named."""
    running = []
    for kind in ALL:
        missing = [program for program in kind.needs if not shutil.which(program)]
        if missing:
            print(f"{kind.name}: left out, no {', '.join(missing)}", file=sys.stderr)
        else:
            running.append(kind(server_cpu, client_cpu, directory))
    return running
