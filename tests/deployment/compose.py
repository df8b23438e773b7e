"""``docker-compose.yml`` as compose reads it, without an engine: merged, and with its variables filled in."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docker-compose.yml"
EXAMPLE = ROOT / ".env.example"

_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?:(?P<how>:[-?])(?P<rest>[^}]*))?\}")
_MINUTES_SECONDS = re.compile(r"(?:(\d+)m)?(?:(\d+)s)?")


@dataclass(frozen=True)
class Variable:
    name: str
    required: bool
    default: str


@cache
def variables() -> dict[str, Variable]:
    """Every variable that the file asks for."""
    found: dict[str, Variable] = {}
    for match in _VARIABLE.finditer(FILE.read_text()):
        variable = Variable(match["name"], match["how"] == ":?", match["rest"] or "")
        assert match["how"] is not None, f"{variable.name} has neither a default nor a complaint"
        assert found.setdefault(variable.name, variable).required == variable.required
    return found


def secret(name: str) -> str:
    """What a required variable is filled in with: every one its own, and known again wherever it turns up."""
    return f"the-{name.lower().replace('_', '-')}"


def _filled_in(node: Any, environment: Mapping[str, str]) -> Any:
    if isinstance(node, dict):
        return {key: _filled_in(value, environment) for key, value in node.items()}
    if isinstance(node, list):
        return [_filled_in(value, environment) for value in node]
    if isinstance(node, str):
        return _VARIABLE.sub(lambda match: environment.get(match["name"]) or _default(match), node)
    return node


def _default(match: re.Match[str]) -> str:
    return secret(match["name"]) if match["how"] == ":?" else match["rest"]


def compose(**environment: str) -> dict[str, Any]:
    """The whole document, with these variables and a known password in each required one."""
    document = _filled_in(yaml.safe_load(FILE.read_text()), environment)
    assert isinstance(document, dict)
    return document


def services(**environment: str) -> dict[str, Any]:
    found = compose(**environment)["services"]
    assert isinstance(found, dict)
    return found


def ours() -> dict[str, Any]:
    """The services that run our image."""
    return {name: service for name, service in services().items() if service["image"] == "regional-fanout"}


def environment_of(service: Mapping[str, Any]) -> dict[str, str]:
    given = service.get("environment", {})
    assert all(isinstance(value, str) for value in given.values()), given
    return dict(given)


def mounts(service: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """What is mounted, where, and whether it can be written."""
    for mount in service.get("volumes", []):
        source, target, *mode = mount.split(":")
        yield source, target, mode != ["ro"]


def seconds(duration: str) -> int:
    match = _MINUTES_SECONDS.fullmatch(duration)
    assert match, f"{duration!r} is not a duration as 1m30s"
    return int(match[1] or 0) * 60 + int(match[2] or 0)
