# What happens to a working host when things change or break: reset, target restart, target crash,
# resize, namespaces that come and go. The host's own work must never see an error.

# under_load NAME COMMAND: the command runs while fio writes to the file-backed namespaces, with
# pauses so that it is at it for some seconds. Then fio reads everything back.
under_load()
{
	: >/tmp/load
	for nsid in 2 3; do
		(
			trap '' PIPE # fio 3.33 may write to the pipe of its helper thread when that has gone
			fio --name=load$nsid --filename=$(namespace_of $NQN $nsid) --ioengine=io_uring \
				--direct=1 --rw=randwrite --bs=4k --size=4M --iodepth=8 --fsync=32 \
				--thinktime=50ms --thinktime_blocks=8 --verify=crc32c --verify_fatal=1 \
				--minimal >/tmp/fio$nsid 2>&1
			echo $? >>/tmp/load
		) &
	done
	sleep 2
	[ -s /tmp/load ] && not_ok "$1: fio is at work" "$(cat /tmp/fio2 /tmp/fio3)"
	check "$1: the action" "$2"
	if ! wait_for 90 '[ $(wc -l </tmp/load) = 2 ]'; then
		not_ok "$1: fio ends" 'it hangs'
		return
	fi
	if [ "$(sort -u /tmp/load)" = 0 ]; then
		ok "$1: fio has written and read back all"
	else
		not_ok "$1: fio has written and read back all" "$(cat /tmp/fio2 /tmp/fio3)"
	fi
	if wait_for 10 '[ $(state_of $CTRL) = live ]'; then
		ok "$1: the controller is live"
	else
		not_ok "$1: the controller is live" $(state_of $CTRL)
	fi
}

three_resets()
{
	for i in 1 2 3; do
		nvme reset $CTRL || return 1
		sleep 0.7
	done
}

connect $NQN --reconnect-delay=1 --ctrl-loss-tmo=60 --keep-alive-tmo=5 || {
	not_ok connect "$output"
	exit
}
namespace_wait $NQN 2 >/dev/null && namespace_wait $NQN 3 >/dev/null

under_load 'reset under load' three_resets
[ $KIND = nvmet ] && exit

under_load 'target restart under load' 'host restart'
under_load 'target crash (kill -9) under load' 'host crash'

# The host hears of every change by an asynchronous event: nothing here rescans by hand.
NS=$(namespace_wait $NQN 2) || { not_ok 'namespace 2 is there' "$(ls /dev/nvme*)"; exit; }
check 'grow' host resize 2 512M
wait_for 10 '[ $(size_of $NS) = 1048576 ]' && ok 'the host sees the larger size' ||
	not_ok 'the host sees the larger size' "$(size_of $NS) sectors"
check 'write in the new part' dd if=/bin/busybox of=$NS bs=64k seek=8000 count=10 conv=fsync
check 'shrink' host resize 2 384M
wait_for 10 '[ $(size_of $NS) = 786432 ]' && ok 'the host sees the smaller size' ||
	not_ok 'the host sees the smaller size' "$(size_of $NS) sectors"
check 'add a namespace' host add 7 ram:16M
wait_for 10 'namespace_of $NQN 7 >/dev/null' && ok 'the host sees the new namespace' ||
	not_ok 'the host sees the new namespace' "$(ls /dev/nvme*)"
check 'remove a namespace' host remove 7
wait_for 10 '! namespace_of $NQN 7 >/dev/null' && ok 'the host sees it go' ||
	not_ok 'the host sees it go' "$(ls /dev/nvme*)"
disconnect $NQN

# A persistent discovery controller is told of a new subsystem.
check 'persistent discovery' nvme discover -t tcp -a $TRADDR -s $TRSVCID --persistent \
	--hostnqn $HOSTNQN --hostid $HOSTID
CTRL=$(controller_of $DISCOVERY)
printf '#!/bin/sh\nenv | grep NVME_AEN >>/tmp/aen\n' >/tmp/on-event
chmod +x /tmp/on-event
busybox uevent /tmp/on-event >/dev/null 2>&1 &
uevent=$!
sleep 0.5
check 'add a subsystem' host add-subsystem nqn.2026-11.io.sluice:late $HOSTNQN
wait_for 10 'grep -qi NVME_AEN=0x70f002 /tmp/aen' && ok 'the discovery change event arrives' ||
	not_ok 'the discovery change event arrives' "$(cat /tmp/aen)"
expect 'and the log has it' 0 'nqn.2026-11.io.sluice:late' nvme discover -d ${CTRL#/dev/}
kill $uevent
nvme disconnect -d $CTRL >/dev/null
