# A VM's own view of its vhost-user-blk disks: vda is vol0 (512-byte blocks, 4 queues), vdb is vol1
# (4096, packed rings), vdc is vol0 once more, read-only. Whatever happens outside, no request of
# the guest may fail, and every byte must be where it belongs.

modprobe -q virtio_blk; modprobe -q ext4; modprobe -q xfs
check 'a second VM is started' host second boot
wait_for 20 '[ -b /dev/vda ] && [ -b /dev/vdb ] && [ -b /dev/vdc ]' || {
	not_ok 'three disks' "$(ls /sys/block)"
	exit
}
queue() { cat /sys/block/$1/queue/$2; }

table <<END
0 | cat /sys/block/vda/size                  | ^131072 \$
0 | cat /sys/block/vdb/size                  | ^65536 \$
0 | cat /sys/block/vda/serial                | vol0
0 | queue vda logical_block_size             | ^512 \$
0 | queue vdb logical_block_size             | ^4096 \$
0 | queue vda minimum_io_size                | ^32768 \$
0 | queue vda optimal_io_size                | ^65536 \$
0 | queue vdb optimal_io_size                | ^131072 \$
0 | queue vda max_segments                   | ^126 \$
0 | ls /sys/block/vda/mq                     | ^0 1 2 3 \$ | 6.1
0 | cat /sys/block/vda/ro                    | ^0 \$
0 | cat /sys/block/vdc/ro                    | ^1 \$
! | dd if=/dev/zero of=/dev/vdc bs=4k count=1 | .
END

# ---- file systems ----

filesystem ext4 vda 'mkfs.ext4 -q -F' 'e2fsck -fn'
filesystem ext4 vdb 'mkfs.ext4 -q -F' 'e2fsck -fn'

# ---- every block size, with discards ----

# verify DISK [fio options]
verify()
{
	verify_disk=$1
	shift
	check "$verify_disk: fio $*" fio --name=v --filename=/dev/$verify_disk --ioengine=io_uring \
		--direct=1 --rw=randrw --iodepth=16 --verify=crc32c --verify_fatal=1 --minimal "$@"
}

verify vda --bs=512 --size=128k
verify vda --bs=4k --size=2M
verify vda --bsrange=512-128k --bs_unaligned=0 --size=4M
verify vda --bs=1M --size=24M
verify vdb --bs=4k --size=2M
verify vdb --bs=256k --size=16M
check 'trim and write' fio --name=t --filename=/dev/vda --ioengine=io_uring --direct=1 \
	--rw=randtrimwrite --bs=64k --size=4M --minimal
zeroes() { dd if=$1 bs=64k count=32 skip=16 iflag=direct 2>/dev/null | tr -d '\0' | wc -c; }
check 'discard a range' blkdiscard -o 1048576 -l 2097152 /dev/vda
expect 'what was discarded reads as zeroes' 0 '^ *0 *$' zeroes /dev/vda
check 'write zeroes' /usr/bin/blkdiscard -z -o 1048576 -l 2097152 /dev/vdb
expect 'what was zeroed reads as zeroes' 0 '^ *0 *$' zeroes /dev/vdb

# ---- things that happen outside ----

# under_load NAME COMMAND: while fio writes to both disks; then it reads everything back.
under_load()
{
	: >/tmp/load
	for disk in vda vdb; do
		(
			fio --name=$disk --filename=/dev/$disk --ioengine=io_uring --direct=1 \
				--rw=randwrite --bsrange=4k-64k --size=6M --iodepth=16 --fsync=64 \
				--thinktime=50ms --thinktime_blocks=8 --verify=crc32c \
				--verify_fatal=1 --minimal >/tmp/fio-$disk 2>&1
			echo $? >>/tmp/load
		) &
	done
	sleep 1
	[ -s /tmp/load ] && not_ok "$1: fio is at work" "$(cat /tmp/fio-vda /tmp/fio-vdb)"
	check "$1: the action" "$2"
	if ! wait_for 60 '[ $(wc -l </tmp/load) = 2 ]'; then
		not_ok "$1: fio ends" "$(cat /sys/block/vda/inflight /sys/block/vdb/inflight)"
		return
	fi
	if [ "$(sort -u /tmp/load)" = 0 ]; then
		ok "$1: fio has written and read back all"
	else
		not_ok "$1: fio has written and read back all" "$(cat /tmp/fio-vda /tmp/fio-vdb)"
	fi
}

