"""What an embedded PostgreSQL reports when it cannot do what it was asked."""

from pathlib import Path

LINES_SHOWN = 15


class EmbeddedPostgresError(RuntimeError):
    """The server could not be found, prepared, started or stopped. The text says why and what to do."""

    @classmethod
    def with_log(cls, what: str, log_file: Path, since_byte: int = 0) -> "EmbeddedPostgresError":
        """``what``, then the last lines that were written to the log after ``since_byte``."""
        lines = log_since(log_file, since_byte).splitlines()[-LINES_SHOWN:]
        tail = "\n".join(f"    {line}" for line in lines) or "    (nothing was logged)"
        return cls(f"{what}; the last lines of {log_file}:\n{tail}")


def log_since(log_file: Path, since_byte: int) -> str:
    try:
        with log_file.open("rb") as log:
            log.seek(since_byte)
            return log.read().decode("utf-8", "replace")
    except OSError:
        return ""
