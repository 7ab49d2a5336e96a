# guest_image.sh - kernels and initramfs for guest.sh, which sources it.
#
# For: a bootable Linux of a given series without installing anything. Happy path:
#   1. guest_kernel: the newest cloud kernel package of the series is downloaded with package lists
#      of our own (bookworm and its backports, from the mirror that the system's apt uses) and
#      unpacked in the cache;
#   2. guest_build_initrd: busybox, the tools and their libraries, the modules and what they need,
#      packed by cpio;
#   3. guest_initrd: finds both in the cache the next time: the key is made of kernel, tools and this
#      file.
# Can fail: no mirror, no package, no compiler for fio's stub library: non-zero, the message on
# stderr.

# Modules by series; one that a kernel lacks or has built in is left out.
guest_modules="virtio_pci virtio_net virtio_blk virtio_console nvme-tcp nvmet-tcp brd
	null_blk ublk_drv tls crc32c_generic crc32c_intel crc32c ext4 xfs vhost_net"
# Debian package of each tool, for a tool that is not installed.
guest_tools="nvme:nvme-cli fio:fio mkfs.ext4:e2fsprogs e2fsck:e2fsprogs mkfs.xfs:xfsprogs
	xfs_repair:xfsprogs blkdiscard:util-linux"

# ---- downloads ----

# The system's own Debian mirror, which may also be a local one or a proxy: by what it says in its
# lists or, where apt has none yet, by its name.
guest_mirror()
{
	{
		apt-get indextargets --format '$(ORIGIN)|$(CODENAME)|$(REPO_URI)' 'Created-By: Packages' |
			awk -F'|' '$1 == "Debian" && $2 !~ /-/ { print $3 }'
		apt-get --print-uris update | sed -n "s,^'\([^']*/debian/\)dists/[a-z]*/InRelease'.*,\1,p"
	} 2>/dev/null | head -n 1
}

# A second set of package lists beside the system's: bookworm and its backports, for downloading
# only.
guest_apt_init()
{
	local apt=$guest_cache/apt mirror
	[ -e "$apt/ready" ] && return
	mirror=$(guest_mirror)
	[ -n "$mirror" ] || return 1
	mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
	printf 'deb %s %s main\n' "$mirror" bookworm "$mirror" bookworm-backports >"$apt/sources.list"
	guest_apt update >&2 && touch "$apt/ready"
}

guest_apt_options()
{
	local apt=$guest_cache/apt
	printf '%s\n' -o "Dir::Etc::SourceList=$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt/cache" -o "APT::Sandbox::User=$(id -un)"
}

guest_apt()
{
	local options
	mapfile -t options < <(guest_apt_options)
	apt-get -qq "${options[@]}" "$@"
}

# Downloads a package and unpacks it into a directory: guest_fetch PACKAGE DIR [private].
guest_fetch()
{
	local package=$1 dir=$2 from=${3:-}
	local tmp
	tmp=$(mktemp -d "$guest_cache/fetch.XXXXXX") || return 1
	(
		cd "$tmp" || exit 1
		if [ "$from" = private ]; then
			guest_apt download "$package"
		else
			apt-get -qq -o APT::Sandbox::User="$(id -un)" download "$package"
		fi && dpkg -x ./*.deb "$dir"
	) >&2
	local rc=$?
	rm -rf "$tmp"
	return $rc
}

# The newest package of a series, as a name: 6.1 -> linux-image-6.1.0-NN-cloud-amd64.
guest_kernel_package()
{
	local series=${1//./\\.} options
	mapfile -t options < <(guest_apt_options)
	apt-cache "${options[@]}" search --names-only "^linux-image-$series\\.[0-9]+.*cloud-amd64\$" |
		awk '$1 !~ /unsigned|dbg/ { print $1 }' | sort -V | tail -n 1
}

# Makes sure that $guest_cache/kernel-SERIES holds boot/ and lib/modules/; quick when it does.
guest_kernel()
{
	local series=$1 dir=$guest_cache/kernel-$1
	[ -e "$dir/version" ] && return
	guest_note "downloading a $series kernel (once)" >&2
	rm -rf "$dir.new"
	if ! guest_fetch_kernel "$series" "$dir.new"; then
		# Perhaps our lists are old and name a package that is no longer there.
		rm -f "$guest_cache/apt/ready"
		guest_fetch_kernel "$series" "$dir.new" || return 1
	fi
	local modules=("$dir.new"/lib/modules/*)
	depmod -b "$dir.new" "${modules[0]##*/}" || return 1
	echo "${modules[0]##*/}" >"$dir.new/version"
	rm -rf "$dir" && mv "$dir.new" "$dir"
}

guest_fetch_kernel()
{
	local package
	guest_apt_init || return 1
	package=$(guest_kernel_package "$1")
	[ -n "$package" ] && guest_fetch "$package" "$2" private
}

# ---- initramfs ----

# The path of a tool: the system's, or that of a downloaded copy.
guest_tool()
{
	local name=$1 package=$2 tools=$guest_cache/tools path dependency
	path=$(PATH=$PATH:/usr/sbin:/sbin type -P "$name") ||
		path=$(PATH=$tools/usr/sbin:$tools/sbin:$tools/usr/bin type -P "$name")
	if [ -z "$path" ]; then
		guest_note "downloading $package (once)" >&2
		for dependency in "$package" $(apt-cache depends -i "$package" |
				awk '$1 == "Depends:" && $2 ~ /^lib[^c6]/ { print $2 }'); do
			guest_fetch "$dependency" "$tools" || return 1
		done
		path=$(PATH=$tools/usr/sbin:$tools/sbin:$tools/usr/bin type -P "$name") || return 1
	fi
	echo "$path"
}

