"""A measurement as a command: ``python -m benchmarks.NAME [--quick] [--SIZE VALUE …] [--json]``."""

import argparse
import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]
"""What was measured, as JSON holds it."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much of something is measured: in development, and for the record. Its type is that of the values."""

    quick: Any
    full: Any
    says: str


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    title: str
    says: str
    """How it is measured, for the report."""
    sizes: Mapping[str, Size]
    measure: Callable[[argparse.Namespace], Awaitable[Document]]
    table: Callable[[Document], str]
    """In Markdown."""

    def chosen(self, *, quick: bool, given: Mapping[str, Any] | None = None) -> argparse.Namespace:
        """The sizes of one measurement."""
        sizes = {name: size.quick if quick else size.full for name, size in self.sizes.items()}
        return argparse.Namespace(**sizes | dict(given or {}))

    def main(self, arguments: Sequence[str] | None = None) -> None:
        parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{self.name}", description=self.says)
        parser.add_argument("--quick", action="store_true", help="the small sizes")
        parser.add_argument("--json", action="store_true", help="one JSON document on stdout instead of the table")
        for name, size in self.sizes.items():
            says = f"{size.says} ({size.quick} if quick, else {size.full})"
            parser.add_argument(f"--{name.replace('_', '-')}", type=type(size.full), help=says)
        given = vars(parser.parse_args(arguments))
        quick, as_json = given.pop("quick"), given.pop("json")
        chosen = self.chosen(quick=quick, given={name: value for name, value in given.items() if value is not None})
        document = asyncio.run(self.measure(chosen))
        print(json.dumps(document, indent=1) if as_json else self.table(document))


def tell(text: str) -> None:
    """Progress, for whoever waits."""
    print(text, file=sys.stderr, flush=True)


def spread(values: Sequence[float], digits: int = 0) -> str:
    """The median, and in brackets least and greatest where there are several."""
    ordered = sorted(values)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    if len(ordered) == 1:
        return f"{middle:,.{digits}f}"
    return f"{middle:,.{digits}f} ({ordered[0]:,.{digits}f} to {ordered[-1]:,.{digits}f})"
