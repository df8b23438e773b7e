"""What can go wrong on the way to a subscriber, typed by what the ledger must know. Foreign exceptions are mapped here only.

EgressError
  · NotSent                       the caller's ``may_write`` said no: nothing was written, the lease can be released
  · ForbiddenDestination          the endpoint cannot be used, or none of its addresses is allowed
  · ResolveFailed                 the name has no address, or nobody answered
  · ConnectFailed                 no TCP connection
  · TlsFailed                     no TLS session: certificate, host name, protocol
  · DeadlineExceeded              the total deadline passed, in any phase
  · ConnectionBroken              the connection ended after the request was begun, before a final status line
  · BadResponse                   the subscriber answered, but not in HTTP
"""

import errno
import os
import ssl

from regions.decisions.classification import Failure, Phase


class EgressError(Exception):
    """Carries the facts that decide the outcome. The message is for a person and holds neither header values nor URLs."""

    phase: Phase = Phase.CONNECT
    written: bool = False
    unparsable: bool = False

    def __init__(
        self,
        message: str,
        *,
        phase: Phase | None = None,
        written: bool | None = None,
        response_started: bool = False,
        reused: bool = False,
        address: str | None = None,
    ) -> None:
        super().__init__(message)
        self.phase = phase or type(self).phase
        self.written = type(self).written if written is None else written
        self.response_started = response_started
        self.reused = reused
        self.address = address

    def failure(self) -> Failure:
        return Failure(
            str(self), self.phase, self.written, self.response_started, self.reused, self.unparsable, self.address
        )


class NotSent(EgressError):  # noqa: N818 - no error: the caller said that it may not be sent any more
    """``may_write`` returned False. Nothing was written."""

    phase = Phase.WRITE


class ForbiddenDestination(EgressError):  # noqa: N818 - reads as what it says
    """Nothing was sent, and nothing will be until the endpoint or ``allow_networks`` changes."""

    phase = Phase.ADDRESS


class ResolveFailed(EgressError):  # noqa: N818 - the tree above is read as words
    phase = Phase.RESOLVE


class ConnectFailed(EgressError):  # noqa: N818 - see above
    phase = Phase.CONNECT


class TlsFailed(EgressError):  # noqa: N818 - see above
    phase = Phase.TLS


class DeadlineExceeded(EgressError):  # noqa: N818 - see above
    """``phase`` says where the time went."""


class ConnectionBroken(EgressError):  # noqa: N818 - see above
    phase = Phase.RESPONSE
    written = True


class BadResponse(EgressError):  # noqa: N818 - see above
    phase = Phase.RESPONSE
    written = True
    unparsable = True


_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
"""What this machine has run out of. No subscriber is to blame, and no attempt was made."""


def connect_error(error: Exception, address: str, port: int) -> EgressError:
    if isinstance(error, OSError) and error.errno in _OURS:
        return NotSent(f"this machine cannot open another connection: {describe(error)}", address=address)
    return ConnectFailed(f"cannot connect to {address} port {port}: {describe(error)}", address=address)


def tls_error(error: Exception, host: str, address: str) -> TlsFailed:
    """Also for a connection that is closed in the handshake (an ``OSError``), and for names that TLS cannot express."""
    return TlsFailed(f"no TLS session with {host}: {describe(error)}", address=address)


def describe(error: BaseException | None) -> str:
    """A few words for a foreign exception. Never its own text, which may quote a URL, a header or a secret."""
    if error is None:
        return "closed by the subscriber"
    if isinstance(error, ssl.SSLCertVerificationError):
        words = getattr(error, "verify_message", "") or "the certificate was not accepted"
    elif isinstance(error, ssl.SSLError):
        words = (getattr(error, "reason", None) or "protocol error").replace("_", " ").lower()
    elif isinstance(error, OSError) and error.errno:
        words = os.strerror(error.errno).lower()
    elif isinstance(error, TimeoutError):
        words = "no answer in its share of the time"
    elif isinstance(error, ConnectionError):
        words = "connection reset by peer"
    elif isinstance(error, UnicodeError):
        words = "the host name cannot be written in ASCII"
    else:
        words = type(error).__name__
    return words
