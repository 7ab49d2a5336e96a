#!/bin/bash
# nvmet.sh - Linux's own target, in a QEMU guest, as a member of volumes of sluice-initiator.
#
#   tests/interop/nvmet.sh [--series 6.1|6.12] [--keep]
#
# The other way round than run: the guest has the target, we have the initiator, a second target of ours and
# sluice-perf, and reach the guest through a port that QEMU forwards. The guest runs suites/member.sh, which makes
# and changes nvmet and says what has to be seen out here: host_action() below. Header and data digests are on.
# Ends with `N passed, N failed, N skipped`; status 0, 1 or 77 with a reason when QEMU or a kernel cannot be had.

here=$(cd "$(dirname "$0")" && pwd)
. "$here/guest.sh"

series=6.1 seconds=500 keep=''
guest_options "$@"

build=${SLUICE_BUILD:-${TOP_BUILDDIR:-.}}
nqn=nqn.2026-11.io.sluice:kernel ours=nqn.2026-11.io.sluice:ours
address=10.0.2.15 service=4420 # inside
forwarded='' target_pid='' initiator_pid='' load_pid=''

# ---- what the guest may ask for; the last line of what is said is its answer ----

host_action()
{
	local verb=$1
	shift
	case $verb in
	start) daemons_start && until_true 60 all_ready ;;
	discovered) discovered "$*" ;;
	load) load "$1" --count 200 ;;
	begin) load "$1" --time 60 >"$guest_work/load.out" 2>&1 7<&- 8<&- & load_pid=$! ;;
	end) load_end ;;
	capacity) until_true 40 test_volume "$1" "v['size'] == $2" ;;
	path) until_true 60 test_path "$1" ;;
	logged) until_true 40 grep -q "$*" "$guest_work/initiator.log" ;;
	sums) sums ;;
	stop) daemons_stop ;;
	*) echo "unknown request: $verb"; return 1 ;;
	esac
}

# until_true SECONDS COMMAND...
until_true()
{
	local end=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $end ] || { tail -n 1 "$guest_work/initiator.log"; return 1; }
		sleep 0.2
	done
}

ctl() { timeout 20 "$build/common/sluicectl" -s "$guest_work/ctl" --json "$@"; }

# judge EXPRESSION: of the JSON on standard input, as d.
judge()
{
	python3 -c 'import json, sys; d = json.load(sys.stdin); sys.exit(0 if eval(sys.argv[1]) else str(d)[:300])' "$1"
}

all_ready() { ctl volumes | judge 'len(d) == 3 and all(v["state"] == "ready" for v in d)' 2>/dev/null; }
test_volume() { ctl volumes | judge "[v for v in d if v['name'] == '$1' and $2]" 2>/dev/null; }
test_path() { ctl paths | judge "[p for p in d if p['nqn'] == '$nqn' and p['state'] == '$1']" 2>/dev/null; }

# load VOLUME OPTION...: every block that is read is right, and no command failed.
load()
{
	local volume=$1
	shift
	timeout 120 "$build/initiator/client/sluice-perf" --socket "$guest_work/shm" --volume "$volume" --rw randrw \
		--rwmixread 50 --bs 4k --qd 8 --sg 3 --flush 50 --size 8M --verify --json --quiet "$@" \
		>"$guest_work/perf.json" 2>"$guest_work/perf.err" || {
		tail -n 1 "$guest_work/perf.err"
		return 1
	}
	judge 'd["errors"] == 0' <"$guest_work/perf.json" 2>&1
}

load_end()
{
	local child
	child=$(cat "/proc/$load_pid/task/$load_pid/children") # timeout
	kill -0 "$load_pid" 2>/dev/null || { echo "the load has ended by itself"; return 1; }
	child=${child%% *}
	kill -INT "$(cut -d' ' -f1 "/proc/$child/task/$child/children")"
	wait "$load_pid" || { tail -n 1 "$guest_work/load.out"; return 1; }
	judge 'd["read"]["ops"] > 0 and d["write"]["ops"] > 0' <"$guest_work/perf.json" 2>&1
}

# What nvme-cli printed inside, record for record.
discovered()
{
	ctl discover "127.0.0.1:$forwarded" >"$guest_work/discovered.json" || return 1
	python3 - "$guest_work/discovered.json" "$1" <<-'END' 2>&1
	import json, sys
	ours = json.load(open(sys.argv[1]))["records"]
	theirs = json.loads(sys.argv[2])["records"]
	same = ("trtype", "adrfam", "subtype", "portid", "trsvcid", "subnqn", "traddr", "sectype")
	def rows(records):
	    return sorted([str(r[k]).strip() for k in same] for r in records)
	if len(theirs) < 1 or rows(ours) != rows(theirs):
	    sys.exit(f"{rows(ours)} is not {rows(theirs)}")
	for o in ours:
	    treq = next(t["treq"] for t in theirs if t["subnqn"] == o["subnqn"])
	    if not treq.startswith(o["treq"]):
	        sys.exit(f"treq {o['treq']}, nvme-cli says {treq}")
	END
}

