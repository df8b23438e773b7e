"""Which database errors are worth another try. One rule for every role; the API turns the same rule into 503."""

import asyncpg

_CLASSES = ("08", "40001", "40P01", "53", "55P03", "57", "58", "25006", "25P03")
"""Connection trouble, serialisation failure, deadlock, no room (connections, disk, memory), a lock that was not to be had, operator
intervention (shutdown, a cancelled statement, a timeout), trouble of the system below, a demoted server, a session that idled."""
_REFUSED = ("28", "3D")
"""The server is there and lets us in no more, or does not know the database: an operator's doing, and an operator can undo it."""


CONNECTION_LOST = (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError, EOFError)
"""What the driver raises for a connection that is gone. A server that is killed in the middle of a message can also leave its
protocol in a state that it calls an internal error. (A value that cannot be sent is an InterfaceError too, and will never pass.)"""


def is_transient(error: BaseException) -> bool:
    """True where the same call may succeed later, unchanged. asyncpg's errors share no base class, hence the list."""
    if isinstance(error, asyncpg.PostgresError):
        sqlstate = error.sqlstate or ""
        return sqlstate.startswith(_CLASSES) or isinstance(error, asyncpg.InvalidCachedStatementError)
    return isinstance(error, CONNECTION_LOST) and not isinstance(error, asyncpg.DataError)


def may_pass(error: BaseException) -> bool:
    """True where a role that has been running waits: what ``is_transient`` says, and a login that is refused since."""
    if isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "").startswith(_REFUSED):
        return True
    return is_transient(error)


def breaks_connection(error: BaseException) -> bool:
    """True where the connection must not be used again: it is gone, or leads to a server that no longer takes writes."""
    if isinstance(error, asyncpg.PostgresError):
        return (error.sqlstate or "").startswith(("08", "57P", "25006", "25P03"))
    return isinstance(error, CONNECTION_LOST) and not isinstance(error, asyncpg.DataError)


def describe(error: BaseException) -> str:
    """One line for logs and people. Never empty: some drivers raise errors without a message."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
