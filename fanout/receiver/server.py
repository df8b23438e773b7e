"""The receiver itself: routes requests to subscribers, judges them, answers as the script says."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

from fanout.model.problems import Invalid
from fanout.receiver.protocol import Connection, Request
from fanout.receiver.reading import parse_script, parse_secrets
from fanout.receiver.script import OK, Answer, Playback, Script
from fanout.receiver.stats import ReceiverStats
from fanout.signing import verify

BACKLOG = 1024
CONTROL = b"/-/"
ASKING = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
BAD_SIGNATURE = Answer(status=HTTPStatus.UNAUTHORIZED, body=b"the signature does not fit\n")
NOT_FOUND = Answer(status=HTTPStatus.NOT_FOUND, body=b"the first part of the path is the subscriber\n")
NOT_A_POST = Answer(status=HTTPStatus.METHOD_NOT_ALLOWED, body=b"a delivery is a POST\n", headers=(("Allow", "POST"),))


@dataclass(frozen=True, slots=True)
class Received:
    """One complete request of a subscriber, kept when the receiver records."""

    subscriber: str
    target: str
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    arrived_at: float
    """Seconds since 1970, of the first byte."""

    def header(self, name: str) -> str | None:
        """The first of that name, whatever its case."""
        wanted = name.lower().encode()
        return next((value.decode("latin-1") for each, value in self.headers if each.lower() == wanted), None)


class ReceiverServer:
    """Listens until ``close``. ``stats`` may be read at any time; ``use`` sets another script.

    With ``record`` (which may be changed while it runs) every request is kept in ``received``.
    """

    def __init__(self, script: Script, secrets: Mapping[str, Sequence[bytes]] | None, *, record: bool) -> None:
        self.stats = ReceiverStats()
        self.received: list[Received] = []
        self._secrets = secrets
        self.record = record
        self._playback = Playback(script, time.monotonic())
        self._number = 0
        self._connections: set[Connection] = set()
        self._nobody_connected = asyncio.Event()
        self._nobody_connected.set()
        self._wall_offset = time.time() - time.monotonic()
        self._default: tuple[int, bytes] = (0, b"")
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> None:
        """Raises OSError where the port is taken or the host is not ours."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self, loop), host, port, backlog=BACKLOG)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        assert self._server is not None
        host = self._server.sockets[0].getsockname()[0]
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def endpoint(self, subscriber: str) -> str:
        return f"{self.url}/{subscriber}"

    @property
    def script(self) -> Script:
        return self._playback.script

    def use(self, script: Script | Sequence[Mapping[str, Any]]) -> None:
        """From now on this script (parsed, or rules as in JSON); its counts and its clock start now."""
        self._playback = Playback(_parsed(script), time.monotonic())

    def verify_with(self, secrets: Mapping[str, Sequence[str]] | None) -> None:
        """From now on signatures are checked with these ``whsec_…`` texts by subscriber; None: not checked."""
        self._secrets = None if secrets is None else parse_secrets(secrets)

    def reset(self) -> None:
        """Counts from zero; requests that are open stay counted as open. The script goes on."""
        self.stats.reset()
        self.received.clear()

    def snapshot(self) -> dict[str, Any]:
        return self.stats.snapshot(self._wall_offset)

    async def close(self) -> None:
        """Closes every connection, whatever is open on it."""
        if self._server is None:
            return
        self._server.close()
        for connection in tuple(self._connections):
            connection.close()
        await self._server.wait_closed()
        await self._nobody_connected.wait()
        self._server = None

    # ------------------------------------------------------------------ what connections tell

    def opened(self, connection: Connection) -> None:
        self._connections.add(connection)
        self._nobody_connected.clear()
        self.stats.connections += 1

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._nobody_connected.set()

    def malformed(self) -> None:
        self.stats.malformed += 1

    def began(self, request: Request) -> None:
        if request.method == b"POST" and not request.target.startswith(CONTROL):
            request.subscriber = request.first_segment()
        if request.subscriber:
            self._number += 1
            request.number = self._number
            self.stats.began(request.subscriber, request.arrival)

    def ended(self, request: Request, status: int | None) -> None:
        if request.subscriber:
            self.stats.ended(request.subscriber, request.header(b"idempotency-key"), status)

    def decide(self, request: Request) -> Answer:
        if not request.subscriber:
            return self._control(request) if request.target.startswith(CONTROL) else self._misplaced(request)
        stats = self.stats.of(request.subscriber)
        stats.bytes += request.size
        stats.saw_key(request.header(b"idempotency-key"))
        if (timestamp := request.header(b"webhook-timestamp")).isdecimal():
            stats.latency.add(request.arrival + self._wall_offset - int(timestamp))
        if self.record:
            self._keep(request)
        if self._secrets is not None and not self._signed(request, self._secrets.get(request.subscriber, ())):
            stats.bad_signatures += 1
            return BAD_SIGNATURE
        return self._playback.answer(request.subscriber, time.monotonic())

    def _misplaced(self, request: Request) -> Answer:
        self.stats.other_requests += 1
        return NOT_A_POST if request.first_segment() else NOT_FOUND

    def respond(self, request: Request, answer: Answer) -> bytes:
        now = time.time()
        if request.subscriber:
            self._judge(request, answer, now)
        if answer is OK and request.keep_alive:  # the usual case, built once a second
            if self._default[0] != int(now):
                self._default = (int(now), OK.response(now, keep_alive=True))
            return self._default[1]
        return answer.response(now, keep_alive=request.keep_alive)

    def _judge(self, request: Request, answer: Answer, now: float) -> None:
        if answer.retry_after is not None and answer.status in ASKING:
            seconds = answer.retry_after.asks_seconds(now)
            self.stats.of(request.subscriber).asked_to_wait(time.monotonic(), seconds)
        elif HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            shipment, version = request.header(b"fanout-shipment-id"), request.header(b"fanout-version")
            if shipment and version.isdecimal():
                key = request.header(b"idempotency-key")
                self.stats.of(request.subscriber).accepted_version(shipment, int(version), request.number, key)

    def _signed(self, request: Request, secrets: Sequence[bytes]) -> bool:
        return verify(
            secrets,
            request.header(b"webhook-id"),
            request.header(b"webhook-timestamp"),
            request.header(b"webhook-signature"),
            b"".join(request.body),
            now=time.time(),
        )

    def _keep(self, request: Request) -> None:
        target = request.target.decode("latin-1")
        arrived_at = request.arrival + self._wall_offset
        self.received.append(
            Received(request.subscriber, target, tuple(request.headers), b"".join(request.body), arrived_at)
        )

    # ------------------------------------------------------------------ control

    def _control(self, request: Request) -> Answer:
        """``GET /-/stats``, ``PUT /-/script``, ``PUT /-/secrets``, ``POST /-/reset``; for whoever reaches the port."""
        called = f"{request.method.decode('latin-1')} {request.target.decode('latin-1')}"
        try:
            if called == "GET /-/stats":
                return _json(HTTPStatus.OK, self.snapshot())
            if called == "PUT /-/script":
                self.use(parse_script(_document(request)))
            elif called == "PUT /-/secrets":
                self._secrets = parse_secrets(_document(request))
            elif called == "POST /-/reset":
                self.reset()
            else:
                self.stats.other_requests += 1
                return NOT_FOUND
        except Invalid as invalid:
            status = HTTPStatus.BAD_REQUEST if invalid.malformed else HTTPStatus.UNPROCESSABLE_ENTITY
            return _json(status, {"problems": [str(problem) for problem in invalid.problems]})
        return _json(HTTPStatus.OK, {"done": called})


def _parsed(script: Script | Sequence[Mapping[str, Any]]) -> Script:
    return script if isinstance(script, Script) else parse_script(list(script))


def _document(request: Request) -> object:
    try:
        return json.loads(b"".join(request.body))
    except ValueError:  # also where it is not UTF-8
        raise Invalid.field("body", "is not JSON", malformed=True) from None


def _json(status: HTTPStatus, document: object) -> Answer:
    answer = Answer(status=status, body=json.dumps(document).encode() + b"\n")
    return replace(answer, headers=(("Content-Type", "application/json"),))


async def serve(
    script: Script | Sequence[Mapping[str, Any]] = (),
    host: str = "127.0.0.1",
    port: int = 0,
    secrets: Mapping[str, Sequence[str]] | None = None,
    *,
    record: bool = False,
) -> ReceiverServer:
    """A receiver that listens. ``script`` is parsed or rules as in JSON; ``secrets`` are ``whsec_…`` texts by subscriber.

    Raises ``Invalid`` for a wrong script or secret, OSError where it cannot listen.
    """
    server = ReceiverServer(_parsed(script), None if secrets is None else parse_secrets(secrets), record=record)
    await server.listen(host, port)
    return server