sums()
{
	ctl stats | judge "not any(v['count'] for v in d['violations']) and all(p['ddgst_errors'] == 0
		and p['parts'] > 0 for p in d['paths']) and all(v['errors'] == 0 for v in d['volumes'])" 2>&1
}

# ---- the daemons out here ----

daemons_start()
{
	timeout 490 "$build/target/sluice-target" --listen 127.0.0.1:0 --nqn "$ours" ram:32M \
		>"$guest_work/target.log" 2>&1 </dev/null 7<&- 8<&- &
	target_pid=$!
	until_said "$guest_work/target.log" 'listening on 127' || return 1
	configure "$(sed -n 's/.*listening on 127\.0\.0\.1:\([0-9]*\).*/\1/p' "$guest_work/target.log")"
	timeout 480 "$build/initiator/sluice-initiator" -c "$guest_work/initiator.json" \
		>"$guest_work/initiator.log" 2>&1 </dev/null 7<&- 8<&- &
	initiator_pid=$!
	until_said "$guest_work/initiator.log" '^ready'
}

until_said()
{
	for _ in {1..150}; do
		grep -q "$2" "$1" && return
		sleep 0.1
	done
	tail -n 1 "$1"
	return 1
}

configure()
{
	cat >"$guest_work/initiator.json" <<-END
	{ "control": "$guest_work/ctl", "shm": "$guest_work/shm",
	  "hosts": [ { "hostnqn": "nqn.2014-08.org.nvmexpress:uuid:22222222-2222-3333-4444-555555555555",
	    "hostid": "22222222-2222-3333-4444-555555555555", "subsystems": [
	    { "nqn": "$nqn", "ports": [ { "transport": "tcp", "traddr": "127.0.0.1", "trsvcid": "$forwarded",
	      "hdr_digest": true, "data_digest": true, "reconnect_delay": 1, "keep_alive_tmo": 15 } ] },
	    { "nqn": "$ours", "ports": [ { "transport": "tcp", "traddr": "127.0.0.1", "trsvcid": "$1",
	      "data_digest": true } ] } ] } ],
	  "volumes": [ { "name": "kernel", "members": [ "$nqn/1" ] },
	    { "name": "mixed", "block": "16k", "members": [ "$nqn/2", "$ours/1" ] },
	    { "name": "file", "members": [ "$nqn/3" ] } ],
	  "vms": [ { "name": "m", "disks": [ { "volume": "kernel" }, { "volume": "mixed" }, { "volume": "file" } ] } ] }
	END
}

# daemon_stop PID: SIGTERM to what timeout runs; its status.
daemon_stop()
{
	kill "$(cut -d' ' -f1 "/proc/$1/task/$1/children")"
	wait "$1" || { echo "status $?"; return 1; }
}

daemons_stop()
{
	daemon_stop "$initiator_pid" && initiator_pid='' && daemon_stop "$target_pid" && target_pid=''
}

finish()
{
	local pid
	for pid in $load_pid $initiator_pid $target_pid $guest_pid; do
		kill "$pid" 2>/dev/null
	done
	if [ -n "$keep" ]; then guest_note "kept: $guest_work"; else rm -rf "$guest_work"; fi
}

# ---- the guest ----

for program in target/sluice-target initiator/sluice-initiator initiator/client/sluice-perf common/sluicectl; do
	[ -x "$build/$program" ] || { echo "not ok - $build/$program: not built; set SLUICE_BUILD"; exit 1; }
done
guest_require
guest_initrd "$series" || guest_skip_all "no Linux $series kernel package could be downloaded"
guest_work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-nvmet.XXXXXX")
trap finish EXIT
guest_label="nvmet of Linux $series"
mkdir "$guest_work/test"
cp "$here/guest/lib.sh" "$here/suites/member.sh" "$guest_work/test/"
cat >"$guest_work/test/main" <<END
KIND=nvmet SERIES=$series NQN=$nqn TRADDR=$address TRSVCID=$service
. /test/lib.sh
suite=member
(. /test/member.sh)
note "the suite ended at \$(cut -d' ' -f1 /proc/uptime) s"
END
forwarded=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
guest_boot "$series" "$seconds" "$guest_work/test" \
	-netdev "user,id=net,hostfwd=tcp:127.0.0.1:$forwarded-$address:$service" \
	-device virtio-net-pci,netdev=net,romfile=
if [ "$guest_failed" != 0 ]; then
	tail -n 40 "$guest_work"/{initiator,target}.log "$guest_work/perf.err" | sed 's/^/# /'
fi
guest_summary
