# The second VM, until it is killed: four processors and a queue for each, one disk. What the first one
# finds there later is at its start; behind it are rounds that write and read back.

modprobe -q virtio_blk
wait_for 60 '[ -b /dev/vda ]' || not_ok 'a disk' "$(ls /sys/block)"
expect 'four processors have four queues' 0 '^4 4 $' \
	'grep -c ^processor /proc/cpuinfo; ls /sys/block/vda/mq | wc -l'
check 'write what is looked for later' dd if=/bin/busybox of=/dev/vda bs=64k conv=fsync
round=0
while fio --name=r --filename=/dev/vda --ioengine=io_uring --direct=1 --rw=randrw --bsrange=4k-64k \
	--offset=8M --offset_increment=4M --size=1M --numjobs=4 --iodepth=8 --verify=crc32c \
	--verify_fatal=1 --minimal --cpus_allowed=0-3 --cpus_allowed_policy=split >/tmp/fio 2>&1; do
	round=$((round + 1))
	ok "round $round"
	sleep 0.5
done
not_ok "round $((round + 1))" "$(cat /tmp/fio)"
