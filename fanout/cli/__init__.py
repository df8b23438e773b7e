"""The command line: reads arguments and files, calls what does the work, and says what came of it.

Human output and ``--json`` (one document) go to stdout; progress, errors and logs to stderr. Exit status: 0 done, 1 failed or not
found, 2 usage (a wrong option, setting, id or file), 130 interrupted.
"""

from fanout.cli.ending import main

__all__ = ["main"]
