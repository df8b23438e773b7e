"""The stream under an AMQP connection: ours, so that it can be cut off, and so that the broker's last word is not lost."""

import asyncio
import struct
from typing import Any

from aiormq.connection import TransportFactory
from yarl import URL

_CLOSE = struct.Struct(">HHHB")
"""Class, method, reply code, and the length of the reply text: how ``connection.close`` begins (AMQP 0-9-1, 1.4.2.8)."""
_CONNECTION_CLASS, _CLOSE_METHOD = 10, 50


class OpeningRefusedError(ConnectionError):
    """The broker closed the connection while it was being opened, and said why."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code


class _Reader(asyncio.StreamReader):
    """Remembers the last piece: aiormq drops the reason why a virtual host is refused."""

    last = b""

    async def readexactly(self, n: int) -> bytes:
        self.last = await super().readexactly(n)
        return self.last


class Wire(TransportFactory):
    """Opens the stream of one connection."""

    def __init__(self) -> None:
        self._reader: _Reader | None = None
        self._transport: asyncio.Transport | None = None

    async def create(self, url: URL, **kwargs: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tls = await kwargs.pop("ssl_context_provider").get_context() if url.scheme == "amqps" else None
        kwargs.pop("ssl_context_provider", None)
        loop = asyncio.get_running_loop()
        self._reader = reader = _Reader(loop=loop)
        transport, protocol = await loop.create_connection(
            lambda: asyncio.StreamReaderProtocol(reader, loop=loop),
            url.host or "localhost",
            url.port or 0,
            ssl=tls,
            **kwargs,
        )
        self._transport = transport
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    def abort(self) -> None:
        """Gone at once, whatever is still unsent."""
        if self._transport is not None:
            self._transport.abort()

    def refusal(self) -> OpeningRefusedError | None:
        """What the broker said, if the last thing it said was that it closes the connection."""
        said = self._reader.last if self._reader is not None else b""
        if len(said) < _CLOSE.size:
            return None
        class_id, method_id, code, length = _CLOSE.unpack_from(said)
        if (class_id, method_id) != (_CONNECTION_CLASS, _CLOSE_METHOD):
            return None
        return OpeningRefusedError(code, said[_CLOSE.size : _CLOSE.size + length].decode(errors="replace"))
