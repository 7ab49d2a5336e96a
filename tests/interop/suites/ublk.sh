# Block devices of the ublk front: made, used, taken over after kill -9 under load, kept over a
# restart while they are mounted, deleted under load. Sourced by ublk.sh, which copies our programs
# to /test/root.

export PATH=/test/root/usr/bin:$PATH LD_LIBRARY_PATH=/usr/lib:/test/root/usr/lib
export SLUICE_CTL=/tmp/i.ctl

VOL0='{ "name": "vol0", "block": "32k", "members": [ "'$NQN/1'", "'$NQN/2'" ] }'
VOL1='{ "name": "vol1", "members": [ "'$NQN/3'" ] }'
volumes="$VOL0, $VOL1"

# configure [ublk entries]: over $volumes.
configure()
{
	cat >/tmp/i.json <<-END
	{ "control": "/tmp/i.ctl", "shm": "/tmp/i.shm", "reactors": 2,
	  "hosts": [ { "hostnqn": "$HOSTNQN", "hostid": "$HOSTID", "subsystems": [ { "nqn": "$NQN",
	    "ports": [ { "transport": "tcp", "traddr": "$TRADDR", "trsvcid": "$TRSVCID",
	                 "reconnect_delay": 1 } ] } ] } ],
	  "volumes": [ $volumes ],
	  "ublk": [ $* ] }
	END
}

# Starts the daemon; its process is $initiator.
start()
{
	: >/tmp/i.out
	sluice-initiator -c /tmp/i.json >/tmp/i.out 2>>/tmp/i.log &
	initiator=$!
	wait_for 60 'grep -q ^ready /tmp/i.out || ! kill -0 $initiator 2>/dev/null'
	grep -q ^ready /tmp/i.out
}

# The end of the daemon by a signal; its status is $ended.
stop()
{
	kill -$1 $initiator
	wait $initiator 2>/dev/null
	ended=$?
}

attribute() { cat /sys/block/${1#/dev/}/$2; }

# did NAME COMMAND...: as check does, but in this shell: to start the daemon, and to wait.
did()
{
	did_name=$1
	shift
	if "$@" >/tmp/did.out 2>&1; then
		ok "$did_name"
	else
		not_ok "$did_name" "$(tail -n 5 /tmp/did.out /tmp/i.log)"
	fi
}

not() { ! "$@"; }

# The daemon has ended with status 0.
ended_well() { [ $ended = 0 ]; }

modprobe -q ext4

# Without the driver.
configure
did 'the daemon starts without the driver' start
expect 'without the driver an add says what to load' 1 'modprobe ublk_drv' sluicectl ublk add vol0
configure '"vol0"'
expect 'a reload that wants a device says so, too' 1 'modprobe ublk_drv' sluicectl reload
stop TERM
expect 'a start that wants a device does not happen' 1 'modprobe ublk_drv' \
	sluice-initiator -c /tmp/i.json
modprobe ublk_drv || { not_ok 'the driver is there' 'modprobe failed'; exit; }

# Made by the configuration and by a verb.
configure '{ "volume": "vol1", "queues": 1, "depth": 32 }'
did 'the daemon starts with a device' start
expect 'it tells which' 0 '^/dev/ublkb0: volume vol1 $' grep ublkb /tmp/i.out
expect 'a device is added' 0 '^/dev/ublkb1 $' sluicectl ublk add vol0 --queues 4
expect 'a volume has one device' 1 'has /dev/ublkb1 already' sluicectl ublk add vol0
expect 'a volume that is not there' 1 'no volume .nix.' sluicectl ublk add nix
expect 'a volume with a device stays' 1 'vol0. is /dev/ublkb1' sluicectl volume remove vol0
expect 'both are listed' 0 'ublkb0 vol1 live.*ublkb1 vol0 live 128 MiB 2 128' sluicectl ublk list
expect 'size of a striped volume' 0 '^262144 $' attribute ublkb1 size
expect 'blocks of 512' 0 '^512 $' attribute ublkb1 queue/logical_block_size
expect 'blocks of 4096' 0 '^4096 $' attribute ublkb0 queue/logical_block_size
expect 'the stripe is known' 0 '^65536 $' attribute ublkb1 queue/optimal_io_size
expect 'discard is offered' 0 '^33554432 $' attribute ublkb1 queue/discard_max_bytes
expect 'write zeroes is offered' 0 '^33554432 $' attribute ublkb1 queue/write_zeroes_max_bytes
expect 'the cache is told of' 0 'write back' attribute ublkb0 queue/write_cache
expect 'so is FUA' 0 '^1 $' attribute ublkb1 queue/fua
expect 'as many queues as processors' 0 '^2 $' 'ls /sys/block/ublkb1/mq | wc -l'

# Data.
verify 'two queues' /dev/ublkb1 4k 512k --numjobs=2 --offset_increment=4M \
	--cpus_allowed=0-1 --cpus_allowed_policy=split
verify 'two queues' /dev/ublkb1 512k 8M
verify 'mixed sizes' /dev/ublkb1 4k 2M --bsrange=512-256k --bs_unaligned=0
verify 'one queue' /dev/ublkb0 4k 512k
verify 'synchronous writes' /dev/ublkb1 4k 256k --sync=dsync
check 'trim and write' fio --name=t --filename=/dev/ublkb1 --ioengine=io_uring --direct=1 \
	--rw=randtrimwrite --bs=64k --size=4M --minimal
check 'a discard of everything' blkdiscard /dev/ublkb1
expect 'the bytes that were copied are counted' 0 '[1-9]' \
	"sluicectl -j ublk list | tr ',' '\n' | grep staged_bytes"

note "data ended at $(cut -d' ' -f1 /proc/uptime) s"

# A file system; the daemon is killed under load, twice.
check mkfs 'mkfs.ext4 -q -F /dev/ublkb0 </dev/null'
check mount mount -t ext4 /dev/ublkb0 /mnt
(
	for i in $(seq 12); do
		cat /usr/bin/busybox /usr/bin/nvme >/mnt/file$i || exit 1
		sync
	done
	cd /mnt && md5sum file* >/tmp/sums
) &
writer=$!
fio --name=v --filename=/dev/ublkb1 --ioengine=io_uring --direct=1 --rw=randrw --bs=16k --size=8M \
	--iodepth=32 --verify=crc32c --verify_fatal=1 --minimal --output=/tmp/fio.out &
verifier=$!
sleep 1
stop 9
sleep 0.5
did 'the daemon starts again after kill -9' start
stop 9
did 'and again, at once' start
expect 'both devices are live again' 0 'ublkb0 vol1 live.*ublkb1 vol0 live' sluicectl ublk list
did 'fio did not notice' wait $verifier
did 'the file system did not notice' wait $writer

# In use: neither deleted nor stopped.
expect 'a mounted device is not deleted' 1 'in use' sluicectl ublk del /dev/ublkb0
stop TERM
did 'SIGTERM ends the daemon well' ended_well
expect 'a device that is not in use was deleted' 0 '^ublkb0 $' 'ls /sys/block | grep ublk'
(echo late >/mnt/late && sync && cat /mnt/late >/tmp/late) &
late=$!
did 'the daemon starts with the device that was in use' start
did 'what was written meanwhile waited' wait $late
echo 3 >/proc/sys/vm/drop_caches
check 'the files are what they were' 'cd /mnt && md5sum -c /tmp/sums'
check unmount umount /mnt
check fsck e2fsck -fn /dev/ublkb0

note "recovery ended at $(cut -d' ' -f1 /proc/uptime) s"

# Growing: a driver that cannot tell is told of in the log.
host resize 3 512M
case $SERIES in
6.12)
	wait_for 10 'grep -q "vol1 grew, but this kernel cannot" /tmp/i.log'
	expect 'a volume that grows' 0 'Linux 6.16' 'grep "vol1 grew, but" /tmp/i.log'
	expect 'the device has its old size' 0 '^786432 $' attribute ublkb0 size
	check 'deleted' sluicectl ublk del ublkb0
	expect 'added again' 0 '^/dev/ublkb0 $' sluicectl ublk add vol1
	;;
*)
	wait_for 10 'grep -q "ublkb0: grew to 512 MiB" /tmp/i.log'
	check 'the device grew with its volume' 'grep "ublkb0: grew to 512 MiB" /tmp/i.log'
	;;
