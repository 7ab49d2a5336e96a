#!/bin/bash
# Nothing is forgotten: every source file is in its directory's local.mk, every test and every fuzzer in
# tests/local.mk, every page in man/local.mk, every example in examples/local.mk.
set -u
cd "$TOP_SRCDIR" || exit 1
shopt -s nullglob
files=0 bad=0

# listed LIST FILE...: each FILE is named in LIST, as %D%/... or by its path.
listed()
{
	local list=$1 dir file
	dir=$(dirname "$list")
	shift
	for file in "$@"; do
		files=$((files + 1))
		if ! grep -qE "(%D%|$dir)/${file#"$dir"/}([[:space:]]|$)" "$list"; then
			echo "$file: not in $list"
			bad=$((bad + 1))
		fi
	done
}

listed common/local.mk common/*.[ch]
listed target/local.mk target/*.[ch]
listed initiator/local.mk initiator/*.[ch] initiator/client/*.[ch]
for c in tests/unit/test_*.c tests/fuzz/fuzz_*.c; do
	listed tests/local.mk "${c%.c}"
done
listed tests/local.mk tests/lint/* tests/proto/*.{py,sh} tests/hostile/*.py tests/e2e/*.{py,sh} tests/guard/* tests/interop/*.{py,sh} \
	tests/lib/*
listed man/local.mk man/*.[1-8]
listed examples/local.mk examples/*[!k]

echo "$files files, $bad not listed"
test "$bad" = 0
