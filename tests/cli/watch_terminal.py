# The terminal of test_watch.sh: runs `ndparallel watch` on a pseudo-terminal that is resized while it draws, checks every
# frame, and ends it by KEY ("q", "^C", or "-": the run ends it). Arguments: KEY RUN [PID to stop for "-"].
import fcntl, os, pty, re, select, signal, struct, sys, termios, time

key, run, *pid = sys.argv[1:]
sizes = [(80, 24), (100, 30), (120, 24), (44, 10)]


def resize(columns, rows):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def take_frames():
    """The lines of each whole screen that has come since the last call."""
    global rest
    *whole, rest = rest.split("\033[J\033[?7h")
    for frame in whole:
        lines = frame.split("\033[?7l\033[H")[1]
        yield [re.sub(r"\033\[[0-9;]*[mK]", "", line) for line in re.split("\r+\n", lines)]


child, terminal = pty.fork()
if child == 0:
    os.environ.update(TERM="xterm", LC_ALL="C.UTF-8")
    os.execv(os.environ["NDP_PROGRAM"], ["ndparallel", "watch", run])
at, deadline, text, rest = 0, time.time() + 120, "", ""
resize(*sizes[at])
while time.time() < deadline:
    if not select.select([terminal], [], [], 1)[0]:
        continue
    try:
        more = os.read(terminal, 65536).decode(errors="ignore")
    except OSError:
        break
    text += more
    rest += more
    for frame in take_frames():
        assert max(map(len, frame)) < max(columns for columns, rows in sizes), frame
        if at == len(sizes) or len(frame) > sizes[at][1] or max(map(len, frame)) != sizes[at][0] - 1:
            continue  # of the size before
        at += 1
        if at < len(sizes):
            resize(*sizes[at])
        elif key == "-":
            os.kill(int(pid[0]), signal.SIGTERM)
        else:
            os.write(terminal, b"\x03" if key == "^C" else key.encode())
else:
    os.kill(child, signal.SIGKILL)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert at == len(sizes), f"no frame of {sizes[at]}: {text[-3000:]!r}"
assert text.startswith("\033[?1049h\033[?25l"), text[:40]
left = text.split("\033[?25h\033[?1049l")
assert len(left) == 2 and "step" in left[1], f"the terminal is not as before: {text[-300:]!r}"
print("exit code", code)
