"""What the broker says no to, told apart from a broker that is merely away."""

import re
import ssl

from aiormq.exceptions import (
    ChannelAccessRefused,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
)
from yarl import URL

from fanout.database.errors import describe
from fanout.transports.rabbitmq.wire import OpeningRefusedError
from fanout.transports.transport import QueueRefused

ACCESS_REFUSED, NOT_ALLOWED = 403, 530
_FOR_ANOTHER_NAME = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
_CERTIFICATES = ("cafile", "capath", "certfile", "keyfile")
_INEQUIVALENT = re.compile(
    r"inequivalent arg '(?P<argument>[^']+)' for (?P<kind>\w+) '(?P<name>[^']+)' in vhost '(?P<vhost>[^']*)': (?P<difference>.+)"
)


def refusal_of(error: BaseException, url: str) -> QueueRefused | None:
    """The refusal that this error is, or None where trying again may help."""
    who = f"user '{URL(url).user or 'guest'}' at {_server(url)}"
    said = _said(error)
    if isinstance(error, OpeningRefusedError) and error.code == ACCESS_REFUSED:
        return QueueRefused(f"the broker refuses {who}: {said}; put the right user and password into the AMQP URL")
    if isinstance(error, OpeningRefusedError) and error.code == NOT_ALLOWED and "limit" not in said:
        vhost = vhost_of(url)
        mend = (
            f"make it (`rabbitmqctl add_vhost`), or let the user in (`rabbitmqctl set_permissions -p {vhost} USER …`)"
        )
        return QueueRefused(f"the broker does not let {who} into virtual host '{vhost}': {said}; {mend}")
    if isinstance(error, ChannelAccessRefused):
        mend = (
            "grant it (`rabbitmqctl set_permissions`), or, where others make exchange and queues, set `declare = false`"
        )
        return QueueRefused(f"the broker refuses a permission to {who}: {said}; {mend}")
    if isinstance(error, ChannelPreconditionFailed):
        return _precondition(said)
    return None


def _precondition(said: str) -> QueueRefused | None:
    if found := _INEQUIVALENT.search(said):
        kind, name, vhost = found["kind"], found["name"], found["vhost"]
        delete = f" (`rabbitmqctl -p {vhost} delete_queue {name}`)" if kind == "queue" else ""
        return QueueRefused(
            f"{kind} '{name}' in virtual host '{vhost}' exists, but not as we need it: argument '{found['argument']}', "
            f"{found['difference']}; delete it{delete}: it is made again and no delivery is lost, the ledger queues them anew; "
            f"or choose another name in the settings"
        )
    if "delivery tag" in said:  # an acknowledgement crossed a reconnection
        return None
    return QueueRefused(
        f"the broker refuses what we ask for: {said}; this broker cannot hold the queues that are needed"
    )


def trouble_of(error: BaseException, url: str) -> str:
    """What keeps us from the broker now, and how to mend it where TLS is the matter: it is waited for, certificates get renewed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message.rstrip(".")
        if error.verify_code in _FOR_ANOTHER_NAME:
            return f"the certificate of the broker at {_server(url)} is for other names: {said}; put one of its names into the AMQP URL"
        return (
            f"the certificate of the broker at {_server(url)} is not trusted: {said}; if its authority is your own, put "
            f"?cafile=/path/of/authority.pem at the end of the AMQP URL"
        )
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return f"the broker at {_server(url)} speaks no TLS there: name its TLS port (mostly 5671), or begin the AMQP URL with amqp://"
    if URL(url).scheme == "amqps" and isinstance(error, FileNotFoundError | PermissionError | ssl.SSLError):
        named = ", ".join(f"{name}={value}" for name, value in URL(url).query.items() if name in _CERTIFICATES)
        if named:
            return f"a connection with the certificates in the AMQP URL ({named}) cannot be made: {describe(error)}"
    return describe(error)


def leaderless(queue: str, vhost: str) -> str:
    """Seen on 3.10, on a node that was killed within half a second of the declaration: it answers everything but publishing and
    consuming, for ever.
    """
    return (
        f"if this goes on while the broker is well, queue '{queue}' has no leader: delete it (`rabbitmqctl -p {vhost} delete_queue "
        f"{queue}`); it is made again and no delivery is lost, the ledger queues them anew"
    )


def is_missing(error: BaseException) -> bool:
    return isinstance(error, ChannelNotFoundEntity)


def is_forbidden(error: BaseException) -> bool:
    return isinstance(error, ChannelAccessRefused)


def vhost_of(url: str) -> str:
    """As aiormq reads it: no path, or a slash alone, is the virtual host ``/``."""
    path = URL(url).path
    return path[1:].replace("%2F", "/") if path not in ("", "/") else "/"


def _server(url: str) -> str:
    at = URL(url)
    return f"{at.host}:{at.port or (5671 if at.scheme == 'amqps' else 5672)}"


def _said(error: BaseException) -> str:
    return str(error.args[-1]) if error.args and error.args[-1] else describe(error)
