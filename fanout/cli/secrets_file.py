"""The file of ``--secrets-out``: the only output of ours that holds secrets."""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from fanout.model.problems import Invalid
from fanout.model.signing_secret import Secret


class SecretsFile:
    """A JSON object, subscriber id to list of secrets, newest first. Mode 0600 from its first moment on.

    It is made beside its place before anything else is done (a place that cannot be written stops the command early), and takes
    its place, whoever held it before, in one step when it is complete. Without ``write`` nothing is left.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if path.is_symlink() or (path.exists() and not path.is_file()):  # the rename would replace a link, or a device
            raise Invalid.field(
                "--secrets-out", f"{path} is not an ordinary file", "name a new file, or one made before"
            )
        try:
            # mkstemp creates exclusively and with mode 0600, whatever the umask is.
            self._descriptor, self._made = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        except OSError as error:
            why = f"cannot write {path}: {error.strerror}"
            raise Invalid.field("--secrets-out", why, "name a file in a folder that you may write to") from None

    def __enter__(self) -> Self:
        return self

    def write(self, secrets: Mapping[str, Sequence[Secret]]) -> None:
        document = {subscriber: [each.reveal() for each in theirs] for subscriber, theirs in sorted(secrets.items())}
        with os.fdopen(self._descriptor, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        Path(self._made).replace(self._path)

    def __exit__(self, *_: object) -> None:
        Path(self._made).unlink(missing_ok=True)
