"""The beginning of every program of this folder (python.c puts it there): what others wrote, such as a template or a
table, must not make a library run code that acts outside this process."""

import os
import resource
import sys

REFUSED_MODULES = frozenset(
    "ctypes ftplib http imaplib nntplib pickle poplib pty shutil smtplib socket sqlite3 subprocess telnetlib urllib "
    "webbrowser".split())
REFUSED_CALLS = frozenset(
    "os.chmod os.chown os.exec os.fork os.forkpty os.kill os.killpg os.link os.mkdir os.posix_spawn os.remove os.rename "
    "os.rmdir os.setxattr os.symlink os.system os.truncate".split())
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
TIME_ZONES = ("/usr/share/zoneinfo", "/usr/lib/zoneinfo", "/usr/share/lib/zoneinfo", "/etc/zoneinfo")


def guard(readable=None):
    """From now on, refuses all that such a program has no use for. It may read one file, and Python's own, since modules
    are read when they are first used. There is no way back: Python cannot remove an audit hook."""
    folders = tuple(os.path.join(folder, "") for folder in {sys.prefix, sys.base_prefix, *sys.path, *TIME_ZONES} if folder)

    def refuse(event, arguments):
        if event.split(".")[0] in REFUSED_MODULES or event in REFUSED_CALLS:
            raise PermissionError("it tried to use " + event)
        if event == "open":
            path, _, flags = arguments
            if flags & WRITING or (path != readable and not os.path.abspath(str(path)).startswith(folders)):
                raise PermissionError("it tried to open " + str(path))

    sys.addaudithook(refuse)


def lower_limit(what, wanted):
    """Stays one below an upper limit: where that is reached, the signal is SIGKILL."""
    most = resource.getrlimit(what)[1]
    resource.setrlimit(what, (wanted if most == resource.RLIM_INFINITY else min(wanted, most - 1), most))


def version_of(module):
    """(14, 0, 1); what is not a number counts as 0."""
    return tuple(int(n) if n.isdigit() else 0 for n in module.__version__.split(".")[:3])


