"""One attempt, from a request to a result: the boundary at which everything that can happen becomes a recorded outcome."""

from collections.abc import Callable
from datetime import UTC, datetime

from regions.decisions.classification import (
    AttemptResult,
    Failure,
    Phase,
    classify_failure,
    classify_response,
    delivered,
)
from regions.egress.errors import EgressError, NotSent
from regions.egress.exchange import Answered, Exchange, Outgoing, Underway


class Sender:
    """Sends over any ``Exchange``."""

    def __init__(self, client: Exchange) -> None:
        self._client = client

    def send(
        self,
        outgoing: Outgoing,
        *,
        retry_statuses: frozenset[int] | None,
        ended: Callable[[AttemptResult | None], None],
    ) -> Underway:
        """Returns at once. ``ended`` is called later, at the deadline at the latest, with the result of this attempt; or with None:
        ``may_write`` said no, nothing was sent, the delivery is to be released.
        """

        def told(answer: Answered | EgressError) -> None:
            ended(_result(answer, retry_statuses))

        return self._client.begin(outgoing, told)


def _result(answer: Answered | EgressError, retry_statuses: frozenset[int] | None) -> AttemptResult | None:
    if isinstance(answer, Answered):
        if 200 <= answer.status <= 299:  # noqa: PLR2004 - the class of RFC 9110
            return delivered(answer.status, answer.body, answer.address)
        return _judged(answer, retry_statuses)
    return None if isinstance(answer, NotSent) else classify_failure(answer.failure())


def _judged(answer: Answered, retry_statuses: frozenset[int] | None) -> AttemptResult:
    try:
        return classify_response(
            answer.status, answer.headers, answer.body, retry_statuses, datetime.now(UTC), address=answer.address
        )
    except Exception as error:  # noqa: BLE001 - whatever a response does to us, its attempt has an outcome
        return classify_failure(Failure(f"the attempt failed: {type(error).__name__}", Phase.RESPONSE, written=True))
