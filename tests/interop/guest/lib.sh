# lib.sh - what every suite inside the guest uses: results, the host's help, connecting, finding
# devices. fd 8 is the second serial port, where the harness listens.

HOSTNQN=nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555
HOSTID=11111111-2222-3333-4444-555555555555
DISCOVERY=nqn.2014-08.org.nvmexpress.discovery

result() { echo "$1" >&8; echo >>/tmp/results; }
ok() { result "ok $suite: $*"; }
not_ok()
{
	name=$1
	shift
	result "not ok $suite: $name: $(echo "$*" | tr '\n\r' '  ' | cut -c 1-400)"
}
skip() { name=$1; shift; result "skip $suite: $name: $*"; }
note() { echo "$*" >&8; }

# Asks the harness to do something outside; its answer is in $answer.
host()
{
	echo "HOST $*" >&8
	read -r host_status answer <&8
	return $host_status
}

# expect NAME STATUS PATTERN COMMAND...: the command must end with that status (! = any but 0) and
# its output, folded into one line, must match the pattern (in any case).
expect()
{
	expect_name=$1 expect_status=$2 expect_pattern=$3
	shift 3
	read -r expect_since rest </proc/uptime
	output=$(eval "$*" 2>&1)
	status=$?
	read -r expect_until rest </proc/uptime
	[ $((${expect_until%.*} - ${expect_since%.*})) -lt 20 ] ||
		note "$suite: $expect_name: took from $expect_since to $expect_until s"
	if [ "$expect_status" = '!' ]; then
		[ $status != 0 ]
	else
		[ $status = "$expect_status" ]
	fi || { not_ok "$expect_name" "exit status $status, not $expect_status: $output"; return 1; }
	if ! echo "$output" | tr -s '\n\t ' ' ' | grep -qaiE -e "$expect_pattern"; then
		not_ok "$expect_name" "no '$expect_pattern' in: $output"
		return 1
	fi
	ok "$expect_name"
}

# check NAME COMMAND...: must succeed.
check() { check_name=$1; shift; expect "$check_name" 0 '' "$@"; }

# Rows of "STATUS | COMMAND | PATTERN" on stdin, the bars between spaces; a fourth column names the
# only target (KIND) or kernel series for which the row holds.
table()
{
	awk '/^[^#]/ { sub(/ +$/, ""); gsub(/ +\|( +|$)/, "\037"); print $0 "\037" }' >/tmp/table
	while IFS=$(printf '\037') read -r row_status row_command row_pattern row_only rest; do
		case $row_only in ''|$KIND|$SERIES) ;; *) continue ;; esac
		case $row_pattern in *'$'[A-Z]*) row_pattern=$(eval "echo \"$row_pattern\"") ;; esac
		expect "$row_command" "$row_status" "$row_pattern" "$row_command </dev/null"
	done </tmp/table
}

# wait_for SECONDS COMMAND...: polls until the command succeeds.
wait_for()
{
	wait_left=$(($1 * 5))
	shift
	until eval "$*"; do
		wait_left=$((wait_left - 1))
		[ $wait_left -gt 0 ] || return 1
		sleep 0.2
	done
}

# connect NQN [options]: connects and waits until the controller is live; its device is in CTRL.
connect()
{
	connect_nqn=$1
	shift
	output=$(nvme connect -t tcp -a $TRADDR -s $TRSVCID -n $connect_nqn \
		--hostnqn $HOSTNQN --hostid $HOSTID "$@" 2>&1) || return 1
	wait_for 10 'CTRL=$(controller_of $connect_nqn) && grep -q live /sys/class/nvme/${CTRL#/dev/}/state'
}

disconnect() { nvme disconnect -n $1 >/dev/null 2>&1; }

# The device of the newest controller of a subsystem.
controller_of()
{
	for controller in $(ls -r /sys/class/nvme 2>/dev/null); do
		if [ "$(cat /sys/class/nvme/$controller/subsysnqn 2>/dev/null)" = $1 ]; then
			echo /dev/$controller
			return
		fi
	done
	return 1
}

# The block device of a namespace: namespace_of NQN NSID.
namespace_of()
{
	for block in /sys/block/nvme*n*; do
		[ -e $block/nsid ] || continue
		case ${block##*/} in *c*) continue ;; esac
		if [ "$(cat $block/nsid)" = $2 ] && [ "$(cat $block/device/subsysnqn)" = $1 ]; then
			[ -b /dev/${block##*/} ] && echo /dev/${block##*/}
			return
		fi
	done
	return 1
}

# Waits for the namespace's block device and prints it.
namespace_wait()
{
	wait_for 10 "namespace_of $1 $2 >/dev/null" && namespace_of $1 $2
}

size_of() { cat /sys/block/${1#/dev/}/size; }

state_of() { cat /sys/class/nvme/${1#/dev/}/state; }

# ---- work on a disk ----

# verify NAME DEVICE BLOCK SIZE [fio options]
verify()
{
	verify_name=$1 verify_device=$2 verify_bs=$3 verify_size=$4
	shift 4
	check "$verify_name: randrw verify, $verify_bs blocks" fio --name=v --filename=$verify_device \
		--ioengine=io_uring --direct=1 --rw=randrw --bs=$verify_bs --size=$verify_size \
		--iodepth=16 --verify=crc32c --verify_fatal=1 --minimal "$@"
}

# tree DIRECTORY: some hundred small files, a few large ones, some of them deleted, moved and cut
# again.
tree()
{
	mkdir -p $1/a/b $1/c || return 1
	for i in $(seq 100); do
		echo "file $i of the tree" >$1/a/file$i
	done
	for i in 1 2 3; do
		cat /usr/bin/busybox /usr/bin/nvme >$1/c/large$i || return 1
	done
	rm $1/a/file?0 $1/c/large2
	mv $1/a/file1? $1/a/b
	dd if=/dev/zero of=$1/c/large3 bs=1k seek=100 count=50 conv=notrunc 2>/dev/null
	ln -s ../c/large1 $1/a/link
	(cd $1 && find . -type f | sort | xargs md5sum) >/tmp/sums
}

# compare DIRECTORY: shows what is not as it was written.
compare()
{
	(cd $1 && md5sum -c /tmp/sums >/tmp/compared) && return
	grep -v OK /tmp/compared
	return 1
}

# filesystem NAME DEVICE MKFS FSCK
filesystem()
{
	check "$1 on $2: mkfs" "$3 /dev/$2 </dev/null"
	check "$1 on $2: mount" mount -t $1 /dev/$2 /mnt || return
	check "$1 on $2: write a tree" tree /mnt
	check "$1 on $2: trim" fstrim /mnt
	check "$1 on $2: unmount" umount /mnt
	check "$1 on $2: fsck" "$4 /dev/$2"
	# Nothing that the page cache still knows may help.
	echo 3 >/proc/sys/vm/drop_caches
	check "$1 on $2: mount again" mount -t $1 /dev/$2 /mnt || return
	check "$1 on $2: compare the tree" compare /mnt
	check "$1 on $2: unmount again" umount /mnt
}
