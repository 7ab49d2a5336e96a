#!/bin/bash
# Runs libFuzzer on each decoder named, FUZZ_TIME seconds each; called by "make fuzz", which passes the
# compiler, flags and sources. All of ours is compiled anew, in fuzz/ of the build tree, so that it is
# instrumented. New inputs grow fuzz/NAME/; a crash leaves its input in fuzz/ and fails.
set -eu
sanitize="-g -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined"
work=$TOP_BUILDDIR/fuzz
rm -rf "$work/obj" && mkdir -p "$work/obj"

# The flags are words on purpose, here and below.
# shellcheck disable=SC2086
compile()
{
	"$FUZZ_CC" $sanitize -fsanitize=fuzzer-no-link $FUZZ_FLAGS -c -o "$2" "$TOP_SRCDIR/$1"
}

echo "fuzz: building"
for s in $FUZZ_SOURCES; do
	case $s in *.c) compile "$s" "$work/obj/${s//\//_}.o" ;; esac
done
for part in common target initiator; do
	ar cr "$work/obj/$part.a" "$work/obj/${part}"_*.o
done

for f in "$@"; do
	name=$(basename "$f")
	part=target
	if grep -q '#include "initiator/' "$TOP_SRCDIR/tests/fuzz/$name.c"; then
		part=initiator
	fi
	mkdir -p "$work/$name"
	compile "tests/fuzz/$name.c" "$work/obj/$name.main"
	# shellcheck disable=SC2086
	"$FUZZ_CC" $sanitize -fsanitize=fuzzer -pthread -o "$work/run-$name" -x none "$work/obj/$name.main" \
		"$work/obj/$part.a" "$work/obj/common.a" $FUZZ_LIBS
	echo "fuzz: $name for $FUZZ_TIME s"
	"$work/run-$name" -max_total_time="$FUZZ_TIME" -print_final_stats=1 -artifact_prefix="$work/$name-" \
		"$work/$name" "$TOP_SRCDIR/tests/fuzz/corpus/$name"
done
