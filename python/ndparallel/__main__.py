"""The program `ndparallel`. A script that `launch` starts runs with this Python: ndparallel launch -n 4 script.py"""
import os
import sys

from ._library import HERE, native


def words_of(words):
    at, launches = 1, words[:1] == ["launch"]
    while launches and at < len(words) and words[at].startswith("-") and words[at] != "--":
        at += 1 if "=" in words[at] or (len(words[at]) > 2 and words[at][1] != "-") else 2  # an option, with its value
    at += words[at:at + 1] == ["--"]
    return words[:at] + [sys.executable] * (launches and at < len(words) and words[at].endswith(".py")) + words[at:]


def main():
    program = native("ndparallel") or sys.exit(f"ndparallel: the program is not in {HERE}; install the wheel again")
    os.execv(program, [program, *words_of(sys.argv[1:])])


if __name__ == "__main__":
    main()