check 'the second VM is at work' host second rounds 1
under_load 'initiator killed' 'host crash-initiator'
check 'the second VM is at work again' host second rounds 2
under_load 'the second VM killed' 'host second kill'
under_load 'initiator restarted' 'host restart-initiator'
under_load 'initiator upgraded' 'host ctl upgrade'
under_load 'target killed' 'host crash-target 1'
under_load 'VM stopped and continued' 'host pause 1'

check 'reload that changes nothing' host reload
check 'grow' host grow 48M
wait_for 10 '[ $(cat /sys/block/vda/size) = 196608 ]' && ok 'the guest sees the larger size' ||
	not_ok 'the guest sees the larger size' "$(cat /sys/block/vda/size) sectors"
check 'write in the new part' dd if=/bin/busybox of=/dev/vda bs=64k seek=1200 count=10 conv=fsync

# New memory is for user programs alone, and used first: fio's buffers are there.
memory() { awk '/MemTotal/ { print int($2 / 1024) }' /proc/meminfo; }
plug()
{
	echo online_movable >/sys/devices/system/memory/auto_online_blocks &&
		host monitor object_add memory-backend-memfd,id=more,size=128M,share=on &&
		host monitor device_add pc-dimm,id=dimm,memdev=more &&
		wait_for 10 '[ $(memory) -gt $((before + 100)) ]'
}
before=$(memory)
under_load 'memory plugged' plug
[ $(memory) -gt $((before + 100)) ] && ok 'the guest has more memory' ||
	not_ok 'the guest has more memory' "$before MiB, then $(memory)"
verify vda --bs=64k --size=8M
verify vdb --bs=4k --size=1M

# The disk of the VM that was killed is free, and has what that had written.
present() { [ -b /dev/vdd ]; }
check 'a socket for a disk more' host monitor chardev-add \
	socket,id=plug,path=$DIRECTORY/vol2.sock,reconnect=1
check 'plug it in' host monitor device_add vhost-user-blk-pci,id=plug,chardev=plug,bus=slot1
wait_for 20 present || not_ok 'the disk comes' "$(ls /sys/block)"
expect 'its name' 0 '^vol2 $' cat /sys/block/vdd/serial
check 'what the other VM wrote' 'head -c $(stat -c %s /bin/busybox) /dev/vdd | cmp - /bin/busybox'
verify vdd --bs=16k --size=4M
check 'take it away' host monitor device_del plug
wait_for 20 '! present' && ok 'the disk is gone' || not_ok 'the disk is gone' "$(ls /sys/block)"

# driver bind|unbind: all disks.
driver()
{
	for device in /sys/bus/virtio/devices/virtio*; do
		grep -q 0x0002 $device/device || continue
		echo ${device##*/} >/sys/bus/virtio/drivers/virtio_blk/$1 || return 1
	done
}
check 'take the driver off' driver unbind
expect 'no disk is left' 0 '^ *$' "ls /sys/block | grep vd; true"
check 'let it drive them again' driver bind
wait_for 10 '[ -b /dev/vda ] && [ -b /dev/vdb ] && [ -b /dev/vdc ]' ||
	not_ok 'the disks are back' "$(ls /sys/block)"
verify vda --bs=16k --size=2M
verify vdb --bs=16k --size=2M

# ---- all of it ----

sum_of() { md5sum <$1 | cut -d' ' -f1; }
for disk in 'vda 32768 1' 'vdb 65536 2'; do
	set -- $disk
	sync
	sum=$(sum_of /dev/$1)
	host sum $2 $3
	[ "$sum" = "$answer" ] && ok "$1 is what the targets' files make together" ||
		not_ok "$1 is what the targets' files make together" "$sum, $answer"
done
[ "$(sum_of /dev/vdc)" = "$(sum_of /dev/vda)" ] && ok 'the read-only disk is the same' ||
	not_ok 'the read-only disk is the same'
note "ended at $(cut -d' ' -f1 /proc/uptime) s"
