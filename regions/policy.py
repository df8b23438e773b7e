"""The retry policy of a deployment, from its settings: the decisions themselves know no settings."""

from fanout.settings import DeliveryTable
from regions.decisions.retry import RetryPolicy


def retry_policy(delivery: DeliveryTable) -> RetryPolicy:
    return RetryPolicy(
        backoff_first_seconds=delivery.backoff_first_seconds,
        backoff_factor=delivery.backoff_factor,
        backoff_cap_seconds=delivery.backoff_cap_seconds,
        attempts=delivery.attempts,
        max_age_seconds=delivery.max_age_seconds,
        retry_after_cap_seconds=delivery.retry_after_cap_seconds,
    )
