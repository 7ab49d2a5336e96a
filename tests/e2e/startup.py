#!/usr/bin/env python3
"""Starting: speed, the one-line form, clear errors, an ordinary user, idling."""
import os
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from nvmetcp import *
import json
import subprocess

PROGRAM = find_program("sluice-target", "target")


def run(*words, timeout=5 * SCALE):
    """A start that is expected to end by itself."""
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=timeout,
                          check=False)
    return done.returncode, done.stdout, done.stderr


def fails(rc, *words, says=()):
    got, out, err = run(*words)
    assert got == rc, f"{words}: exit {got}, expected {rc}\n{out}{err}"
    for word in says:
        assert word in err, f"{words}: {word!r} is not in {err!r}"
    assert "Sanitizer" not in err


def one_line(*words, **kw):
    return Target(None, "--listen", "127.0.0.1:0", "--nqn", NQN, *words, **kw)


def test_start_of_a_memory_disk_is_quick():
    times = []
    for _ in range(5):
        with one_line("ram:1G") as t:
            times.append(t.ready_after)
    best = min(times)
    print(f"     ready after {best * 1000:.0f} ms (the aim is 100)")
    assert best < 2 * SCALE


def test_one_line_form_serves_its_specs_in_order():
    with Target(config(), start=False) as scratch:
        path = os.path.join(scratch.dir, "f.img")
        scratch.start()
        with one_line("ram:16M", "null:1G", f"file:{path},size=4M", f"{path}2,size=8M") as t:
            host = Host(t)
            sizes = []
            for nsid in (1, 2, 3, 4):
                ns = host.admin.identify(0, nsid)
                sizes.append(struct.unpack_from("<Q", ns)[0] * host.block_size(nsid))
            assert sizes == [16 << 20, 1 << 30, 4 << 20, 8 << 20], sizes
            io = host.io()
            for nsid in (1, 3, 4):
                io.bs = host.block_size(nsid)
                io.write(0, pattern(nsid, io.bs), nsid=nsid)
            for nsid in (1, 3, 4):
                io.bs = host.block_size(nsid)
                assert io.read(0, nsid=nsid) == pattern(nsid, io.bs)
            host.close()
            lines = [line for line in t.log().splitlines() if "listening on" not in line]
            assert len([x for x in lines if "16" in x or "ram" in x]) >= 1, t.log()


def test_one_line_form_on_ipv6():
    try:
        with Target(None, "--listen", "[::1]:0", "--nqn", NQN, "ram:1M") as t:
            assert t.addr[0] == "::1"
            host = Host(t)
            host.io().read(0, 1)
            host.close()
    except AssertionError as e:
        if "Cannot assign" in str(e) or "not supported" in str(e):
            raise Skip("no IPv6 here") from None
        raise


def test_help_and_version_exit_0():
    for word in ("--help", "-h", "--version", "-V"):
        rc, out, _ = run(word)
        assert rc == 0 and "sluice-target" in out, (word, rc, out)


def test_bad_arguments_exit_2_and_name_the_argument():
    fails(2, "--no-such-option", says=["no-such-option"])
    fails(2, "--listen", says=["listen"])
    fails(2, says=[])


def test_bad_specs_and_addresses_exit_with_a_sentence():
    for words, says in ((["ram:"], ["ram:"]), (["ram:abc"], ["abc"]), (["ram:0"], ["0"]),
                        (["null:12x"], ["12x"]), (["/nonexistent/x.img"], ["/nonexistent/x.img"]),
                        (["--listen", "nowhere", "ram:1M"], ["nowhere"]),
                        (["--listen", "127.0.0.1:99999", "ram:1M"], ["99999"]),
                        (["--nqn", "x" * 224, "ram:1M"], ["223 bytes"]),
                        (["ram:1M,colour=red"], ["colour"])):
        extra = [] if "--listen" in words else ["--listen", "127.0.0.1:0"]
        rc, out, err = run(*extra, *words)
        assert rc in (1, 2), (words, rc, out, err)
        for word in says:
            assert word.lower() in err.lower(), (words, err)


def test_port_in_use_exits_1_and_names_it():
    with one_line("ram:1M") as t:
        port = str(t.addr[1])
        fails(1, "--listen", f"127.0.0.1:{port}", "ram:1M", says=[port])
        host = Host(t)
        host.close()


def test_file_that_cannot_be_read_exits_1_and_names_it():
    fails(1, "-c", "/nonexistent/target.json", says=["/nonexistent/target.json"])


def test_bad_configuration_exits_1_with_file_and_line():
    with Target(config(), start=False) as t:
        c = config()
        c["subsystems"][0]["namespaces"][0]["nsid"] = -1
        t.write_conf(c)
        fails(1, "-c", t.conf_path, says=["target.json:", "nsid"])
        with open(t.conf_path, "w", encoding="utf-8") as f:
            f.write('{ "ports": [ }')
        fails(1, "-c", t.conf_path, says=["target.json:1"])
        t.start()


