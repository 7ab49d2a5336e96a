#!/bin/bash
# vm.sh - a real VM whose disks are vhost-user-blk devices of sluice-initiator, on volumes that are
# striped over two targets: file systems, fio, kill -9, resize, memory hot plug.
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
	vm_world_stop
	if [ -n "$keep" ]; then guest_note "kept: $guest_work"; else rm -rf "$guest_work"; fi
}
trap finish EXIT
trap 'exit 143' TERM INT

vm_world_start "$guest_work" || exit 1
guest_label="VM with Linux $series"
guest_memory=640M,slots=2,maxmem=2G
guest_cpus=1,maxcpus=4 # as many queues as there may be processors
mkdir "$guest_work/test"
cp "$here/guest/lib.sh" "$here/suites/vm.sh" "$guest_work/test/"
cat >"$guest_work/test/main" <<END
SERIES=$series
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
