"""Reading JSON that a person wrote: strictly, with every problem found at once, each under the name of its field."""

import json
from collections.abc import Callable, Iterable, Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]  # typeshed leaves it out
from json.scanner import make_scanner
from typing import Never, TypeVar, cast

from fanout.model.problems import Invalid, Problem

Value = TypeVar("Value")

_BLANK = " \t\n\r"


def decode_utf8(field: str, body: bytes) -> str:
    """JSON is UTF-8 (RFC 8259). A byte order mark at the front is skipped, as that RFC allows."""
    try:
        return body.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        raise Invalid.field(field, f"byte {error.start} is not UTF-8", "write JSON in UTF-8", malformed=True) from None


def read_json(field: str, body: bytes) -> object:
    """Read one JSON document. Malformed beside what no parser can read: a name twice in one object, NaN, too deep nesting."""
    return read_json_text(field, decode_utf8(field, body))


def read_json_text(field: str, text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_no_name_twice, parse_constant=_no_constant)
    except Invalid as error:
        raise Invalid(*(Problem(field, each.why, each.right, malformed=True) for each in error.problems)) from None
    except json.JSONDecodeError as error:
        where = f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise Invalid.field(field, f"is not JSON: {where}", malformed=True) from None
    except RecursionError:
        raise Invalid.field(field, "is nested too deeply", malformed=True) from None
    except ValueError:  # int() of more than 4,300 digits
        raise Invalid.field(field, "holds a number that is too long", malformed=True) from None


def read_object(field: str, body: bytes) -> dict[str, object]:
    """Read one JSON document that has to be an object."""
    return check_object(field, read_json(field, body))


def split_object(field: str, text: str) -> dict[str, str]:
    """Cut a JSON object into its names and the *source text* of their values, untouched to the last blank inside them.

    For what must go on as it came in: ``1e400``, a lone surrogate escape, a name twice further down, and numbers of any length
    pass. Nothing but the object itself is interpreted, though all of it has to be JSON.
    """
    try:
        return _split_object(text)
    except Invalid as error:
        raise Invalid(*(Problem(field, each.why, each.right, malformed=True) for each in error.problems)) from None
    except json.JSONDecodeError as error:
        raise Invalid.field(field, f"is not JSON: {error.msg} at character {error.pos + 1}", malformed=True) from None
    except StopIteration as stop:
        why = f"is not JSON: expecting a value at character {cast('int', stop.value) + 1}"
        raise Invalid.field(field, why, malformed=True) from None
    except RecursionError:
        raise Invalid.field(field, "is nested too deeply to be read from a line", malformed=True) from None


def _split_object(text: str) -> dict[str, str]:
    position = _expect(text, 0, "{", "an object")
    pairs: list[tuple[str, str]] = []
    if _peek(text, position) == "}":
        position = _skip_blanks(text, position)
    else:
        while True:
            name, position = scanstring(text, _expect(text, position, '"', "a name in double quotes"), True)
            start = _skip_blanks(text, _expect(text, position, ":", "':'"))
            _, position = _scan_value(text, start)
            pairs.append((name, text[start:position]))
            if _peek(text, position) != ",":
                break
            position = _expect(text, position, ",", "','")
    end = _skip_blanks(text, _expect(text, position, "}", "',' or '}'"))
    if end != len(text):
        raise json.JSONDecodeError("there is more after the object", text, end)
    return _no_name_twice(pairs)


def _skip_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position] in _BLANK:
        position += 1
    return position


def _peek(text: str, position: int) -> str:
    position = _skip_blanks(text, position)
    return text[position : position + 1]


def _expect(text: str, position: int, mark: str, what: str) -> int:
    position = _skip_blanks(text, position)
    if not text.startswith(mark, position):
        raise json.JSONDecodeError(f"expecting {what}", text, position)
    return position + 1


def _no_constant(name: str) -> Never:
    raise Invalid.field("", f"{name} is not a JSON number", malformed=True)


def _no_name_twice(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    document = dict(pairs)
    if len(document) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Invalid.field("", f"the name {twice!a} stands twice in one object", malformed=True)
    return document


# Numbers are only passed over: int() refuses beyond 4,300 digits, and the value is not wanted.
_scan_value = make_scanner(
    json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=_no_constant)  # type: ignore[arg-type]  # typeshed knows no context but itself
)


def check_object(field: str, value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise Invalid.field(field, f"is {json_kind(value)}", "write a JSON object")
    return value


def json_kind(value: object) -> str:
    """What a person who wrote ``value`` in JSON would call it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list() | tuple():
            return "a list"
        case _:
            return "an object"


class Form:
    """An object read field by field. Collects what is wrong and refuses all of it together in ``finish``."""

    def __init__(self, document: Mapping[str, object], *, at: str = "") -> None:
        self._document = document
        self._at = at
        self._known: list[str] = []
        self.problems: list[Problem] = []

    def required(self, name: str, read: Callable[[str, object], Value]) -> Value:
        """Read a field that must be there. After a problem the result is worthless: ``finish`` will raise."""
        self._known.append(name)
        if name not in self._document:
            self.problems.append(Problem(self._at + name, "is missing"))
            return cast("Value", None)
        return self.attempt(lambda: read(self._at + name, self._document[name]))

    def optional(self, name: str, read: Callable[[str, object], Value], default: Value) -> Value:
        """Read a field that may be absent or ``null``, which both mean ``default``."""
        self._known.append(name)
        if self._document.get(name) is None:
            return default
        return self.attempt(lambda: read(self._at + name, self._document[name]))

    def attempt(self, step: Callable[[], Value]) -> Value:
        try:
            return step()
        except Invalid as error:
            self.problems.extend(error.problems)
            return cast("Value", None)

    def finish(self) -> None:
        """Raise ``Invalid`` if a field had a problem or has a name that means nothing here."""
        for name in self._document:
            if name not in self._known:
                self.problems.append(unknown_name(self._at + name, self._known))
        if self.problems:
            raise Invalid(*self.problems)


def unknown_name(field: str, known: Iterable[str]) -> Problem:
    return Problem(ascii(field)[1:-1], "means nothing here", f"the names are {', '.join(known)}")
