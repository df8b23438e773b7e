"""Removes temporary folders when their owner is gone, however it went. Run as a script, standard library only:

    python -I -S janitor.py FOLDER [FOLDER ...]

The owner holds the other end of standard input; its end means that the owner closed it or was killed. The server in the
first folder, if any, has its own way to notice (see tether.py) and is waited for.
"""

import os
import shutil
import sys
import time
from pathlib import Path

PATIENCE_SECONDS = 60
PAUSE_SECONDS = 0.05


def main(*folders: str) -> None:
    sys.stdin.buffer.read()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while server_runs(Path(folders[0]) / "data" / "postmaster.pid") and time.monotonic() < deadline:
        time.sleep(PAUSE_SECONDS)
    while any(Path(folder).exists() for folder in folders) and time.monotonic() < deadline:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        time.sleep(PAUSE_SECONDS)  # an initdb that was still writing is on its way out


def server_runs(pid_file: Path) -> bool:
    try:
        os.kill(int(pid_file.read_text().split()[0]), 0)
    except (OSError, ValueError, IndexError):
        return False
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
