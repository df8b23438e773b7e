"""`python -m fanout.demo`: the demo without the rest of the command line."""

import argparse
import asyncio
import sys

from fanout.demo.command import run_demo
from fanout.receiver.__main__ import fastest_loop


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fanout.demo", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the sum as one JSON document")
    parser.add_argument("--keep", action="store_true", help="keep everything running at the end, until Ctrl-C")
    parser.add_argument("--versions", type=int, help="only the first so many of the day")
    given = parser.parse_args()
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        return runner.run(run_demo(json_output=given.json, keep=given.keep, versions=given.versions))


if __name__ == "__main__":
    sys.exit(main())
