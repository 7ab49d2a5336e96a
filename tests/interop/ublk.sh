#!/bin/bash
# ublk.sh - the initiator as a host uses it: inside a guest, volumes on a target outside as block
# devices of the guest.
#
#   tests/interop/ublk.sh [--series 6.12] [--keep]
#
# Happy path: guest.sh boots the guest with our programs beside the tests, target.sh runs the target
# on the loopback of the host, and suites/ublk.sh does the rest in the guest. Ends with `N passed, N
# failed, N skipped`; status 0, 1 or 77 with a reason when QEMU or a kernel cannot be had.

here=$(cd "$(dirname "$0")" && pwd)
. "$here/guest.sh"
. "$here/target.sh"

series=6.12 keep=''
guest_options "$@"
build=${SLUICE_BUILD:-${TOP_BUILDDIR:-.}}

guest_require
guest_initrd "$series" || guest_skip_all "no Linux $series kernel package could be downloaded"
guest_work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-ublk.XXXXXX")
target_dir=$guest_work
finish()
{
	[ -z "$guest_pid" ] || kill "$guest_pid" 2>/dev/null
	target_stop TERM
	if [ -n "$keep" ]; then guest_note "kept: $guest_work"; else rm -rf "$guest_work"; fi
}
trap finish EXIT

guest_label="Linux $series"
mkdir "$guest_work/test"
cp "$here/guest/lib.sh" "$here/suites/ublk.sh" "$guest_work/test/"
for program in initiator/sluice-initiator common/sluicectl; do
	[ -x "$build/$program" ] || { echo "not ok - $build/$program: not built"; exit 1; }
	guest_copy_program "$build/$program" "$guest_work/test/root"
done
target_program
target_start || exit 1
cat >"$guest_work/test/main" <<END
NQN=$interop_nqn TRADDR=10.0.2.2 TRSVCID=$target_port SERIES=$series KIND=sluice
. /test/lib.sh
suite=ublk
(. /test/ublk.sh)
END
# The driver makes no more queues than there are processors.
guest_cpus=2
guest_boot "$series" 600 "$guest_work/test" \
	-netdev user,id=plain -device virtio-net-pci,netdev=plain,romfile=
target_stop TERM
if [ "$target_status" = 0 ]; then
	guest_result "ok the target ends well"
else
	guest_result "not ok the target ends well: status $target_status"
fi
guest_summary
