"""The sum at the end of the demo is able to say no."""

from dataclasses import replace

import pytest

from fanout.demo.checks import RegionSum, checks, disagreements
from fanout.demo.figures import RegionLedger, Spread, SubscriberLedger
from fanout.home.inspection import OutboxFigures
from fanout.ledger.books import RegionFigures
from fanout.reconciliation import RegionBook

NONE = Spread(None, None)


def region_sum(
    ledger: SubscriberLedger, *, limit: int = 4, open_: int = 0, total: dict | None = None, **seen
) -> RegionSum:
    """One subscriber with ten deliveries, all delivered at once, unless said."""
    subscriber = {
        "requests": ledger.attempts, "delivered_keys": ledger.delivered, "duplicates": 0, "peak_in_flight": 4,
        "peak_per_second": 5, "out_of_order": 0, "out_of_order_keys": [],
        "answers": {str(status): count for status, count in ledger.statuses.items()},
    } | seen  # fmt: skip
    sums = {"bad_signatures": 0, "without_key": 0, "in_flight": 0, "malformed": 0, "other_requests": 0} | (total or {})
    nothing = dict.fromkeys(RegionFigures.__dataclass_fields__, 0)
    figures = RegionFigures(**nothing | {"accepted": 10 + open_, "delivered": 10, "waiting": open_})
    outbox = OutboxFigures(pending=0, oldest_pending_age_seconds=0.0, lowest_pending=None, removed=0)
    return RegionSum(
        region="eu",
        book=RegionBook("eu", outbox, figures),
        ledger=RegionLedger({"bank": ledger}, {}, {}, 10, 0, 1.0, NONE, NONE),
        seen={"total": sums, "subscribers": {"bank": subscriber}},
        limits={"bank": limit},
        rates={"bank": 5.0},
        ordered=frozenset({"bank"}),
    )


def ten(**changes) -> SubscriberLedger:
    return replace(SubscriberLedger(delivered=10, attempts=10, statuses={200: 10}), **changes)


def refused(each: RegionSum) -> list[str]:
    return [check.question for check in checks([each]) if not check.ok]


def test_a_day_without_trouble_passes():
    assert refused(region_sum(ten())) == []


def test_a_subscriber_over_its_limit_is_named():
    (check,) = [check for check in checks([region_sum(ten(), limit=3)]) if not check.ok]
    assert check.detail == "bank saw 4 at once, its limit is 3"


def test_a_subscriber_over_its_rate_is_named():
    assert refused(region_sum(ten(), peak_per_second=7)) == [], "each may be a fifth of a second late"
    (check,) = [check for check in checks([region_sum(ten(), peak_per_second=8)]) if not check.ok]
    assert check.detail == "bank saw 8 in a second, its rate is 5"


def test_a_subscriber_that_got_a_version_after_a_higher_one_is_named():
    seen = {"out_of_order": 1, "out_of_order_keys": ["shipment:s:subscriber:bank:version:1"]}
    (check,) = [check for check in checks([region_sum(ten(), **seen)]) if not check.ok]
    assert check.detail == "bank accepted 1 versions after a higher one, shipment:s:subscriber:bank:version:1"


def test_open_deliveries_fail_and_receivers_are_not_compared_yet():
    questions = [check.question for check in checks([region_sum(ten(), open_=2, requests=99)])]
    assert refused(region_sum(ten(), open_=2)) == ["everything has ended: nothing is open"]
    assert not any("receivers" in question for question in questions)


def test_a_book_that_does_not_add_up_fails():
    each = region_sum(ten())
    wrong = replace(each.book.figures, accepted=11)
    each = replace(each, book=replace(each.book, figures=wrong))
    assert refused(each) == ["balanced: accepted = delivered + dead + open, and home's book says the same"]


def test_a_wrong_signature_fails():
    assert refused(region_sum(ten(), total={"bad_signatures": 1})) == ["every signature was right"]


@pytest.mark.parametrize(
    ("ledger", "seen"),
    [
        (ten(), {"delivered_keys": 9}),  # the ledger says delivered, and nobody got it
        (ten(), {"delivered_keys": 11}),  # someone got what the ledger does not know
        (ten(), {"duplicates": 1}),  # sent again although the first answer was read
        (ten(), {"requests": 11}),  # a request that is no attempt
        (ten(), {"answers": {"200": 9, "500": 1}}),
        (ten(attempts=12, unknown=1, statuses={200: 10, 500: 1}), {"duplicates": 2}),
    ],
)
def test_receivers_that_contradict_the_ledger_are_noticed(ledger, seen):
    assert disagreements(region_sum(ledger, **seen))


@pytest.mark.parametrize(
    ("ledger", "seen"),
    [
        (ten(attempts=11, unknown=1), {"requests": 10}),  # it never came
        (ten(attempts=11, unknown=1), {"duplicates": 1, "answers": {"200": 11}}),  # it came, and its answer was lost
        (
            ten(attempts=11, unknown=1, maybe=1),
            {"delivered_keys": 11, "answers": {"200": 11}},
        ),  # and was never repeated
        (ten(attempts=11, unsent=1), {"requests": 10}),
    ],
)
def test_an_attempt_of_unknown_outcome_may_have_arrived_or_not(ledger, seen):
    assert disagreements(region_sum(ledger, **seen)) == []


def test_a_receiver_that_never_heard_of_a_subscriber_contradicts_its_attempts():
    each = region_sum(ten())
    deaf = replace(each, seen={**each.seen, "subscribers": {}})
    assert disagreements(deaf) == ["bank: 10 attempts, but the receiver never heard of it"]
