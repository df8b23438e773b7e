"""How each measurement speaks: what it does on stderr, what it found on stdout."""

import json
import sys


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def put(table: str, document: object, *, as_json: bool) -> None:
    """The Markdown table, or everything as one JSON document."""
    print(json.dumps(document, indent=1) if as_json else table)
