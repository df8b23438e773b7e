"""Whether this process traces, and what it does to a trace context either way.

Off unless a collector is named by the usual variables (``OTEL_EXPORTER_OTLP_ENDPOINT``, or ``OTEL_TRACES_EXPORTER=otlp``): then
``in_use()`` is None, no span is ever made, and nothing of OpenTelemetry is imported. Contexts are passed on all the same.

Every context comes from a row and is passed on as an argument; a span is made once what it tells of is over. So none is open
while anything is awaited, and none can be closed in the wrong task.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from fanout.model.trace_context import TraceParent
from fanout.telemetry.metrics import Figures

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from fanout.telemetry.spans import Tracing

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Put(Protocol):
    """Where spans that are over go. Must not block."""

    def __call__(self, span: "ReadableSpan", /) -> None: ...


_current: "Tracing | None" = None


def in_use() -> "Tracing | None":
    """None: nobody wants spans."""
    return _current


def use(tracing: "Tracing | None") -> None:
    """From now on, in the whole process."""
    global _current  # noqa: PLW0603 - as a log's destination: one for the process, set where it starts
    _current = tracing


def is_configured(environ: Mapping[str, str]) -> bool:
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = {name.strip() for name in environ.get("OTEL_TRACES_EXPORTER", "").split(",")} - {""}
    return "otlp" in exporters or (not exporters and any(environ.get(name) for name in _ENDPOINTS))


def messaging_system(transport: str) -> str:
    """The convention's name of a transport; ours has none there, so it gets one that nobody else uses."""
    return "fanout_ledger" if transport == "ledger" else transport


@asynccontextmanager
async def exported_spans(
    role: str, figures: Figures, hurry: asyncio.Event, environ: Mapping[str, str] = os.environ
) -> AsyncIterator[None]:
    """Spans of this process go to the collector that the environment names, if it names one, and are counted in ``figures``.

    The end waits for a collector at most two seconds, in a hurry a moment.
    """
    if not is_configured(environ):
        yield
        return
    from fanout.telemetry.collector import connect  # noqa: PLC0415 - a third of a second that only those pay who trace

    tracing, exporting = connect(role, environ)
    figures.add_exporting(exporting)
    use(tracing)
    try:
        yield
    finally:
        use(None)
        await asyncio.to_thread(exporting.close, *([0.2] if hurry.is_set() else []))


def place_of_publish(given: str | None) -> tuple[TraceParent | None, TraceParent]:
    """Where a publish stands: what it is a part of, if anything, and what the version is stored with, to which everything that
    happens to it later goes back. ``given`` is what the publisher sent; else the span counts that the application has open here.
    """
    parent = TraceParent.parse(given) or _span_of_the_application()
    if _current is not None:
        return parent, _current.place_of_publish(parent)
    return parent, parent or TraceParent.new()


def _span_of_the_application() -> TraceParent | None:
    """An application that has a span open has imported this module; importing it for the others would cost them 80 ms."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return TraceParent(f"{context.trace_id:032x}", f"{context.span_id:016x}", bool(context.trace_flags.sampled))
