"""Addresses of databases and brokers: checked for their form, compared, and shown without passwords."""

import re
from ipaddress import ip_address
from urllib.parse import parse_qs, urlsplit

_PASSWORD = re.compile(r"^([^:/]+://[^:/@]*):.*@", re.DOTALL)
_SECRET_PARAMETER = re.compile(r"([?&][^=&]*(?:password|passfile|secret|token)[^=&]*=)[^&]*", re.IGNORECASE)
_UNUSABLE = re.compile(r"[\x00-\x20\x7f]")


def redact_url(url: str) -> str:
    """The URL for people and logs. Where a URL is ambiguous, more is hidden rather than less."""
    return _SECRET_PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))


def has_scheme(url: str, *schemes: str) -> bool:
    """Whether ``url`` begins as one of these and can be read at all."""
    return url.startswith(tuple(f"{scheme}://" for scheme in schemes)) and not _UNUSABLE.search(url)


def server_and_path(url: str) -> tuple[str, ...]:
    """What two URLs of one database, or of one virtual host, have in common, whoever logs in."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    server = parts.netloc.rpartition("@")[2].lower().removesuffix(":5432")
    return server, parts.path.strip("/"), *query.get("host", ()), *query.get("port", ()), *query.get("dbname", ())


def is_loopback(host: str) -> bool:
    """Whether a server bound to ``host`` can be reached from this machine only. A name other than ``localhost`` is not
    resolved and counts as reachable.
    """
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
