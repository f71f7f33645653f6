"""The program `ndparallel`, whose `launch` runs scripts with this Python: ndparallel launch -n 4 script.py"""
import os
import sys

from ._library import HERE, native


def main():
    program = native("ndparallel") or sys.exit(f"ndparallel: the program is not in {HERE}; install the wheel again")
    words = sys.argv[1:]
    words[1:1] = ["--python", sys.executable] * (words[:1] == ["launch"])
    os.execv(program, [program, *words])


if __name__ == "__main__":
    main()
