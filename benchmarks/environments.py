"""Environments of the peers, each alone with its pinned packages, made when they are first needed."""

import asyncio
import hashlib
import shutil
import sys
from pathlib import Path

from benchmarks import HERE
from benchmarks.scenario import tell

FOLDER = HERE / ".environments"
PEERS = HERE / "peers"


async def python_environment(name: str, requirements: Path) -> Path | None:
    """Its Python, with these packages and no others; None, with a word, where they cannot be installed."""
    folder = FOLDER / name
    if not _is_made(folder, requirements):
        tell(f"installing what {name} needs")
        shutil.rmtree(folder, ignore_errors=True)
        pip = ("-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--requirement")
        made = await _ran(sys.executable, "-m", "venv", folder) and await _ran(
            folder / "bin/python", *pip, requirements
        )
        if not made:
            tell(f"{name} cannot be installed here, and is skipped")
            return None
        _note_made(folder, requirements)
    return folder / "bin" / "python"


async def node_environment(name: str, package: Path) -> Path | None:
    """The folder with its ``node_modules``; None, with a word, where there is no Node or they cannot be installed."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        tell(f"no Node here: {name} is skipped")
        return None
    folder = FOLDER / name
    lock = package / "package-lock.json"
    if not _is_made(folder, lock):
        tell(f"installing what {name} needs")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(package, folder)
        if not await _ran(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", cwd=folder):
            tell(f"{name} cannot be installed here, and is skipped")
            return None
        _note_made(folder, lock)
    return folder


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _is_made(folder: Path, requirements: Path) -> bool:
    made = folder / "made"
    return made.is_file() and made.read_text() == _digest(requirements)


def _note_made(folder: Path, requirements: Path) -> None:
    (folder / "made").write_text(_digest(requirements))


async def _ran(program: str | Path, *arguments: str | Path, cwd: Path | None = None) -> bool:
    process = await asyncio.create_subprocess_exec(program, *arguments, cwd=cwd, stdout=sys.stderr)
    return await process.wait() == 0