# Copies a program and its libraries; those in $3 (a pattern) are left for guest_stub.
guest_copy_program()
{
	local program=$1 root=$2 except=${3:-^$} tools=$guest_cache/tools lib
	install -D "$(readlink -f "$program")" "$root/usr/bin/${program##*/}"
	LD_LIBRARY_PATH=$tools/usr/lib/x86_64-linux-gnu:$tools/lib/x86_64-linux-gnu \
		ldd "$program" 2>/dev/null |
		sed -n 's/^\s*\(.* => \)\?\(\/\S*\) (0x.*/\2/p' | grep -Ev "$except" |
		while read -r lib; do
			[ -e "$root/usr/lib/${lib##*/}" ] ||
				install -D "$(readlink -f "$lib")" "$root/usr/lib/${lib##*/}"
		done
}

# fio is linked with the client libraries of a dozen storage systems (80 MB). The guest uses none of
# them: one empty library takes the place of all. Keeps those that fio itself needs.
guest_copy_fio()
{
	local fio=$1 root=$2 tmp=$3 keep='lib(c|m|z|aio|numa|dl|rt|pthread)\.so' lib
	local kept
	guest_copy_program "$fio" "$root" '/lib'
	mapfile -t kept < <(ldd "$fio" | sed -n 's/^\s*.* => \(\/\S*\) (0x.*/\1/p' | grep -E "$keep")
	for lib in "${kept[@]}"; do
		cp -Ln "$lib" "$root/usr/lib/"
	done
	nm -D --defined-only "${kept[@]}" | sed -n 's/.* [A-Za-z] \([^@]*\).*/\1/p' | sort -u >"$tmp/kept"
	nm -D --undefined-only "$fio" | awk '$1 == "U" { print $2 }' | grep -v '@GLIBC' |
		awk -F@ -v kept="$tmp/kept" 'BEGIN { while ((getline s < kept) > 0) have[s] }
			!($1 in have) { print $1, $NF == $1 ? "BASE" : $NF }' >"$tmp/missing"
	awk '{ print "void " $1 "(void) { }" }' "$tmp/missing" >"$tmp/stub.c"
	awk '{ at[$2] = at[$2] " " $1 ";" }
		END { for (v in at) print v " { global:" at[v] " };" }' "$tmp/missing" >"$tmp/stub.map"
	${CC:-gcc} -w -fno-builtin -shared -fPIC -nostdlib -o "$root/usr/lib/libstub.so" \
		"$tmp/stub.c" -Wl,--version-script="$tmp/stub.map" || return 1
	readelf -d "$fio" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -Ev "$keep" |
		while read -r lib; do
			ln -s libstub.so "$root/usr/lib/$lib"
		done
}

guest_copy_modules()
{
	local kernel=$1 root=$2 version module path
	version=$(<"$kernel/version")
	for module in $guest_modules; do
		modprobe -d "$kernel" -S "$version" -D "$module" 2>/dev/null | awk '$1 == "insmod" { print $2 }'
	done | sort -u | while read -r path; do
		path=$(realpath "$path")
		install -D -m 644 "$path" "$root/${path#"$(realpath "$kernel")"/}"
	done
	find "$root/lib/modules" -name '*.ko.xz' -exec xz -d {} +
	cp "$kernel/lib/modules/$version"/modules.{order,builtin,builtin.modinfo} \
		"$root/lib/modules/$version/"
	depmod -b "$root" "$version"
}

# What the image depends on: kernel, tools and this file.
guest_initrd_key()
{
	local kernel=$1 entry
	{
		cat "$kernel/version" "$guest_dir/guest_image.sh"
		for entry in $guest_tools; do
			stat -Lc '%n %s %Y' "$(guest_tool "${entry%:*}" "${entry#*:}")"
		done
	} | sha256sum | cut -c 1-16
}

guest_build_initrd()
{
	local kernel=$1 image=$2 work entry name path
	work=$(mktemp -d "$guest_cache/initrd.XXXXXX") || return 1
	local root=$work/root
	mkdir -p "$root"/{dev,proc,sys,tmp,run,etc,mnt,usr/bin,usr/lib,lib,test}
	ln -s usr/bin "$root/bin"
	ln -s usr/bin "$root/sbin"
	ln -s bin "$root/usr/sbin"
	ln -s usr/lib "$root/lib64"
	guest_copy_program "$(type -P busybox)" "$root"
	cp -L /lib64/ld-linux-x86-64.so.2 "$root/usr/lib/"
	for entry in $guest_tools; do
		name=${entry%:*}
		path=$(guest_tool "$name" "${entry#*:}") || return 1
		if [ "$name" = fio ]; then
			guest_copy_fio "$path" "$root" "$work"
		else
			guest_copy_program "$path" "$root"
		fi || return 1
	done
	guest_copy_modules "$kernel" "$root" || return 1
	(cd "$root" && find . | cpio -o -H newc -R 0:0 --quiet) >"$image.new" && mv "$image.new" "$image"
	local rc=$?
	rm -rf "$work"
	return $rc
}

# Sets guest_image and guest_vmlinuz for a series. Two runs at once take turns.
guest_initrd()
{
	local series=$1 kernel=$guest_cache/kernel-$1
	mkdir -p "$guest_cache"
	exec 9>"$guest_cache/lock"
	flock 9
	guest_kernel "$series" || { exec 9>&-; return 1; }
	guest_vmlinuz=$(echo "$kernel"/boot/vmlinuz-*)
	guest_image=$guest_cache/initrd-$series-$(guest_initrd_key "$kernel")
	if [ ! -e "$guest_image" ]; then
		rm -f "$guest_cache/initrd-$series"-*
		guest_note "building the $series guest (once)" >&2
		guest_build_initrd "$kernel" "$guest_image" || { exec 9>&-; return 1; }
	fi
	exec 9>&-
}
