# File systems: make, mount, a tree of files, unmount, check, mount again and compare.

modprobe -q ext4; modprobe -q xfs
connect $NQN --data-digest || { not_ok connect "$output"; exit; }

filesystem_on()
{
	device=$(namespace_wait $NQN $2) || { not_ok "namespace $2" 'no block device'; return; }
	device=${device#/dev/}
	case $1 in
	ext4) filesystem ext4 $device 'mkfs.ext4 -q -F' 'e2fsck -fn' ;;
	xfs) filesystem xfs $device 'mkfs.xfs -q -f' 'xfs_repair -n' ;;
	esac
}

# Each on 512-byte blocks with one kernel, on 4096-byte blocks with the other.
case $SERIES in
6.1) filesystem_on ext4 2; filesystem_on xfs 3 ;;
*) filesystem_on xfs 2; filesystem_on ext4 3 ;;
esac
disconnect $NQN
