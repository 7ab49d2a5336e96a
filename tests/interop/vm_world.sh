# vm_world.sh - what is outside of a VM whose disks are vhost-user-blk devices: two targets, the
# initiator, QEMU's monitor. Sourced by vm.sh and by examples/vm.
#
# vm_world_start DIRECTORY: targets on free ports of the loopback, each with three files; the volumes
#   vol0  both first files, 512-byte blocks, stripes of 32K;
#   vol1  both second ones, 4096-byte blocks, stripes of 64K;
#   vol2  both third ones, as vol0;
# and sockets vol0.sock, vol1.sock, copy.sock (vol0 again, read-only) and, for another VM, vol2.sock in
# the directory.
# vm_world_qemu fills vm_qemu with QEMU's options for them. vm_world_stop ends all and tells by its
# status whether everything ended well.
# Can fail: a program that is not built or does not start: status 1, with its log.

vm_hostid=2cd2c43b-a90a-45c1-a8cd-86b33ab273b5
vm_nqn=nqn.2026-11.io.sluice:vm
vm_mb=(32 16 16)      # of each file
vm_seconds=${vm_seconds:-900} # after which a program is ended, whatever happens
vm_target_pid=() vm_target_port=(0 0) vm_initiator_pid='' vm_dir='' vm_qemu=()

vm_programs()
{
	local build=${SLUICE_BUILD:-${TOP_BUILDDIR:-.}} program
	vm_target=${SLUICE_TARGET:-$build/target/sluice-target}
	vm_initiator=${SLUICE_INITIATOR:-$build/initiator/sluice-initiator}
	vm_ctl=${SLUICE_CTL:-$build/common/sluicectl}
	for program in "$vm_target" "$vm_initiator" "$vm_ctl"; do
		[ -x "$program" ] && continue
		echo "not ok - $program: not built; set SLUICE_BUILD"
		return 1
	done
}

# ---- targets ----

