"""Which call goes where: a table of paths, and the one place where what can go wrong becomes an answer."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence

import structlog
from starlette.types import Receive, Scope, Send

from fanout.api.answers import Answer
from fanout.api.call import Buffered, Call, CallerGone, segments_of
from fanout.api.problems import Refused, invalid, problem
from fanout.model.problems import Invalid

Handler = Callable[[Call], Awaitable[Answer]]
Line = tuple[str, str, Handler]
"""Method, path with ``{name}`` for its variable segments, and who answers."""

_log = structlog.get_logger()


class Paths:
    """An ASGI application over a table of paths. Every answer that is not a handler's own is a problem document."""

    def __init__(self, lines: Iterable[Line], buffered: Buffered | None = None) -> None:
        self.answered: Counter[str] = Counter()
        """Answers so far by status."""
        self._buffered = buffered or Buffered()
        self._by_shape: dict[tuple[str | None, ...], dict[str, Handler]] = {}
        for method, path, handler in lines:
            shape = tuple(None if each.startswith("{") else each for each in path.split("/")[1:])
            self._by_shape.setdefault(shape, {})[method] = handler
            if method == "GET":
                self._by_shape[shape]["HEAD"] = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # a WebSocket: closing before accepting answers 403
            await send({"type": "websocket.close", "code": 1000})
            return
        call = Call(scope, receive, self._buffered)
        try:
            answer = await self._answer(call)
        except CallerGone:
            return
        finally:
            call.let_go()  # before the answer is sent: whoever takes it slowly holds nothing
        self.answered[str(answer.status)] += 1
        await _send(call, answer, send)

    async def _answer(self, call: Call) -> Answer:
        try:
            return await self._handler(call)(call)
        except Invalid as error:
            return invalid(error)
        except Refused as refused:
            return refused.answer()
        except CallerGone:
            raise
        except Exception:  # noqa: BLE001 - the boundary: whatever it was, the caller gets an answer
            _log.exception("call failed", method=call.method, path=call.scope["path"])
            return problem(500, "this is an error of ours; it is in the log of the api")

    def _handler(self, call: Call) -> Handler:
        segments = segments_of(call.scope)
        allowed: dict[str, Handler] = {}
        for shape, handlers in self._by_shape.items():
            if _fits(shape, segments):
                if (handler := handlers.get(call.method)) is not None:
                    call.names = tuple(segment for part, segment in zip(shape, segments, strict=True) if part is None)
                    return handler
                allowed |= handlers
        if allowed:
            names = ", ".join(sorted(allowed))
            raise Refused(405, f"this path takes {names}", headers=[(b"allow", names.encode())])
        raise Refused(404, "there is nothing at this path")


def _fits(shape: Sequence[str | None], segments: Sequence[str]) -> bool:
    return len(shape) == len(segments) and all(
        part is None or part == segment for part, segment in zip(shape, segments, strict=True)
    )


async def _send(call: Call, answer: Answer, send: Send) -> None:
    if not call.leaves_body:
        await send(answer.head())
        await send({"type": "http.response.body", "body": answer.body})
        return
    # Where the next request begins, nobody can say for sure: this connection ends with this answer.
    await send(answer.head((b"connection", b"close")))
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    await call.linger()
    await send({"type": "http.response.body", "body": b""})
