"""A subscriber's signing secret: usable, comparable, and never shown by accident."""

import binascii
import secrets
from base64 import b64decode, b64encode
from typing import Self

from fanout.model.problems import Invalid

PREFIX = "whsec_"
KEY_BYTES_MIN = 24
KEY_BYTES_MAX = 64
SECRET_RIGHT = f"write {PREFIX} and the base64 of {KEY_BYTES_MIN} to {KEY_BYTES_MAX} random bytes"


class Secret:
    """A Standard Webhooks symmetric secret. ``str``, ``repr``, ``format``, logs and JSON show nothing of it; ``reveal`` does."""

    __slots__ = ("_key", "_text")

    def __init__(self, text: str, key: bytes) -> None:
        self._text = text
        self._key = key

    @classmethod
    def parse(cls, field: str, text: object) -> Self:
        """Read ``whsec_…``. No error repeats any part of the text."""
        if not isinstance(text, str) or not text.startswith(PREFIX):
            raise Invalid.field(field, f"does not begin with {PREFIX}", SECRET_RIGHT)
        try:
            key = b64decode(text.removeprefix(PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raise Invalid.field(field, f"what follows {PREFIX} is not base64", SECRET_RIGHT) from None
        if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
            raise Invalid.field(field, f"holds {len(key)} bytes", SECRET_RIGHT)
        return cls(text, key)

    @classmethod
    def new(cls) -> Self:
        key = secrets.token_bytes(32)
        return cls(PREFIX + b64encode(key).decode("ascii"), key)

    @property
    def key(self) -> bytes:
        """The bytes that sign."""
        return self._key

    def reveal(self) -> str:
        """The text that the subscriber configures. For the answer to its creation and ``--secrets-out``, nowhere else."""
        return self._text

    def __repr__(self) -> str:
        return f"{PREFIX}***"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return secrets.compare_digest(self._key, other._key) if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)