vm_target_configure()
{
	local i=$1 nsid namespaces=''
	for nsid in 1 2 3; do
		namespaces+="${namespaces:+,}{ \"nsid\": $nsid, \"enable\": 1,
			\"device\": { \"path\": \"$vm_dir/disk$i-$nsid.img\" }, \"sluice\":
			{ \"size\": \"${vm_mb[nsid - 1]}M\", \"block_size\": $((nsid == 2 ? 4096 : 512)) } }"
	done
	cat >"$vm_dir/target$i.json" <<-END
	{ "ports": [ { "portid": 1, "subsystems": [ "$vm_nqn$i" ], "addr": { "trtype": "tcp",
	      "adrfam": "ipv4", "traddr": "127.0.0.1", "trsvcid": "${vm_target_port[i]}" } } ],
	  "subsystems": [ { "nqn": "$vm_nqn$i", "attr": { "allow_any_host": "1", "serial": "VM$i" },
	      "namespaces": [ $namespaces ] } ],
	  "sluice": { "control": "$vm_dir/target$i.ctl", "discovery_port": 0 } }
	END
}

# vm_wait FILE PATTERN PID: until the program has said it.
vm_wait()
{
	local _
	for _ in {1..200}; do
		grep -q "$2" "$1" && return
		kill -0 "$3" 2>/dev/null || break
		sleep 0.1
	done
	sed 's/^/# /' "$1"
	echo "not ok - $1 does not say '$2'"
	return 1
}

vm_target_start()
{
	local i=$1 log=$vm_dir/target$1.log
	vm_target_configure "$i"
	: >"$log"
	timeout "$vm_seconds" "$vm_target" -c "$vm_dir/target$i.json" >>"$log" 2>&1 </dev/null 7<&- 8<&- &
	vm_target_pid[i]=$!
	vm_wait "$log" 'listening on 127' "$!" || return 1
	vm_target_port[i]=$(sed -n 's/.*listening on 127\.0\.0\.1:\([0-9]*\).*/\1/p' "$log" | head -n 1)
}

# ---- the initiator ----

vm_initiator_configure()
{
	local i subsystems='' user
	user=$(id -u)
	for i in 0 1; do
		subsystems+="${subsystems:+,}{ \"nqn\": \"$vm_nqn$i\", \"ports\": [ { \"transport\": \"tcp\",
			\"traddr\": \"127.0.0.1\", \"trsvcid\": \"${vm_target_port[i]}\",
			\"reconnect_delay\": 1 } ] }"
	done
	cat >"$vm_dir/initiator.json" <<-END
	{ "control": "$vm_dir/initiator.ctl", "shm": "$vm_dir/shm.sock", "reactors": 2,
	  "placement": "${vm_placement:-auto}",
	  "hosts": [ { "hostnqn": "nqn.2014-08.org.nvmexpress:uuid:$vm_hostid",
	               "hostid": "$vm_hostid", "subsystems": [ $subsystems ] } ],
	  "volumes": [
	    { "name": "vol0", "block": "32K", "members": [ "${vm_nqn}0/1", "${vm_nqn}1/1" ] },
	    { "name": "vol1", "block": "64K", "members": [ "${vm_nqn}0/2", "${vm_nqn}1/2" ] },
	    { "name": "vol2", "block": "32K", "members": [ "${vm_nqn}0/3", "${vm_nqn}1/3" ] } ],
	  "vms": [
	    { "name": "vm1", "uid": $user, "disks": [
	      { "volume": "vol0", "vhost-user-blk": "$vm_dir/vol0.sock" },
	      { "volume": "vol1", "vhost-user-blk": "$vm_dir/vol1.sock" } ] },
	    { "name": "vm2", "uid": $user, "disks": [
	      { "volume": "vol0", "vhost-user-blk": "$vm_dir/copy.sock", "read-only": true } ] },
	    { "name": "vm3", "uid": $user, "disks": [
	      { "volume": "vol2", "vhost-user-blk": "$vm_dir/vol2.sock" } ] } ] }
	END
}

vm_initiator_start()
{
	local log=$vm_dir/initiator.now
	: >"$log"
	timeout "$vm_seconds" "$vm_initiator" -c "$vm_dir/initiator.json" >>"$log" 2>&1 </dev/null 7<&- 8<&- &
	vm_initiator_pid=$!
	vm_wait "$log" '^ready' "$!"
}

# ---- all of it ----

# vm_end PID SIGNAL: to the program itself, not to timeout; its status.
vm_end()
{
	local child _
	child=$(cat "/proc/$1/task/$1/children" 2>/dev/null)
	child=${child%% *}
	kill "-$2" "${child:-$1}" 2>/dev/null
	for _ in {1..150}; do
		kill -0 "$1" 2>/dev/null || break
		sleep 0.1
	done
	kill -9 "${child:-$1}" 2>/dev/null && echo "pid $1 did not end by SIG$2 within 15 seconds"
	wait "$1" 2>/dev/null
}

vm_initiator_stop()
{
	local rc
	vm_end "$vm_initiator_pid" "$1"
	rc=$?
	cat "$vm_dir/initiator.now" >>"$vm_dir/initiator.log"
	vm_initiator_pid=
	return $rc
}

vm_world_start()
{
	vm_dir=$1
	vm_programs && vm_target_start 0 && vm_target_start 1 || return 1
	vm_initiator_configure
	vm_initiator_start
}

vm_world_stop()
{
	local rc=0 i
	if [ -n "$vm_initiator_pid" ]; then vm_initiator_stop TERM || rc=1; fi
	for i in 0 1; do
		[ -n "${vm_target_pid[i]}" ] || continue
		vm_end "${vm_target_pid[i]}" TERM || rc=1
		vm_target_pid[i]=
	done
	return $rc
}

# Guest memory has to be shared, so that the initiator can map it.
vm_shared_memory()
{
	vm_qemu=(-object "memory-backend-memfd,id=mem,size=$1,share=on" -machine memory-backend=mem)
}

vm_world_qemu()
{
	local disk
	vm_shared_memory "$1"
	vm_qemu+=(-monitor "unix:$vm_dir/monitor,server=on,wait=off" -device pcie-root-port,id=slot1,chassis=1)
	for disk in vol0 vol1 copy; do
		vm_qemu+=(-chardev "socket,id=$disk,path=$vm_dir/$disk.sock,reconnect=1")
	done
	vm_qemu+=(-device vhost-user-blk-pci,chardev=vol0,num-queues=4
		-device vhost-user-blk-pci,chardev=vol1,packed=on
		-device vhost-user-blk-pci,chardev=copy,num-queues=2)
}

# A line for QEMU's monitor; prints what it says.
vm_monitor()
{
	python3 - "$vm_dir/monitor" "$*" <<-'END'
	import socket
	import sys

	s = socket.socket(socket.AF_UNIX)
	s.settimeout(30)
	s.connect(sys.argv[1])

	def until_prompt():
	    text = b""
	    while not text.endswith(b"(qemu) "):
	        got = s.recv(4096)
	        if not got:
	            break
	        text += got
	    return text.decode()

	until_prompt()
	s.sendall(sys.argv[2].encode() + b"\n")
	said = until_prompt().splitlines()[1:-1]
	print(" ".join(said))
	sys.exit(any("rror" in line for line in said))
	END
}

# The volume as it has to look: put together from the targets' files, without any of our programs.
vm_sum()
{
	python3 - "$1" "$vm_dir/disk0-$2.img" "$vm_dir/disk1-$2.img" <<-'END'
	import hashlib
	import sys

	block, files = int(sys.argv[1]), [open(name, "rb") for name in sys.argv[2:]]
	flat = hashlib.md5()
	while piece := files[0].read(block):
	    flat.update(piece)
	    files.append(files.pop(0))
	print(flat.hexdigest())
	END
}

# What the guest may ask for by a HOST line.
host_action()
{
	local verb=$1 i
	shift
	case $verb in
	crash-initiator) vm_initiator_stop KILL; sleep "${1:-1}"; vm_initiator_start ;;
	restart-initiator) vm_initiator_stop TERM || return 1; vm_initiator_start ;;
	crash-target) vm_end "${vm_target_pid[$1]}" KILL; sleep "${2:-1}"; vm_target_start "$1" ;;
	grow)
		for i in 0 1; do
			"$vm_ctl" -s "$vm_dir/target$i.ctl" ns resize "$vm_nqn$i" 1 "$1" || return 1
		done
		;;
	reload) "$vm_ctl" -s "$vm_dir/initiator.ctl" reload ;;
	ctl) "$vm_ctl" -s "$vm_dir/initiator.ctl" "$@" ;;
	pause) vm_monitor stop && sleep "$1" && vm_monitor cont ;;
	monitor) vm_monitor "$@" ;;
	sum) vm_sum "$@" ;;
	second) second_vm "$@" ;; # vm.sh's
	*) echo "unknown request: $verb"; return 1 ;;
	esac
}
