# guest.sh - a real Linux host in a QEMU guest, for shell tests to source.
#
# For: tests that need the kernel's own nvme-tcp, nvmet, ublk or virtio-blk on machines which have no
# such module.
# Happy path:
#   1. guest_initrd SERIES: finds a kernel of that series in the cache, or downloads and unpacks it
#      (never installs it), and builds an initramfs of busybox, the tools under test and the modules
#      they need;
#   2. guest_boot: starts QEMU (software emulation, no privileges) on it with a few shell scripts
#      on top;
#   3. the guest runs the scripts; their results and requests arrive on the second serial port,
#      where guest_serve counts "ok NAME", "not ok NAME: why", "skip NAME: why" and answers "HOST
#      request";
#   4. guest_summary: prints `N passed, N failed, N skipped`.
# Can fail: no QEMU or no kernel to be had: exit 77 with the reason. A guest that dies or hangs is a
# failed test "guest ends by itself", with the end of its console.
#
# The caller may define host_action(), which gets the words of a HOST line and whose one line of
# output and exit status go back to the guest.

guest_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
guest_cache=${SLUICE_GUEST_CACHE:-${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/sluice-guest}
guest_memory=768M
# One: with two, in one host thread or two, guests of QEMU 7.2 have crashed and hung.
guest_cpus=1
# Its cmpxchg16b leaves junk in EFLAGS now and then, so Linux is told that there is none.
guest_cpu=max,-cx16

guest_append="console=ttyS0 quiet panic=-1 oops=panic mitigations=off nokaslr"
# What takes long in emulation; and a check at which 6.1's own nvmet stumbles.
guest_append+=" cryptomgr.notests initcall_blacklist=crypto_kdf108_init,init_encrypted"
guest_append+=" hardened_usercopy=off"

. "$guest_dir/guest_image.sh"

guest_passed=0 guest_failed=0 guest_skipped=0 guest_pid=

guest_note()
{
	echo "# $*"
}

guest_skip_all()
{
	echo "1..0 # SKIP $*"
	exit 77
}

# The options of a test with one guest, into $series and $keep; anything else prints the head of the
# script and ends it.
guest_options()
{
	while [ $# -gt 0 ]; do
		case $1 in
		--series) series=$2; shift 2 ;;
		--keep) keep=1; shift ;;
		*) sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; exit 2 ;;
		esac
	done
}

# QEMU is the one thing that must be installed.
guest_require()
{
	type -P qemu-system-x86_64 >/dev/null || guest_skip_all "qemu-system-x86_64 is not installed"
}

# ---- one boot ----

# guest_start SECONDS DIRECTORY WORK OPTIONS: QEMU in the background, whose kernel and image are those
# of guest_initrd; the options begin with its second serial port. WORK gets console.log.
guest_start()
{
	local seconds=$1 directory=$2 work=$3
	shift 3
	{
		cat "$guest_image"
		guest_overlay "$directory"
	} >"$work/initrd"
	timeout "$seconds" qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none \
		-machine q35 -accel tcg -cpu "$guest_cpu" -smp "$guest_cpus" -m "$guest_memory" \
		-kernel "$guest_vmlinuz" -initrd "$work/initrd" -append "$guest_append" \
		-serial "file:$work/console.log" "$@" </dev/null >"$work/qemu.log" 2>&1 7<&- 8<&- &
}

# guest_boot SERIES SECONDS DIRECTORY [QEMU options]: boots with the directory as /test and runs
# /test/main. Results go to stdout as they come. The work directory ($guest_work) keeps console.log.
guest_boot()
{
	local series=$1 seconds=$2 directory=$3
	shift 3
	guest_work=${guest_work:-$(mktemp -d)}
	rm -f "$guest_work"/serial.*
	mkfifo "$guest_work/serial.in" "$guest_work/serial.out"
	exec 7<>"$guest_work/serial.out" 8<>"$guest_work/serial.in"
	guest_start "$seconds" "$directory" "$guest_work" \
		-chardev "pipe,id=test,path=$guest_work/serial" -serial chardev:test "$@"
	guest_pid=$!
	guest_serve
	wait "$guest_pid"
	guest_ended $?
	guest_pid=
	exec 7<&- 8<&-
	rm -f "$guest_work/initrd" "$guest_work"/serial.*
}

guest_overlay()
{
	local tmp
	tmp=$(mktemp -d "$guest_work/overlay.XXXXXX")
	cp -r "$1" "$tmp/test"
	cp "$guest_dir/guest/init" "$tmp/init"
	chmod +x "$tmp/init" "$tmp/test/main"
	(cd "$tmp" && find . | cpio -o -H newc -R 0:0 --quiet)
	rm -rf "$tmp"
}

# Reads the second serial port until the guest says END or QEMU is gone.
guest_serve()
{
	local line held='' words rc
	guest_finished=no
	while true; do
		# A read that runs out of time may have the beginning of a line.
		if ! IFS= read -r -t 1 line <&7; then
			held+=$line
			kill -0 "$guest_pid" 2>/dev/null && continue
			[ -n "$held" ] || return
			line=
		fi
		line=$held${line%$'\r'}
		held=
		case $line in
		"ok "*|"not ok "*|"skip "*) guest_result "$line" ;;
		"HOST "*)
			# Not in a subshell: what it starts is ours to wait for.
			read -ra words <<<"${line#HOST }"
			host_action "${words[@]}" >"$guest_work/answer" 2>&1
			rc=$?
			printf '%s %s\n' "$rc" "$(tail -n 1 "$guest_work/answer")" >&8
			;;
		"END "*) guest_check_count "${line#END }"; guest_finished=yes; return ;;
		"") ;;
		*) guest_note "$line" ;;
		esac
	done
}

guest_result()
{
	local line=$1 number
	case $line in
	"ok "*) guest_passed=$((guest_passed + 1)) ;;
	"not ok "*) guest_failed=$((guest_failed + 1)) ;;
	"skip "*) guest_skipped=$((guest_skipped + 1)) ;;
	esac
	number=$((guest_passed + guest_failed + guest_skipped))
	local label=${guest_label:+$guest_label: }
	case $line in
	"ok "*) echo "ok $number - $label${line#ok }" ;;
	"not ok "*) echo "not ok $number - $label${line#not ok }" ;;
	"skip "*) line=${line#skip }; echo "ok $number - $label${line%%: *} # SKIP ${line#*: }" ;;
	esac
}

# Every result that the guest sent has to have arrived: a lost one might have been a failure.
guest_check_count()
{
	local arrived=$((guest_passed + guest_failed + guest_skipped))
	[ "$arrived" = "$1" ] || guest_result "not ok results arrive: $1 were sent, $arrived came"
}

guest_ended()
{
	local rc=$1
	if [ "$guest_finished" = yes ] && [ "$rc" = 0 ] &&
			! grep -q 'Kernel panic\|BUG:\|Oops' "$guest_work/console.log"; then
		guest_result "ok guest ends by itself"
		return
	fi
	[ "$rc" = 124 ] && rc="$rc, out of time"
	guest_result "not ok guest ends by itself: QEMU status $rc"
	tail -n 30 "$guest_work/qemu.log" "$guest_work/console.log" | tr -d '\r' | sed 's/^/# /'
}

guest_summary()
{
	echo "$guest_passed passed, $guest_failed failed, $guest_skipped skipped"
	[ "$guest_failed" = 0 ]
}
