"""Which names settings have, and what type each wants: read off the tables, so that nothing is listed twice."""

import types
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from fanout.settings.tables import Tables

Keys = tuple[str, ...]


def known_spellings(keys: Keys) -> list[Keys] | None:
    """``None`` if ``keys`` name a setting or a table; else what could stand there instead of the first unknown name."""
    kind: Any = Tables
    for depth, key in enumerate(keys):
        if _is_table(kind):
            fields = _fields(kind)
            if key not in fields:
                return [(*keys[:depth], known, *keys[depth + 1 :]) for known in fields]
            kind = fields[key]
        elif get_origin(kind) is dict:
            kind = _bare(get_args(kind)[1])
        else:  # below a plain value there is nothing
            return []
    return None


def kind_of(keys: Keys) -> Any:
    """The type that ``keys``, which name something, want."""
    kind: Any = Tables
    for key in keys:
        kind = _fields(kind)[key] if _is_table(kind) else _bare(get_args(kind)[1])
    return kind


def holds_names(kind: Any) -> bool:
    return _is_table(kind) or get_origin(kind) is dict


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _fields(table: type[BaseModel]) -> dict[str, Any]:
    return {each.alias or name: _bare(each.annotation) for name, each in table.model_fields.items()}


def _bare(kind: Any) -> Any:
    """The type without ``None`` and without what is annotated."""
    if get_origin(kind) in {Union, types.UnionType}:
        return _bare(next(each for each in get_args(kind) if each is not type(None)))
    return _bare(get_args(kind)[0]) if get_origin(kind) is Annotated else kind


def from_text(keys: Keys, text: str) -> object:
    """An environment variable as the type that its key wants; text that cannot be that stays text, to be complained about."""
    kind = kind_of(keys)
    if get_origin(kind) is tuple:
        return [piece.strip() for piece in text.split(",") if piece.strip()]
    if kind is bool:
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    if kind not in {int, float}:
        return text
    try:
        return kind(text)
    except ValueError:
        return text
