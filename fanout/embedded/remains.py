"""What an embedded PostgreSQL leaves on the machine, and how it goes."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

JANITOR = Path(__file__).with_name("janitor.py")


class Remains:
    """What has to go when the server's owner goes, also without a farewell (interpreter exit, garbage collection)."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.folders: list[Path] = []
        self.janitor: subprocess.Popen[bytes] | None = None

    def hire_janitor(self) -> None:
        """Temporary folders go even if we are killed."""
        if self.folders and self.janitor is None:
            self.janitor = subprocess.Popen(  # noqa: S603 - our own script, folders that we made
                [sys.executable, "-I", "-S", str(JANITOR), *map(str, self.folders)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def clear(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)
        self.folders.clear()
        if self.janitor is not None:
            self.janitor.communicate()
            self.janitor = None
