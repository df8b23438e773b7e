"""Serves a role's HTTP (probes, metrics, and for the api the API) in the role's own event loop."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from fanout.running.heads import BoundedHeads
from fanout.settings import HttpTable, SettingsError

BACKLOG = 512
CLOSE_SECONDS = 5


def bind(http: HttpTable) -> socket.socket:
    """The listening socket. A taken or forbidden port is a SettingsError: the operator has to choose another."""
    family = socket.AF_INET6 if ":" in http.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((http.host, http.port))
    except OSError as error:
        listener.close()
        why = f"cannot listen on {http.host} port {http.port}: {error.strerror}"
        raise SettingsError.field("http.port", why, "set FANOUT_HTTP_PORT to a free port; 0 takes any") from None
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    """Where it listens, with the port that was found where 0 was asked for."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """Signals are the role's business, not uvicorn's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(app: ASGIApp, listener: socket.socket, stopping: asyncio.Event) -> None:
    """Until ``stopping``; requests under way get a few seconds to end."""
    config = uvicorn.Config(
        app,
        http=BoundedHeads,
        log_config=None,
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=CLOSE_SECONDS,
        server_header=False,
        proxy_headers=False,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    ended = asyncio.create_task(stopping.wait(), name="http stops")
    await asyncio.wait({serving, ended}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    ended.cancel()
    await serving
