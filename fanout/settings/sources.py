"""Where settings come from: the file, then the environment's short forms, then its long forms; each beats the ones before.

Every value remembers who wrote it, so that a complaint names the key as that person wrote it.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fanout.model.problems import Invalid, Problem
from fanout.settings.names import Keys, from_text, holds_names, kind_of, known_spellings
from fanout.settings.tables import Tables, check_amqp_url, check_database_url

CONFIG_VARIABLE = "FANOUT_CONFIG"
DEFAULT_FILE = Path("config/fanout.toml")
LONG_FORM = "FANOUT__"

DATABASE_URL, AMQP_URL, ALLOW_NETWORKS = "FANOUT_DATABASE_URL", "FANOUT_AMQP_URL", "FANOUT_ALLOW_NETWORKS"
_SHORT_FORMS: dict[str, Keys] = {
    DATABASE_URL: ("home", "database_url"),
    "FANOUT_NAMESPACE": ("namespace",),
    "FANOUT_HTTP_HOST": ("http", "host"),
    "FANOUT_HTTP_PORT": ("http", "port"),
    "FANOUT_LOG_LEVEL": ("log", "level"),
}
_FOR_ALL_REGIONS = {DATABASE_URL: check_database_url, AMQP_URL: check_amqp_url}
"""Short forms that hold for every region that names none itself."""
_OTHER_SHORT_FORMS = (CONFIG_VARIABLE, AMQP_URL)
_KUBERNETES = re.compile(
    r"FANOUT_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_[A-Z]+(?:_(?:PROTO|PORT|ADDR))?)"
)
"""What Kubernetes sets by itself in every container beside a service whose name begins with ``fanout``."""


class SettingsError(Invalid):
    """A setting that is wrong or unknown. ``str`` is one line: the key as it was written, why, and what would be right."""


@dataclass(slots=True)
class Written:
    """Values as nested tables, and for each who wrote it."""

    file: Path | None = None
    values: dict[str, Any] = field(default_factory=dict)
    writers: dict[Keys, str] = field(default_factory=dict)
    for_all_regions: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    """Keys that mean nothing, with what was written under them left out. Whoever mends one mistake wants to know of the next."""

    @contextmanager
    def noting(self) -> Iterator[None]:
        """A ``SettingsError`` inside the block is noted, and ends the block."""
        try:
            yield
        except SettingsError as error:
            self.problems += error.problems

    def put(self, keys: Keys, value: object, writer: str) -> None:
        table = self.values
        for key in keys[:-1]:
            table = table.setdefault(key, {})
        table[keys[-1]] = value
        self.writers[keys] = writer

    def writer_of(self, keys: Keys) -> str:
        """The name under which the person who wrote this value, or the table around it, finds it."""
        for length in range(len(keys), 0, -1):
            if keys[:length] in self.writers:
                rest = "".join(f"[{key}]" if key.isdigit() else f".{key}" for key in keys[length:])
                return self.writers[keys[:length]] + rest
        below = [writer for each, writer in self.writers.items() if each[: len(keys)] == keys]
        return ", ".join(below) or ".".join(keys)


def read_sources(environ: Mapping[str, str], cwd: Path) -> Written:
    """Gather what was written, noting keys that mean nothing. An empty variable counts as not set. Raises ``SettingsError`` where
    the file cannot be read at all.
    """
    variables = {name: text for name, text in environ.items() if name.startswith("FANOUT_") and text.strip()}
    written = Written(_find_file(variables, cwd))
    if written.file is not None:
        shown = written.file.relative_to(cwd) if written.file.is_relative_to(cwd) else written.file
        _read_file(written, written.file, str(shown))
    regions = list(written.values.get("regions", Tables().regions))
    _read_short_forms(written, variables, regions)
    for name in sorted(variables):
        if name.startswith(LONG_FORM):
            with written.noting():
                _read_long_form(written, name, variables[name], regions)
    return written


def _read_long_form(written: Written, name: str, text: str, regions: list[str]) -> None:
    keys = tuple(name.removeprefix(LONG_FORM).lower().split("__"))
    _check_long_form(name, keys, regions)
    if keys[0] == "regions":  # naming one region does not take the others away
        written.values.setdefault("regions", {region: {} for region in regions})
    written.put(keys, from_text(keys, text), name)


def _read_short_forms(written: Written, variables: Mapping[str, str], regions: list[str]) -> None:
    for name, text in sorted(variables.items()):
        if name in _SHORT_FORMS:
            written.put(_SHORT_FORMS[name], from_text(_SHORT_FORMS[name], text), name)
        elif name == ALLOW_NETWORKS:
            written.values.setdefault("regions", {region: {} for region in regions})
            for region in regions:
                keys = ("regions", region, "allow_networks")
                written.put(keys, from_text(keys, text), name)
        elif not (name in _OTHER_SHORT_FORMS or name.startswith(LONG_FORM) or _set_by_kubernetes(name, text)):
            written.problems += _unknown(name, [*_SHORT_FORMS, ALLOW_NETWORKS, *_OTHER_SHORT_FORMS]).problems
        if name in _FOR_ALL_REGIONS:
            with written.noting():
                written.for_all_regions[name] = _checked_url(name, text)


def _find_file(variables: Mapping[str, str], cwd: Path) -> Path | None:
    if (named := variables.get(CONFIG_VARIABLE)) is None:
        return cwd / DEFAULT_FILE if (cwd / DEFAULT_FILE).is_file() else None
    file = cwd / named
    if not file.is_file():
        raise SettingsError.field(
            CONFIG_VARIABLE, f"there is no file {file}", "name an existing file, or leave it unset"
        )
    return file


def _read_file(written: Written, file: Path, shown: str) -> None:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError.field(shown, f"cannot be read: {error.strerror}", "make it readable") from None
    except UnicodeDecodeError as error:
        raise SettingsError.field(shown, f"byte {error.start} is not UTF-8", "save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError.field(shown, f"is not TOML: {error}", "mend that line") from None
    written.values = _known(written, document, (), shown)


def _known(written: Written, table: Mapping[str, Any], above: Keys, shown: str) -> dict[str, Any]:
    """The table without what means nothing."""
    known: dict[str, Any] = {}
    for key, value in table.items():
        keys = (*above, key)
        writer = f"{shown}: {'.'.join(keys)}"
        if (spellings := known_spellings(keys)) is not None:
            written.problems += _unknown(writer, [".".join(each) for each in spellings], ".".join(keys)).problems
        elif holds_names(kind_of(keys)) and not isinstance(value, dict):
            written.problems.append(Problem(writer, "is a value, not a table", f"write [{'.'.join(keys)}]"))
        else:
            written.writers[keys] = writer
            known[key] = _known(written, value, keys, shown) if isinstance(value, dict) else value
    return known


def _check_long_form(name: str, keys: Keys, regions: list[str]) -> None:
    if (spellings := known_spellings(keys)) is not None:
        raise _unknown(name, [LONG_FORM + "__".join(each).upper() for each in spellings])
    if keys[0] == "regions" and len(keys) > 1 and keys[1] not in regions:
        why = f"there is no region '{keys[1]}'"
        raise SettingsError.field(name, why, f"the regions are {', '.join(regions)}; a new one is a table in the file")
    if holds_names(kind_of(keys)):
        raise SettingsError.field(name, "names a whole table", f"name one value in it, as {name}__NAME")


def _checked_url(name: str, text: str) -> str:
    try:
        return _FOR_ALL_REGIONS[name](text)
    except ValueError as error:
        raise SettingsError.field(name, "its value is not allowed", f"it {error}") from None


def _set_by_kubernetes(name: str, text: str) -> bool:
    return bool(_KUBERNETES.fullmatch(name)) or (name.endswith("_PORT") and "://" in text)


def _unknown(name: str, known: list[str], written: str | None = None) -> SettingsError:
    if not known:
        return SettingsError.field(name, "there is no such setting", "nothing stands below a plain value")
    near = get_close_matches(written or name, known, n=1, cutoff=0.8)
    right = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return SettingsError.field(name, "there is no such setting", right)
