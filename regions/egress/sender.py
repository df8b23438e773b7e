"""One attempt, from a request to a result: the boundary at which every exception becomes a recorded outcome."""

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
from regions.egress.exchange import Exchange, Outgoing


class Sender:
    """Sends over any ``Exchange``."""

    def __init__(self, client: Exchange) -> None:
        self._client = client

    async def send(self, outgoing: Outgoing, *, retry_statuses: frozenset[int] | None) -> AttemptResult | None:
        """The result of one attempt, or None: ``may_write`` said no, nothing was sent, the delivery is to be released.

        Raises nothing but ``CancelledError``. Ends at the deadline at the latest.
        """
        try:
            answer = await self._client.exchange(outgoing)
        except NotSent:
            return None
        except EgressError as error:
            return classify_failure(error.failure())
        except Exception as error:  # noqa: BLE001 - the boundary: whatever happens in an attempt is its outcome
            return classify_failure(
                Failure(f"the attempt failed: {type(error).__name__}", Phase.RESPONSE, written=True)
            )
        if 200 <= answer.status <= 299:  # noqa: PLR2004 - the class of RFC 9110
            return delivered(answer.status, answer.body, answer.address)
        return classify_response(
            answer.status, answer.headers, answer.body, retry_statuses, datetime.now(UTC), address=answer.address
        )
