#!/bin/bash
# examples/quickstart does what README.md says, without its build: a verified load through the death of a
# target, and counters that add up.
exec timeout -k 10 180 python3 "$TOP_SRCDIR/examples/quickstart.py"
