"""The Dockerfile, read without an engine: what it copies is there, what builds the package leaves, nobody is root."""

import re
import tomllib
from collections import defaultdict
from fnmatch import fnmatch

from .compose import ROOT

LINES = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text()).splitlines()
LOCK = (ROOT / "requirements-run.lock").read_text()


def instructions(word: str) -> list[str]:
    return [line.removeprefix(f"{word} ") for line in LINES if line.startswith(f"{word} ")]


def in_context(path: str) -> bool:
    """Whether .dockerignore lets it through: the last line that matches decides."""
    taken = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        pattern = line.removeprefix("!")
        if fnmatch(path, pattern) or path.startswith(f"{pattern}/"):
            taken = line.startswith("!")
    return taken


def test_whatever_is_copied_is_there_and_let_through():
    copied = [each.split()[:-1] for each in instructions("COPY") if not each.startswith("--from=")]
    for source in (source for sources in copied for source in sources):
        assert (ROOT / source).exists(), source
        assert in_context(source), source
    for secret in (".env", ".git", ".venv", "tests"):
        assert not in_context(secret), secret


def test_what_is_installed_is_pinned_by_hash_and_nothing_is_compiled():
    (installing,) = [each for each in instructions("RUN") if "requirements-run.lock" in each]
    assert "--require-hashes" in installing
    assert "--only-binary :all:" in installing


def test_what_builds_the_package_is_not_in_the_image():
    """Every locked package that none of ours needs: computed from the lock file, which says what each came with."""
    wanted_by: dict[str, set[str]] = defaultdict(set)
    for name, rest in re.findall(r"^([\w.-]+)==[^\n]*\n((?:[ ]+[^\n]*\n)*)", LOCK, re.MULTILINE):
        via = re.findall(r"^ +#(?: via)? +([\w.-]+)(?: \(pyproject\.toml\))?$", rest, re.MULTILINE)
        wanted_by[name] = {each for each in via if each != "-c"}
    kept, found = {"regional-fanout"}, True
    while found:
        found = {name for name, by in wanted_by.items() if by & kept} - kept
        kept |= found
    only_to_build = wanted_by.keys() - kept
    removed = set(" ".join(re.findall(r"pip uninstall --yes ([^&]+)", " ".join(instructions("RUN")))).split())
    assert "hatchling" in only_to_build
    assert removed == only_to_build | {"pip"}


def test_it_runs_as_nobody_in_particular_and_starts_the_program():
    assert len(instructions("FROM")) == 2
    user = instructions("USER")[-1]
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    assert LINES.index(f"USER {user}") > max(n for n, line in enumerate(LINES) if line.startswith(("RUN", "FROM")))
    assert instructions("ENTRYPOINT") == ['["fanout"]']
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "fanout" in project["scripts"]
    version = tuple(map(int, instructions("ARG")[0].removeprefix("PYTHON=").split(".")))
    assert version >= tuple(map(int, project["requires-python"].removeprefix(">=").split(".")))


def test_no_registry_is_named_in_any_file_of_the_deployment():
    files = [ROOT / "Dockerfile", ROOT / "docker-compose.yml", ROOT / ".env.example", ROOT / "docs" / "operating.md"]
    for file in [*files, *(each for each in (ROOT / "config").rglob("*") if each.is_file())]:
        assert not re.search(r"(docker|ghcr|quay|gcr)\.io|\.pkg\.dev|registry-1", file.read_text()), file
