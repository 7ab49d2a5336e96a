"""Counts what a daemon executes, without a clock: instructions of its own program, and system calls.

Happy path: a daemon starts with Counter(directory, program).prefix in front of its command; cost(daemon,
conversation, ios) for each conversation. A conversation lies between two calls of the verb "stats": callgrind writes
down what it counted, and begins anew, whenever that verb's function is entered. What the asking itself costs is
counted next, and taken off. Instructions of libraries (memcpy, CRC, liburing) are left out, because the CPU decides
which variant of them runs; so are calls of clock_gettime, which is a system call in valgrind alone.
What can fail: a dump that is not as expected, which is an exception.
"""
import collections
import os
import re

COST = re.compile(r"[+*-]?\d*( \d+)+$")
NAME = re.compile(r"(c?)(ob|fn)=(\(\d+\))(?: (.*))?$")         # c: of a function that is called


def read_dump(path, program):
    """Instructions of each function of the program, and system calls of all."""
    names, place, functions, calls, inclusive = {}, {}, collections.Counter(), 0, False
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            named = NAME.match(line)
            if named:
                called, kind, key, name = named.groups()
                if name:
                    names[kind, key] = name
                if not called:
                    place[kind] = names[kind, key]
            elif line.startswith("events:"):
                assert line.split()[1:3] == ["Ir", "sysCount"], line
            elif line.startswith("calls="):
                inclusive = True        # the next line is the callee's cost, which has its own lines
            elif COST.match(line):
                instructions, count = [*map(int, line.split()[1:]), 0][:2]
                if not inclusive:
                    calls += 0 if place["fn"].startswith("clock_gettime") else count
                    if os.path.basename(place["ob"]) == program:
                        functions[place["fn"].split("'")[0]] += instructions
                inclusive = False
    return functions, calls


class Counter:
    def __init__(self, directory, program):
        self.out, self.program, self.dumps = os.path.join(directory, program), program, 0
        self.prefix = ["valgrind", "-q", "--tool=callgrind", "--collect-systime=yes", "--dump-before=verb_stats",
                       f"--callgrind-out-file={self.out}"]

    def mark(self, daemon):
        """What was counted since the last mark."""
        daemon.ctl("stats")
        self.dumps += 1
        path = f"{self.out}.{self.dumps}"
        got = read_dump(path, self.program)
        os.unlink(path)
        return got

    def cost(self, daemon, conversation, ios):
        """Instructions by function, and system calls, for each of its I/Os."""
        self.mark(daemon)
        conversation()
        functions, calls = self.mark(daemon)
        asking, asking_calls = self.mark(daemon)
        functions.subtract(asking)
        return {name: n / ios for name, n in functions.items()}, (calls - asking_calls) / ios
