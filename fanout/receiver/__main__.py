"""`python -m fanout.receiver`: the receiver as a process of its own, for the demo and for tests."""

import argparse
import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from fanout.model.problems import Invalid
from fanout.receiver.command import run_receiver


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop  # noqa: PLC0415 - not there on every platform
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fanout.receiver", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--script", type=Path, help="rules as JSON: what to answer")
    parser.add_argument("--secrets", type=Path, help="as `fanout subscribers apply --secrets-out` writes it")
    parser.add_argument("--json", action="store_true", help="the summary as one JSON document")
    given = parser.parse_args()
    try:
        with asyncio.Runner(loop_factory=fastest_loop()) as runner:
            runner.run(run_receiver(given.host, given.port, given.script, given.secrets, given.json))
    except Invalid as invalid:
        for problem in invalid.problems:
            sys.stderr.write(f"{problem}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"cannot listen on {given.host}:{given.port}: {error.strerror or error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