esac
expect 'it has the new size' 0 '^1048576 $' attribute ublkb0 size

# Deleted under load; the other one goes on.
expect 'the other one again' 0 '^/dev/ublkb1 $' sluicectl ublk add vol0
fio --name=l --filename=/dev/ublkb1 --ioengine=io_uring --direct=1 --rw=randrw --bs=4k --size=32M \
	--iodepth=32 --time_based --runtime=60 --minimal --output=/tmp/load.out 2>/dev/null &
load=$!
wait_for 10 '[ "$(attribute ublkb1 stat | awk "{ print \$1 }")" -gt 100 ]'
check 'deleted under load' sluicectl ublk del vol0
did 'the load ends with errors' not wait $load
expect 'its nodes are gone' 0 '^ublkb0 $' 'ls /sys/block | grep ublk'
verify 'the other one goes on' /dev/ublkb0 4k 512k

note "deletion ended at $(cut -d' ' -f1 /proc/uptime) s"

# A target that goes away and comes back: I/O waits.
(dd if=/dev/ublkb0 of=/dev/null bs=64k count=400 iflag=direct 2>/tmp/dd.err) &
reader=$!
expect 'the target restarts' 0 '' host crash 1
did 'a reader waited for it' wait $reader

# A device whose volume the next daemon does not have; devices come and go with the file.
stop 9
volumes=$VOL0
configure
did 'the daemon starts without the volume of a device' start
expect 'the device is left alone' 0 '/dev/ublkb0 - left behind 512 MiB' sluicectl ublk list
expect 'which is told' 0 'ublkb0: was left behind on a volume' cat /tmp/i.log
check 'it can be deleted' sluicectl ublk del /dev/ublkb0
configure '"vol0"'
check 'a reload makes a device' sluicectl reload
did 'which comes' wait_for 10 'sluicectl ublk list | grep -q live'
configure
check 'a reload without it' sluicectl reload
did 'takes it away' wait_for 10 '! ls /sys/block | grep -q ublk'

stop TERM
did 'the daemon ends well' ended_well
expect 'and leaves no device' 1 '' 'ls /sys/block | grep ublk'
expect 'the log has no surprise' 1 '' "grep -iE 'cannot be|assert|sanitizer|runtime error' /tmp/i.log"
tail -n 40 /tmp/i.log >/dev/console