def test_file_and_specs_together_are_refused():
    with Target(config(), start=False) as t:
        t.write_conf(config())
        for words in (["ram:1M"], ["--listen", "127.0.0.1:0"], ["--nqn", "x"]):
            fails(2, "-c", t.conf_path, *words)


def test_nvmetcli_file_works_as_it_is():
    """Strings for numbers, attributes that mean nothing here, unused sections."""
    c = {"hosts": [{"nqn": "hostnqn"}],
         "ports": [{"addr": {"adrfam": "ipv4", "traddr": "127.0.0.1", "treq": "not specified",
                             "trsvcid": "0", "trtype": "tcp", "tsas": "none"},
                    "ana_groups": [{"ana": {"state": "optimized"}, "grpid": 1}],
                    "param": {"inline_data_size": "16384", "pi_enable": "0"}, "portid": 1,
                    "referrals": [], "subsystems": [NQN]}],
         "subsystems": [{"allowed_hosts": [],
                         "attr": {"allow_any_host": "1", "cntlid_max": "65519", "cntlid_min": "1",
                                  "firmware": "6.1", "ieee_oui": "0x000000", "model": "Linux",
                                  "pi_enable": "0", "qid_max": "128", "serial": "abcdef",
                                  "version": "1.3"},
                         "namespaces": [{"ana": {"grpid": "1"}, "ana_grpid": 1,
                                         "device": {"nguid": "00000000-0000-0000-0000-000000000000",
                                                    "path": "ram:16M",
                                                    "uuid": "00000000-0000-0000-0000-000000000000"},
                                         "enable": 1, "nsid": 1}],
                         "nqn": NQN, "passthru": {"admin_timeout": "0"}}],
         "sluice": {"discovery_port": 0}}
    with Target(c) as t:
        host = Host(t)
        assert host.ctrl[4:24].decode().strip() == "abcdef"
        host.io().read(0, 1)
        host.close()


def nobody():
    if os.geteuid() != 0:
        raise Skip("this test gives up root, so it needs root")
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs",
            "--bounding-set=-all", "--inh-caps=-all", "prlimit", "--memlock=8388608:8388608"]


def test_ordinary_user_with_8_mib_of_lockable_memory_gets_the_whole_service():
    prefix = nobody()
    t = Target(config({1: "ram:64M", 2: {"path": "x"}}, sluice={"reactors": 2}), start=False,
               prefix=prefix)
    os.chown(t.dir, 65534, 65534)
    path = os.path.join(t.dir, "user.img")
    t.conf["subsystems"][0]["namespaces"][1] = {
        "nsid": 2, "enable": 1, "device": {"path": path}, "sluice": {"size": "16M"}}
    if subprocess.run([*prefix, "test", "-x", PROGRAM], check=False).returncode:
        raise Skip("nobody may not read the build tree")
    t.start()
    with t:
        host = Host(t)
        io = host.io(sqsize=63)
        for nsid in (1, 2):
            io.bs = host.block_size(nsid)
            n = (1 << 20) // io.bs
            flight = [io.rw(WRITE, i * n, n, data=pattern(i, 1 << 20), nsid=nsid, mode="r2t")
                      for i in range(12)]
            for c in flight:
                assert io.wait(c, 20 * SCALE).status == 0
            for i in range(12):
                assert io.read(i * n, n, nsid=nsid) == pattern(i, 1 << 20)
        host.close()
        complaints = [line for line in t.log().splitlines() if "ENOMEM" in line or "memlock" in
                      line.lower() or "Cannot allocate" in line]
        assert len(complaints) <= 2, "what needs more is reported once\n" + "\n".join(complaints)


def test_control_socket_and_unreadable_files_of_an_ordinary_user():
    prefix = nobody()
    secret = Target(config(), start=False)
    os.chmod(secret.dir, 0o700)
    done = subprocess.run([*prefix, PROGRAM, "-c", secret.conf_path], capture_output=True, text=True,
                          timeout=5 * SCALE, check=False)
    assert done.returncode == 1 and "target.json" in done.stderr, (done.returncode, done.stderr)
    os.rmdir(secret.dir) if not os.listdir(secret.dir) else None


def test_idle_target_uses_no_cpu():
    with Target(config({1: "ram:16M"}, sluice={"reactors": 2})) as t:
        host = Host(t)
        host.io().read(0, 1)
        host.admin.aer()
        used = []
        for _ in range(5):  # on a busy machine a tick of others' is sometimes charged to us
            time.sleep(0.3)
            before = t.cpu_ticks()
            time.sleep(2)
            used.append(t.cpu_ticks() - before)
            if used[-1] <= 1:
                break
        assert used[-1] <= 1, f"{used} ticks, in 2 s of idling each"
        host.close()


def test_control_verbs_answer_in_json():
    with Target(config()) as t:
        host = Host(t)
        host.io()
        assert t.count() == 2 and len(t.controllers()) == 1
        rc = subprocess.run([find_program("sluicectl", "common"), "-s", t.control, "--json",
                             "connections"], capture_output=True, text=True, timeout=5 * SCALE,
                            check=False)
        assert rc.returncode == 0 and len(json.loads(rc.stdout)) == 2, rc
        host.close()


main(globals())
