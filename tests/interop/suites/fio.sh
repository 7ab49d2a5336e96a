# fio writes, reads back and compares (verify=crc32c) over io_uring, at several block sizes, with
# and without digests, over one and several queues.

# round NAME [connect options]: every block size on the namespaces with 512 and 4096 byte blocks.
round()
{
	round_name=$1
	shift
	connect $NQN "$@" || { not_ok "$round_name: connect" "$output"; return; }
	NS=$(namespace_wait $NQN 2) WIDE=$(namespace_wait $NQN 3)
	verify "$round_name" $NS 512 256k
	verify "$round_name" $NS 4k 2M
	verify "$round_name" $WIDE 4k 2M
	verify "$round_name" $WIDE 64k 16M
	verify "$round_name" $NS 1M 32M
	disconnect $NQN
}

round 'no digests'
round 'data digest' --data-digest
round 'header digest' --hdr-digest
round 'both digests, small queue' --hdr-digest --data-digest --queue-size=16

# Queues for reads, for writes and for polling, used by two jobs at once; the poll queue is polled.
connect $NQN --nr-io-queues=1 --nr-write-queues=1 --nr-poll-queues=1 || {
	not_ok 'several queues: connect' "$output"
	exit
}
NS=$(namespace_wait $NQN 2)
expect 'several queues are there' 0 '^ *4 *$' cat /sys/class/nvme/${CTRL#/dev/}/queue_count
verify 'several queues, two jobs' $NS 4k 1M --numjobs=2 --offset_increment=4M
verify 'several queues, polled' $NS 4k 512k --hipri=1
verify 'mixed sizes' $NS 4k 4M --bsrange=512-128k --bs_unaligned=0
check 'trim and write' fio --name=t --filename=$NS --ioengine=io_uring --direct=1 \
	--rw=randtrimwrite --bs=64k --size=4M --minimal
disconnect $NQN
