"""Becomes another program that dies with the process which started it. Run as a script, standard library only:

    python -I -S tether.py PARENT_PID SIGNAL UID GID FOLDER PROGRAM [ARGUMENT ...]

Gives up root for UID and GID (``-`` keeps them), asks Linux to send SIGNAL when the parent is gone, however it went,
and executes PROGRAM in FOLDER. A program of its own, because the request is lost when a process changes its user, and
code between fork and exec is not safe in a process with threads. Elsewhere than on Linux the parent has to stop the
server itself.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h
CANNOT = 126


def main(parent: str, signal_number: str, uid: str, gid: str, folder: str, *command: str) -> None:
    if uid != "-":
        os.setgroups([])
        os.setgid(int(gid))
        os.setuid(int(uid))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)
        if os.getppid() != int(parent):  # it died before the request stood
            sys.exit(CANNOT)
    try:
        os.chdir(folder)
        os.execv(command[0], command)  # noqa: S606 - the very purpose; the arguments come from our own process
    except OSError as error:
        who = f"the unprivileged user {uid}" if uid != "-" else "this user"
        sys.stderr.write(
            f"{who} cannot run {command[0]} in {folder}: {error.strerror}; every folder above both must be open to that "
            "user (a home folder of root is not): choose a folder like /var/lib/fanout\n"
        )
        sys.exit(CANNOT)


if __name__ == "__main__":
    main(*sys.argv[1:])
