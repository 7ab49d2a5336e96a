# The kernel's nvmet as a member of volumes: sluice-initiator runs outside (tests/interop/nvmet.sh) and reaches
# this guest through a forwarded port. Here the target is made and changed; what is then to be seen is asked of
# the outside.

modprobe -q nvmet-tcp
mount -t configfs config /sys/kernel/config
modprobe -q brd rd_nr=2 rd_size=32768
nvmet=/sys/kernel/config/nvmet
subsystem=$nvmet/subsystems/$NQN
mkdir $subsystem $nvmet/ports/1
echo 1 >$subsystem/attr_allow_any_host
# 1 and 2: memory, 512-byte blocks. 3: a file, 4096.
dd if=/dev/zero of=/tmp/disk bs=1M count=0 seek=16 2>/dev/null
for nsid in 1 2 3; do
	mkdir $subsystem/namespaces/$nsid
	case $nsid in
	3) echo 1 >$subsystem/namespaces/3/buffered_io; echo -n /tmp/disk ;;
	*) echo -n /dev/ram$((nsid - 1)) ;;
	esac >$subsystem/namespaces/$nsid/device_path
	echo 1 >$subsystem/namespaces/$nsid/enable
done
(
	cd $nvmet/ports/1
	echo tcp >addr_trtype; echo ipv4 >addr_adrfam; echo $TRADDR >addr_traddr; echo $TRSVCID >addr_trsvcid
)

# A port listens while it has a subsystem.
port_on() { ln -s $subsystem $nvmet/ports/1/subsystems/$NQN; }
port_off() { rm $nvmet/ports/1/subsystems/$NQN; }

# outside NAME VERB...: the outside does it, or sees it.
outside()
{
	outside_name=$1
	shift
	if host "$@"; then ok "$outside_name"; else not_ok "$outside_name" "$answer"; fi
}

port_on || { not_ok 'nvmet listens' "$(dmesg | tail -n 3)"; exit; }
outside 'the volumes become ready' start
outside 'discovery tells what nvme-cli tells' discovered "$(nvme discover -t tcp -a $TRADDR -s $TRSVCID \
	--hostnqn $HOSTNQN --hostid $HOSTID -o json | tr -s '\n\t ' ' ')"
outside 'a verified load over nvmet, digests on' load kernel
outside 'a verified load over nvmet and sluice-target' load mixed
outside 'a verified load over a file with 4096-byte blocks' load file

dd if=/dev/zero of=/tmp/disk bs=1M count=0 seek=24 2>/dev/null
echo 1 >$subsystem/namespaces/3/revalidate_size
outside 'capacity follows a namespace that grows' capacity file 25165824
outside 'a verified load on what it has grown to' load file

outside 'a load that lasts' begin mixed
sleep 2
port_off
outside 'the path is lost' path reconnecting
sleep 2
port_on
outside 'the path is live again' path live
outside 'the load has seen no error' end

echo 0 >$subsystem/namespaces/2/enable
outside 'a namespace that goes away is told' logged "has no namespace 2"
echo 1 >$subsystem/namespaces/2/enable
outside 'and is used again when it is back' load mixed
outside 'no rule was broken, no digest was wrong' sums
outside 'the initiator ends well' stop
