"""What an attempt leaves for people beside its row in the ledger: one wide line in the log, and two spans where spans are wanted.

Neither holds a payload, a header, a secret or a URL's query. Both are made when the result is settled, so that they know whether
it came too late.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import structlog

from fanout.ledger.settlement import Settlement
from fanout.model.states import Outcome
from fanout.model.trace_context import TraceParent
from fanout.settings import RegionSettings
from fanout.telemetry.logs import log_many
from fanout.telemetry.tracing import in_use, messaging_system
from regions.consumer.flight import Flight

if TYPE_CHECKING:
    from fanout.telemetry.spans import Attempted

ERROR_CHARACTERS = 300

_log = structlog.get_logger()


class Marks:
    """Of one consumer."""

    def __init__(self, region: RegionSettings, worker: str) -> None:
        self._region = region.name
        self._queue = region.queue
        self._system = messaging_system(region.transport)
        self._worker = worker

    def leave(self, settled: Iterable[tuple[Flight, Settlement]], late: Collection[int]) -> None:
        """For the attempts of a settled batch; ``late``: deliveries whose result changed nothing. A line costs some 8 µs.

        Released deliveries leave nothing: their attempt never was. Raises nothing: the results stand, whoever reads of them, and
        a log that cannot be written (its disk is full, its reader is gone) must not keep a message from being acknowledged.
        """
        try:
            self._leave(settled, late)
        except Exception:  # noqa: BLE001 - as promised
            with contextlib.suppress(Exception):
                _log.exception("attempts not logged", region=self._region)

    def _leave(self, settled: Iterable[tuple[Flight, Settlement]], late: Collection[int]) -> None:
        tracing = in_use()
        clock_ns = time.time_ns() - int(asyncio.get_running_loop().time() * 1e9)
        lines = []
        for flight, settlement in settled:
            if settlement.outcome is None:
                continue
            is_late = settlement.delivery_id in late
            level = logging.INFO if settlement.outcome is Outcome.DELIVERED and not is_late else logging.WARNING
            lines.append((level, self._line(flight, settlement, late=is_late)))
            if tracing is not None and flight.trace is not None and flight.trace.sampled:
                done = self._attempted(flight, settlement, clock_ns, late=is_late)
                tracing.attempted(self._system, self._queue, self._region, done)
        log_many("attempt", lines)

    def _line(self, flight: Flight, settlement: Settlement, *, late: bool) -> dict[str, object]:
        """``age_seconds``: at the claim, since it could go. ``claim_to_send_ms``: what this worker did before the request."""
        return {
            "key": flight.key,
            "region": self._region,
            "subscriber": flight.prepared.config.subscriber_id if flight.prepared else "",
            "outcome": settlement.outcome,
            "state": settlement.state,
            "reason": settlement.reason,
            "status": settlement.status,
            "attempt": settlement.attempt,
            "duration_ms": settlement.duration_ms,
            "age_seconds": round(flight.lease.age_seconds, 3),
            "claim_to_send_ms": settlement.started_ms,
            "retry_in_seconds": None if settlement.delay_seconds is None else round(settlement.delay_seconds, 3),
            "address": settlement.address,
            "error": settlement.error and settlement.error[:ERROR_CHARACTERS],
            "trace_id": settlement.trace_id,
            "worker": self._worker,
            "late": late,
        }

    def _attempted(self, flight: Flight, settlement: Settlement, clock_ns: int, *, late: bool) -> "Attempted":
        from fanout.telemetry.spans import Attempted  # noqa: PLC0415 - only where spans are wanted is OpenTelemetry loaded

        assert flight.trace is not None
        assert settlement.outcome is not None
        target = flight.prepared.target if flight.prepared else None
        return Attempted(
            key=flight.key,
            attempt=settlement.attempt,
            outcome=settlement.outcome,
            trace=flight.trace,
            promote=TraceParent.parse(flight.ticket.message.traceparent),
            claimed_ns=clock_ns + int(flight.claimed_at * 1e9),
            sent_ns=clock_ns + int(flight.started_at * 1e9),
            answered_ns=clock_ns + int(flight.ended_at * 1e9),
            worker=self._worker,
            late=late,
            scheme=target.origin.scheme if target else None,
            host=target.origin.host if target else None,
            port=target.origin.port if target else None,
            path=target.path if target else None,
            peer=settlement.address,
            status=settlement.status,
            error=settlement.error,
        )
