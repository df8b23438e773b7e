"""One attempt, from a request to a result: the boundary at which every exception becomes a recorded outcome."""

import asyncio
import contextlib
from datetime import UTC, datetime

import httpx2

from regions.decisions.classification import (
    AttemptResult,
    Failure,
    Phase,
    classify_failure,
    classify_response,
)
from regions.egress.errors import EgressError, NotSent
from regions.egress.response import BODY_BYTES_MAX

_NOT_WRITTEN: dict[type[Exception], Phase] = {
    httpx2.ConnectError: Phase.CONNECT,
    httpx2.ConnectTimeout: Phase.CONNECT,
    httpx2.PoolTimeout: Phase.CONNECT,
    httpx2.UnsupportedProtocol: Phase.ADDRESS,
    httpx2.LocalProtocolError: Phase.ADDRESS,
    httpx2.InvalidURL: Phase.ADDRESS,
}
"""What other transports raise before anything can have been sent. Of everything else the worst is assumed."""


class Sender:
    """Sends over any httpx transport. ``WireTransport`` reports what was written; of others it is guessed, carefully."""

    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self._transport = transport
        self._keeps_deadline: bool = getattr(transport, "keeps_deadline", False)

    async def send(self, request: httpx2.Request, *, retry_statuses: frozenset[int] | None) -> AttemptResult | None:
        """The result of one attempt, or None: ``may_write`` said no, nothing was sent, the delivery is to be released.

        Raises nothing but ``CancelledError``. Ends at ``request.extensions["deadline"]`` at the latest. Messages of exceptions
        that are not ours are never shown: they may quote headers.
        """
        try:
            return await self._exchange(request, retry_statuses)
        except NotSent:
            return None
        except EgressError as error:
            return classify_failure(error.failure())
        except TimeoutError:
            failure = Failure("no answer before the deadline", Phase.RESPONSE, written=True)
            return classify_failure(failure)
        except Exception as error:  # noqa: BLE001 - the boundary: whatever happens in an attempt is its outcome
            return classify_failure(_foreign_failure(error))

    async def _exchange(self, request: httpx2.Request, retry_statuses: frozenset[int] | None) -> AttemptResult:
        if self._keeps_deadline:
            response = await self._transport.handle_async_request(request)
        else:
            async with asyncio.timeout_at(request.extensions.get("deadline")):
                response = await self._transport.handle_async_request(request)
        body = await self._read(response, request)
        return classify_response(
            response.status_code,
            response.headers.raw,
            body,
            retry_statuses,
            datetime.now(UTC),
            address=response.extensions.get("address"),
        )

    async def _read(self, response: httpx2.Response, request: httpx2.Request) -> bytes:
        """At most 16 KiB of the body, raw. The status is known: nothing that happens here can change the outcome."""
        stream = response.stream
        if isinstance(stream, httpx2.ByteStream):
            return b"".join(stream)[:BODY_BYTES_MAX]
        body = b""
        with contextlib.suppress(Exception):
            async with asyncio.timeout_at(request.extensions.get("deadline")):
                assert isinstance(stream, httpx2.AsyncByteStream)
                async for chunk in stream:
                    body += chunk[: BODY_BYTES_MAX - len(body)]
                    if len(body) >= BODY_BYTES_MAX:
                        break
        with contextlib.suppress(Exception):
            await response.aclose()
        return body


def _foreign_failure(error: Exception) -> Failure:
    message = f"the attempt failed: {type(error).__name__}"
    phase = next((phase for kind, phase in _NOT_WRITTEN.items() if isinstance(error, kind)), None)
    return Failure(message, phase or Phase.RESPONSE, written=phase is None)
