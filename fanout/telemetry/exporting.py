"""Spans on their way to a collector: a bounded queue and a thread of its own, so that a collector can delay nobody but itself."""

import logging
import threading
import time
from collections import deque

import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

QUEUE_SPANS_MAX = 8192
"""Some 15 MB, and 4,000 sampled attempts: what a collector may fall behind before anything is dropped."""
BATCH_SPANS = 512
LINGER_SECONDS = 1.0
CLOSE_SECONDS = 2.0

_log = structlog.get_logger()


class Exporting:
    """Hands spans to ``exporter`` in batches. What does not fit into the queue, or what the collector does not take, is dropped
    and counted: nobody ever waits for it. ``put`` takes no lock that is held during an export.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        *,
        queue_spans_max: int = QUEUE_SPANS_MAX,
        linger_seconds: float = LINGER_SECONDS,
    ) -> None:
        self.exported = 0
        self.refused = 0
        """Given to the exporter, and not taken."""
        self.overflowed = 0
        """There was no room for them."""
        self._exporter = exporter
        self._queue: deque[ReadableSpan] = deque()
        self._queue_spans_max = queue_spans_max
        self._linger_seconds = linger_seconds
        self._more = threading.Event()
        self._ends_at: float | None = None
        self._in_hand = 0
        self._away = False
        _silence_libraries()
        self._thread = threading.Thread(target=self._run, name="span export", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        return self.refused + self.overflowed

    def put(self, span: ReadableSpan) -> None:
        if len(self._queue) >= self._queue_spans_max or self._ends_at is not None:
            self.overflowed += 1
            return
        self._queue.append(span)
        if len(self._queue) == BATCH_SPANS:
            self._more.set()

    def close(self, at_most_seconds: float = CLOSE_SECONDS) -> None:
        """Export what is left, for so long. A collector that says nothing keeps the thread, which ends with the process."""
        self._ends_at = time.monotonic() + at_most_seconds
        self._more.set()
        self._thread.join(at_most_seconds)
        if left := len(self._queue) + self._in_hand:
            _log.warning("spans not exported before the end", left=left, dropped=self.dropped, exported=self.exported)

    def _run(self) -> None:
        while self._ends_at is None:
            self._more.wait(self._linger_seconds)
            self._more.clear()
            self._export_all()
        self._export_all()
        self._exporter.shutdown()

    def _export_all(self) -> None:
        while self._queue and (self._ends_at is None or time.monotonic() < self._ends_at):
            batch = [self._queue.popleft() for _ in range(min(BATCH_SPANS, len(self._queue)))]
            self._in_hand = len(batch)
            self._export(batch)
            self._in_hand = 0

    def _export(self, batch: list[ReadableSpan]) -> None:
        try:
            taken = self._exporter.export(batch) is SpanExportResult.SUCCESS
        except Exception as error:  # noqa: BLE001 - the boundary to an exporter; its message may quote the collector's headers
            _log.debug("span export failed", error=type(error).__name__)
            taken = False
        if taken:
            self.exported += len(batch)
        else:
            self.refused += len(batch)
        if taken == self._away:
            self._away = not taken
            if taken:
                _log.info("span collector back", dropped=self.dropped)
            else:
                _log.warning("span collector away: deliveries go on, their spans are dropped and counted")


def _silence_libraries() -> None:
    """The exporter tells of each retry and each batch, for ever. We tell once when a collector goes and once when it is back."""
    for name in ("opentelemetry", "urllib3.connectionpool"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
