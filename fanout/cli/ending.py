"""How a command ends: every foreseen trouble becomes lines on stderr and an exit status, never a traceback."""

import asyncio
import gc
import os
import sys
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from typer.exceptions import Abort, TyperException

Value = TypeVar("Value")

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
PROBLEMS_SHOWN = 20


class Failed(Exception):  # noqa: N818 - reads as what it says: the command failed
    """What was asked could not be done. The text is for the person who asked; exit status 1."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. ``arguments``: those of the process, unless given."""
    from fanout.cli.app import app  # noqa: PLC0415 - its modules raise what stands above

    try:
        status = app(arguments, prog_name="fanout", standalone_mode=False)
        sys.stdout.flush()
    except TyperException as error:
        return _usage(error)
    except (Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        return _pipe_closed()
    except Failed as error:
        complain(str(error))
        return FAILED
    except ValueError as error:
        problems = getattr(error, "problems", None)  # an Invalid, whose module is not imported for `fanout --help`
        if problems is None:
            raise
        complain_of_input(problems)
        return USAGE
    return int(status or DONE)


def complain(line: str) -> None:
    """One line on stderr."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - the one place that writes plain lines to stderr


def complain_of_input(problems: Sequence[object]) -> None:
    """A line for each problem; of many the first ones and the number of the rest."""
    for problem in problems[:PROBLEMS_SHOWN]:
        complain(str(problem))
    if len(problems) > PROBLEMS_SHOWN:
        complain(f"… and {len(problems) - PROBLEMS_SHOWN:,} more")


COLLECT_AFTER = (20_000, 20, 20)
"""When the garbage collector looks for cycles. By default it does after every 700 objects, and spends a tenth of a consumer's time on it."""


def run(work: Coroutine[Any, Any, Value]) -> Value:
    """Run ``work`` in an event loop of its own, the fast one where it is installed."""
    gc.freeze()  # what was imported stays
    gc.set_threshold(*COLLECT_AFTER)
    with new_runner() as runner:
        return runner.run(work)


def new_runner() -> asyncio.Runner:
    """An event loop of uvloop, or asyncio's own where that is not installed."""
    try:
        from uvloop import new_event_loop  # noqa: PLC0415 - not for `fanout --help`
    except ImportError:
        return asyncio.Runner(loop_factory=asyncio.new_event_loop)
    return asyncio.Runner(loop_factory=new_event_loop)


def _usage(error: TyperException) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        complain(error.format_message().rstrip())
        return error.exit_code
    said = error.format_message().rstrip(".")
    command = "fanout" if context is None else context.command_path
    complain(f"{command}: {said}; see `{command} --help`")
    return error.exit_code


def _pipe_closed() -> int:
    """Whoever read our output has seen enough. Nothing more is written, not even by the interpreter when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED
