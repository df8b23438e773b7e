import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from fanout.receiver import ReceiverServer


class Wire:
    """One connection on which a test writes bytes and reads responses."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def post(self, subscriber: str, body: bytes = b"{}", **headers: str) -> None:
        """``shipment_id="A"`` becomes ``shipment-id: A``."""
        lines = [f"POST /{subscriber} HTTP/1.1", "Host: here", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers in lower case, body."""
        head = (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 10)).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(head[0].split()[1]), headers, body

    async def ask(self, subscriber: str, body: bytes = b"{}", **headers: str) -> tuple[int, dict[str, str], bytes]:
        self.post(subscriber, body, **headers)
        return await self.answer()

    async def closed(self) -> bool:
        return await asyncio.wait_for(self.reader.read(), 10) == b""

    def close(self) -> None:
        self.writer.close()


@pytest.fixture
async def connect(receiver: ReceiverServer) -> AsyncIterator[Callable[[], Awaitable[Wire]]]:
    opened: list[Wire] = []

    async def to_receiver(port: int | None = None) -> Wire:
        wire = Wire(*await asyncio.open_connection("127.0.0.1", port or receiver.port))
        opened.append(wire)
        return wire

    yield to_receiver
    for wire in opened:
        wire.close()


@pytest.fixture
async def wire(connect: Callable[[], Awaitable[Wire]]) -> Wire:
    return await connect()
