#!/bin/bash
# vm.sh - real VMs whose disks are vhost-user-blk devices of one sluice-initiator, on volumes that are
# striped over two targets: file systems, fio, kill -9, resize, hot plug. A second VM, with a volume and
# four processors of its own, works beside the first until it is killed.
#
#   tests/interop/vm.sh [--series 6.1|6.12] [--keep]
#
# Ends with `N passed, N failed, N skipped`; status 0, 1 or 77 with a reason when QEMU or a kernel
# cannot be had. --keep leaves the work directory and tells where.

here=$(cd "$(dirname "$0")" && pwd)
. "$here/guest.sh"
. "$here/vm_world.sh"

series=6.1 keep=''
guest_options "$@"

guest_require
guest_initrd "$series" || guest_skip_all "no Linux $series kernel package could be downloaded"
guest_work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-vm.XXXXXX")
finish()
{
	[ -z "$guest_pid" ] || kill "$guest_pid" 2>/dev/null
	[ -z "$second_pid" ] || kill "$second_pid" 2>/dev/null
	vm_world_stop
	if [ -n "$keep" ]; then guest_note "kept: $guest_work"; else rm -rf "$guest_work"; fi
}
trap finish EXIT
trap 'exit 143' TERM INT

# ---- the second VM ----

second_pid=''

second_boot()
{
	local work=$guest_work/second guest_memory=256M guest_cpus=4 vm_qemu
	mkdir "$work" "$work/test"
	cp "$here/guest/lib.sh" "$work/test/"
	{
		echo '. /test/lib.sh; suite=second'
		cat "$here/suites/vm_second.sh"
	} >"$work/test/main"
	vm_shared_memory "$guest_memory"
	guest_start 600 "$work/test" "$work" -serial "file:$work/results" "${vm_qemu[@]}" \
		-chardev "socket,id=vol2,path=$guest_work/vol2.sock,reconnect=1" \
		-device vhost-user-blk-pci,chardev=vol2,num-queues=4
	second_pid=$!
}

# second_rounds N: until it has written and read back its disk N times more.
second_rounds()
{
	local results=$guest_work/second/results have
	have=$(grep -c '^ok.*round' "$results")
	for _ in {1..1200}; do
		[ "$(grep -c '^ok.*round' "$results")" -lt $((have + $1)) ] || return 0
		kill -0 "$second_pid" || break
		sleep 0.1
	done
	tail -n 1 "$results"
	return 1
}

second_vm()
{
	case $1 in
	boot) second_boot ;;
	rounds) second_rounds "$2" ;;
	kill)
		vm_end "$second_pid" KILL
		second_pid=
		;;
	esac
}

# What it had to say; a kernel that had something to say is a failure.
second_tell()
{
	local line
	while read -r line; do
		guest_result "${line%$'\r'}"
	done < <(grep -a '^ok\|^not ok' "$guest_work/second/results")
	if grep -a 'BUG:\|Oops\|panic\|I/O error' "$guest_work/second/console.log"; then
		guest_result "not ok second: its kernel has nothing to say"
	fi
}

# ---- the first ----

vm_world_start "$guest_work" || exit 1
guest_label="VM with Linux $series"
guest_memory=640M,slots=2,maxmem=2G
guest_cpus=1,maxcpus=4 # as many queues as there may be processors
mkdir "$guest_work/test"
cp "$here/guest/lib.sh" "$here/suites/vm.sh" "$guest_work/test/"
cat >"$guest_work/test/main" <<END
SERIES=$series DIRECTORY=$guest_work
. /test/lib.sh
suite=vm
(. /test/vm.sh)
END
vm_world_qemu 640M
guest_boot "$series" 600 "$guest_work/test" "${vm_qemu[@]}"
if vm_world_stop; then
	guest_result "ok initiator and targets end well"
else
	guest_result "not ok initiator and targets end well"
fi
second_tell
if [ "$(grep -c 'was taken over' "$guest_work/initiator.log")" = 3 ]; then
	guest_result "ok the upgrade took every connection over"
else
	guest_result "not ok the upgrade took every connection over"
fi
if grep -n 'Sanitizer\|runtime error' "$guest_work"/*.log; then
	guest_result "not ok no sanitizer has anything to say"
fi
[ "$guest_failed" = 0 ] || tail -n 60 "$guest_work/initiator.log" | sed 's/^/# initiator: /'
guest_summary
