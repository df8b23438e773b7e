"""Logs: one JSON object per line, with time, level and event; nothing confidential, and no local variables of a traceback."""

import json
import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

CENSORED = frozenset({"secret", "secrets", "authorization", "headers", "payload"})
MASK = "***"
_NAMES = {logging.INFO: "info", logging.WARNING: "warning", logging.ERROR: "error"}
_sink: dict[str, Any] = {}
"""Where lines go, as ``configure_logs`` has set it."""
_PLAIN = frozenset({str, int, float, bool, type(None)})
_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)
"""Made once: ``json.dumps`` with arguments makes a new one for each line."""
_encode_fast = msgspec.json.Encoder(enc_hook=str).encode
"""For plain values, at a fifth of the cost."""
_DEPTH_MAX = 8


def configure_logs(level: str, stream: TextIO) -> None:
    """All logs of this process, ours and those of libraries, go to ``stream`` from ``level`` on (``debug`` … ``critical``).

    Libraries are heard from ``warning`` on only: their ``info`` is about themselves.
    """
    threshold = logging.getLevelNamesMapping()[level.upper()]
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,  # the plain traceback: it shows no variables
        censor,
        _in_reading_order,
    ]
    line = structlog.processors.JSONRenderer(serializer=_encode)
    _sink.update(line=line, stream=stream, threshold=threshold)
    structlog.configure(
        processors=[*before, line],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *before],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, line],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(threshold, logging.WARNING), force=True)


def log_many(event: str, lines: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
    """Lines of one event, each with its level (``logging.INFO`` …): as one call of the logger for each, in one write for all of them.

    For lines in their hundreds whose values are plain and known to hold nothing confidential: they pass by the processors.
    """
    processors = structlog.get_config()["processors"]
    if not processors or processors[-1] is not _sink.get("line"):  # somebody else has set structlog up
        log = structlog.get_logger().bind()
        for level, line in lines:
            log.log(level, event, **line)
        return
    first = {"time": datetime.now(UTC).isoformat().replace("+00:00", "Z"), "level": "", "event": event}
    texts = []
    for level, line in lines:
        if level >= _sink["threshold"]:
            first["level"] = _NAMES[level]
            texts.append(_encode_fast({**first, **line}))
    if texts:
        texts.append(b"")
        _sink["stream"].write(b"\n".join(texts).decode())
        _sink["stream"].flush()


def _encode(event: EventDict, **_options: object) -> str:
    return _ENCODER.encode(event)


def censor(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """The last line of defence: nobody logs these on purpose, at any depth."""
    return {
        name: value if type(value) in _PLAIN and name.lower() not in CENSORED else _censored(name, value, 0)
        for name, value in event.items()
    }


def _censored(name: object, value: Any, depth: int) -> Any:
    if isinstance(name, str) and name.lower() in CENSORED:
        return MASK
    if depth < _DEPTH_MAX:
        if isinstance(value, Mapping):
            return {each: _censored(each, inner, depth + 1) for each, inner in value.items()}
        if isinstance(value, list | tuple):
            return [_censored(None, inner, depth + 1) for inner in value]
    return value


def _in_reading_order(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    first = {name: event[name] for name in ("time", "level", "event") if name in event}
    return {**first, **event}
