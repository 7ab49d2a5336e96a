# bootstrap.sh - from a fresh Debian and a fresh clone to built programs; for scripts to source.
#
#   bootstrap_top=/path/of/the/source       set by the caller
#   bootstrap_packages PACKAGE...           installs what is missing, as root; else says what to install
#   bootstrap_build DIR [CONFIGURE FLAG...] builds out of tree in DIR, quietly; again only what changed
#
# Can fail: a package that apt-get cannot install, a build error. Each prints why and ends the script
# with status 1. With everything installed nothing here uses the network.

bootstrap_build_packages="autoconf automake pkg-config gcc libc6-dev make
	liburing-dev libnvme-dev libssl-dev libjson-c-dev libisal-dev libzstd-dev"

bootstrap_say()
{
	echo "== $*"
}

bootstrap_die()
{
	echo "== $*" >&2
	exit 1
}

bootstrap_missing()
{
	local p status
	for p; do
		status=$(dpkg-query -W -f '${db:Status-Abbrev}' "$p" 2> /dev/null)
		case $status in ii*) ;; *) echo "$p" ;; esac
	done
}

bootstrap_packages()
{
	local missing
	if ! command -v dpkg-query > /dev/null; then
		bootstrap_say "this is not a Debian: what follows needs the like of" "$@"
		return
	fi
	missing=$(bootstrap_missing "$@" | tr '\n' ' ')
	test -z "$missing" && return
	if test "$(id -u)" != 0; then
		bootstrap_die "these Debian packages are missing: $missing
   as root:  apt-get install $missing
   or run this command as root, it installs them."
	fi
	bootstrap_say "installing Debian packages: $missing"
	export DEBIAN_FRONTEND=noninteractive
	# The names are words on purpose.
	# shellcheck disable=SC2086
	if ! { apt-get -qq update && apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 install -y \
		--no-install-recommends $missing; } > /tmp/sluice-apt.$$ 2>&1 < /dev/null; then
		tail -20 /tmp/sluice-apt.$$ >&2
		rm -f /tmp/sluice-apt.$$
		bootstrap_die "apt-get could not install: $missing"
	fi
	rm -f /tmp/sluice-apt.$$
}

# Runs a command quietly; its output is shown when it fails.
bootstrap_quietly()
{
	local log=$1
	shift
	if ! "$@" > "$log" 2>&1 < /dev/null; then
		tail -40 "$log" >&2
		bootstrap_die "failed: $* (all of it in $log)"
	fi
}

# Where to configure from: the tree itself, or a copy when someone has configured the tree in place,
# which out-of-tree builds do not stand.
bootstrap_source()
{
	local top=$bootstrap_top copy=$bootstrap_top/build/source
	if test -e "$top/configure" && ! test -e "$top/config.status" &&
		! test "$top/configure.ac" -nt "$top/configure"; then
		echo "$top"
	elif test -e "$top/config.status"; then
		mkdir -p "$copy"
		# Dates are kept, so that only what changed is built again.
		tar -C "$top" --exclude=./build --exclude=./.git --exclude='*.o' --exclude='*.a' \
			--exclude=./config.status --exclude=./config.h --exclude=./Makefile \
			--exclude=./stamp-h1 --exclude=.deps --exclude='*.log' --exclude='*.trs' \
			-cf - . | tar -C "$copy" -xf -
		echo "$copy"
	else
		(cd "$top" && bootstrap_quietly "$bootstrap_top/build/autoreconf.log" autoreconf -i) || return 1
		echo "$top"
	fi
}

bootstrap_build()
{
	local dir=$1 source jobs
	shift
	mkdir -p "$bootstrap_top/build" "$dir"
	source=$(bootstrap_source) || exit 1
	jobs=$(nproc)
	if ! test -e "$dir/config.status" || test "$source/configure" -nt "$dir/config.status"; then
		(cd "$dir" && bootstrap_quietly "$dir/configure.out" "$source/configure" "$@") || exit 1
	fi
	bootstrap_quietly "$dir/make.out" make -C "$dir" -j "$jobs"
}
