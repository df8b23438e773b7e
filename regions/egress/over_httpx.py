"""Any httpx transport in place of our own connections: for HTTP/2, say, or an egress proxy.

Such a transport judges no address and knows neither what was written nor where it went. What it does not say is guessed, carefully.
"""

import asyncio
import contextlib

import httpx2

from regions.decisions.classification import Phase
from regions.egress.errors import EgressError, NotSent
from regions.egress.exchange import Answered, Ended, Outgoing, Underway
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


class OverHttpx:
    """An ``Exchange`` over any httpx transport."""

    def __init__(self, transport: httpx2.AsyncBaseTransport) -> None:
        self._transport = transport

    def begin(self, outgoing: Outgoing, ended: Ended) -> Underway:
        """As promised there, in a task."""

        def told(task: "asyncio.Task[Answered]") -> None:
            if task.cancelled():
                ended(EgressError("the attempt was cancelled", phase=Phase.RESPONSE, written=True))
            elif (error := task.exception()) is None:
                ended(task.result())
            elif isinstance(error, EgressError):
                ended(error)
            else:
                message = f"the attempt failed: {type(error).__name__}"
                ended(EgressError(message, phase=Phase.RESPONSE, written=True))

        task = asyncio.create_task(self._exchange(outgoing), name="exchange")
        task.add_done_callback(told)
        return task

    async def _exchange(self, outgoing: Outgoing) -> Answered:
        """Messages of exceptions that are not ours are never shown: they may quote headers."""
        if outgoing.may_write is not None and not outgoing.may_write():
            raise NotSent("the request may not be sent any more")
        try:
            request = _request(outgoing)
            async with asyncio.timeout_at(outgoing.deadline):
                response = await self._transport.handle_async_request(request)
        except EgressError:
            raise
        except TimeoutError:
            raise EgressError("no answer before the deadline", phase=Phase.RESPONSE, written=True) from None
        except Exception as error:
            phase = next((phase for kind, phase in _NOT_WRITTEN.items() if isinstance(error, kind)), None)
            message = f"the attempt failed: {type(error).__name__}"
            raise EgressError(message, phase=phase or Phase.RESPONSE, written=phase is None) from error
        body = await _read(response, outgoing.deadline)
        return Answered(response.status_code, response.headers.raw, body, response.extensions.get("address"))


def _request(outgoing: Outgoing) -> httpx2.Request:
    lines = outgoing.head.split(b"\r\n")[1:-2]
    headers = [(name, value) for name, _, value in (line.partition(b": ") for line in lines)]
    extensions = {"deadline": outgoing.deadline}
    return httpx2.Request(
        "POST", outgoing.url, headers=headers, stream=httpx2.ByteStream(outgoing.body), extensions=extensions
    )


async def _read(response: httpx2.Response, deadline: float) -> bytes:
    """At most 16 KiB of the body, raw. The status is known: nothing that happens here can change the outcome."""
    stream = response.stream
    if isinstance(stream, httpx2.ByteStream):
        return b"".join(stream)[:BODY_BYTES_MAX]
    body = b""
    with contextlib.suppress(Exception):
        async with asyncio.timeout_at(deadline):
            assert isinstance(stream, httpx2.AsyncByteStream)
            async for chunk in stream:
                body += chunk[: BODY_BYTES_MAX - len(body)]
                if len(body) >= BODY_BYTES_MAX:
                    break
    with contextlib.suppress(Exception):
        await response.aclose()
    return body
