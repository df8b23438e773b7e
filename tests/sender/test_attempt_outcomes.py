"""The outcome table of an attempt and Retry-After in all its forms: pure, total, and the same every time."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanout.model.states import Outcome
from regions.decisions.classification import AttemptResult, Failure, Phase, classify_failure, classify_response
from regions.decisions.retry_after import CAP_SECONDS, parse_retry_after

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
DATE = "Mon, 30 Nov 2026 11:00:00 GMT"


def classify(
    status: int,
    *headers: tuple[bytes, bytes],
    body: bytes = b"",
    retry: frozenset[int] | None = None,
) -> AttemptResult:
    return classify_response(status, headers, body, retry, NOW)


@pytest.mark.parametrize(
    ("statuses", "outcome"),
    [
        ([200, 201, 202, 204, 206, 226, 299], Outcome.DELIVERED),
        ([429], Outcome.THROTTLED),
        ([408, 425, 500, 501, 502, 503, 504, 507, 511, 520, 599], Outcome.FAILED),
        ([100, 101, 103, 199], Outcome.FAILED),
        ([600, 700, 999], Outcome.FAILED),
        ([300, 301, 302, 303, 304, 307, 308, 399], Outcome.REDIRECTED),
        ([410], Outcome.GONE),
        ([401, 403], Outcome.UNAUTHORIZED),
        ([400, 402, 404, 405, 406, 409, 411, 413, 415, 418, 421, 422, 424, 426, 431, 451, 499], Outcome.REJECTED),
    ],
)
def test_each_status_has_its_outcome(statuses: list[int], outcome: Outcome) -> None:
    for status in statuses:
        result = classify(status)
        assert (result.outcome, result.status, result.retry_soon) == (outcome, status, False)
        assert (result.retry_after_seconds, result.location) == (None, None)


def test_what_a_2xx_says_in_its_body_or_headers_does_not_matter() -> None:
    result = classify(200, (b"Retry-After", b"60"), (b"Location", b"/x"), body=b'{"error":1}')
    assert result == AttemptResult(Outcome.DELIVERED, 200, excerpt=b'{"error":1}')


def test_503_is_throttled_only_with_a_retry_after_that_can_be_read() -> None:
    assert classify(503, (b"retry-AFTER", b"7")) == AttemptResult(Outcome.THROTTLED, 503, retry_after_seconds=7.0)
    assert classify(503, (b"Retry-After", b"soon")).outcome is Outcome.FAILED
    assert classify(503, (b"Retry-After", b"-5")).outcome is Outcome.FAILED
    assert classify(503, (b"Retry-After", b"7"), retry=frozenset()).outcome is Outcome.THROTTLED
    assert classify(502, (b"Retry-After", b"7")) == AttemptResult(Outcome.FAILED, 502)


def test_429_is_throttled_with_or_without_retry_after() -> None:
    assert classify(429, (b"Retry-After", b"0")).retry_after_seconds == 0.0
    assert classify(429, retry=frozenset()).outcome is Outcome.THROTTLED
    dated = classify(429, (b"Date", DATE.encode()), (b"Retry-After", b"Mon, 30 Nov 2026 11:02:00 GMT"))
    assert dated.retry_after_seconds == 120.0


@pytest.mark.parametrize(
    ("status", "retry", "outcome"),
    [
        (404, {404}, Outcome.FAILED),
        (404, {500}, Outcome.REJECTED),
        (500, {404}, Outcome.REJECTED),
        (500, set(), Outcome.REJECTED),
        (408, set(), Outcome.REJECTED),
        (503, set(), Outcome.REJECTED),
        (503, {503}, Outcome.FAILED),
        (401, {500}, Outcome.UNAUTHORIZED),
        (401, {401}, Outcome.FAILED),
        (403, {403}, Outcome.FAILED),
        (410, {410}, Outcome.GONE),
        (429, {500}, Outcome.THROTTLED),
        (302, {302}, Outcome.REDIRECTED),
        (204, set(), Outcome.DELIVERED),
        (999, set(), Outcome.FAILED),
        (101, set(), Outcome.FAILED),
    ],
)
def test_a_subscribers_own_retry_statuses_decide_only_what_is_theirs(
    status: int, retry: set[int], outcome: Outcome
) -> None:
    assert classify(status, retry=frozenset(retry)).outcome is outcome


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        (b"https://new.example/hook", "https://new.example/hook"),
        (b"https://user:pass@new.example:8443/hook?token=1#frag", "https://new.example:8443/hook"),
        (b"/moved?token=1", "/moved"),
        (b"//other.example/x", "//other.example/x"),
        (b"?token=1", None),
        (b"", None),
        (b"http://[broken/x", None),
        (b"https://new.example/\r\n\x00\x1bx", "https://new.example/x"),
        (b"https://b\xfccher.example/", "https://bücher.example/"),
        (b"https://a.example/" + b"x" * 1000, "https://a.example/" + "x" * 238),
        (b"https://good.example#@evil.example/", "https://good.example"),
    ],
)
def test_a_redirect_shows_where_to_without_tokens(location: bytes, shown: str | None) -> None:
    assert classify(302, (b"Location", location)).location == shown


def test_a_little_of_the_body_is_kept() -> None:
    assert classify(200, body=b"x" * 5000).excerpt == b"x" * 256
    assert classify(500, body=b"x" * 5000).excerpt == b"x" * 2048


@given(
    status=st.integers(0, 9999),
    headers=st.lists(
        st.tuples(
            st.sampled_from([b"Retry-After", b"date", b"Location", b"X"]),
            st.one_of(st.binary(), st.just(b"120"), st.just(DATE.encode())),
        )
    ),
    body=st.binary(),
    retry=st.none() | st.frozensets(st.integers(100, 599)),
)
def test_any_response_has_exactly_one_outcome(status, headers, body, retry) -> None:
    result = classify_response(status, headers, body, retry, NOW, address="192.0.2.1")
    assert (result.status, result.address, result.retry_soon) == (status, "192.0.2.1", False)
    assert (result.outcome is Outcome.DELIVERED) == (200 <= status <= 299)
    assert result.outcome not in (Outcome.UNKNOWN, Outcome.UNREACHABLE, Outcome.FORBIDDEN)
    assert result.retry_after_seconds is None or result.outcome is Outcome.THROTTLED
    assert result.location is None or result.outcome is Outcome.REDIRECTED
    assert body.startswith(result.excerpt)
    assert result == classify_response(status, headers, body, retry, NOW, address="192.0.2.1")


@pytest.mark.parametrize(
    ("failure", "outcome", "soon"),
    [
        (Failure("m", Phase.ADDRESS, written=False), Outcome.FORBIDDEN, False),
        (Failure("m", Phase.RESOLVE, written=False), Outcome.UNREACHABLE, False),
        (Failure("m", Phase.CONNECT, written=False), Outcome.UNREACHABLE, False),
        (Failure("m", Phase.TLS, written=False), Outcome.UNREACHABLE, False),
        (Failure("m", Phase.WRITE, written=False, reused=True), Outcome.UNREACHABLE, False),
        (Failure("m", Phase.WRITE, written=True), Outcome.UNKNOWN, False),
        (Failure("m", Phase.WRITE, written=True, reused=True), Outcome.UNKNOWN, True),
        (Failure("m", Phase.RESPONSE, written=True), Outcome.UNKNOWN, False),
        (Failure("m", Phase.RESPONSE, written=True, reused=True), Outcome.UNKNOWN, True),
        (Failure("m", Phase.RESPONSE, written=True, reused=True, response_started=True), Outcome.UNKNOWN, False),
        (Failure("m", Phase.RESPONSE, written=True, response_started=True, unparsable=True), Outcome.FAILED, False),
    ],
)
def test_each_failure_has_its_outcome(failure: Failure, outcome: Outcome, soon: bool) -> None:
    assert classify_failure(failure) == AttemptResult(outcome, error="m", retry_soon=soon)


@given(
    st.builds(
        Failure,
        message=st.text(),
        phase=st.sampled_from(Phase),
        written=st.booleans(),
        response_started=st.booleans(),
        reused=st.booleans(),
        unparsable=st.booleans(),
        address=st.none() | st.just("192.0.2.1"),
    )
)
def test_a_request_that_may_have_arrived_is_never_called_unreachable(failure: Failure) -> None:
    result = classify_failure(failure)
    assert result.outcome in (Outcome.FORBIDDEN, Outcome.FAILED, Outcome.UNREACHABLE, Outcome.UNKNOWN)
    assert not (failure.written and result.outcome is Outcome.UNREACHABLE)
    assert not result.retry_soon or result.outcome is Outcome.UNKNOWN
    assert (result.error, result.address) == (failure.message, failure.address)


@pytest.mark.parametrize(
    ("values", "date", "seconds"),
    [
        ([], None, None),
        (["0"], None, 0.0),
        (["1"], None, 1.0),
        (["120"], None, 120.0),
        ([" 120 \t"], None, 120.0),
        (["007"], None, 7.0),
        (["1.5"], None, 2.0),
        (["299.997"], None, 300.0),
        (["0.0"], None, 0.0),
        (["-5"], None, None),
        (["+5"], None, None),
        (["1e3"], None, None),
        ([".5"], None, None),
        (["5."], None, None),
        (["0x10"], None, None),
        (["NaN"], None, None),
        (["inf"], None, None),
        (["120junk"], None, None),
        (["120, 60"], None, None),
        (["１２０"], None, None),
        ([""], None, None),
        (["99999999999999"], None, 1e12),
        (["9" * 10_000], None, 1e12),
        (["30", "60", "10"], None, 60.0),
        (["junk", "10", "-1"], None, 10.0),
        (["Mon, 30 Nov 2026 12:02:00 GMT"], None, 120.0),
        (["Mon, 30 Nov 2026 12:02:00 GMT"], DATE, 3720.0),
        (["Mon, 30 Nov 2026 12:02:00 GMT"], f" {DATE} ", 3720.0),
        (["Mon, 30 Nov 2026 12:02:00 GMT"], "yesterday", 120.0),
        (["Mon, 30 Nov 2026 12:02:00 GMT"], "", 120.0),
        (["Mon, 30 Nov 2026 11:00:00 GMT"], DATE, 0.0),
        (["Mon, 30 Nov 2026 10:59:59 GMT"], DATE, None),
        (["Sun, 06 Nov 1994 08:49:37 GMT"], None, None),
        (["Monday, 30-Nov-26 12:02:00 GMT"], None, 120.0),
        (["Wednesday, 01-Jan-76 00:00:00 GMT"], None, 1549022400.0),
        (["Saturday, 01-Jan-77 00:00:00 GMT"], None, None),
        (["Mon Nov 30 12:02:00 2026"], None, 120.0),
        (["Tue Dec  1 12:00:00 2026"], None, 86_400.0),
        (["Fri, 30 Nov 2026 12:02:00 GMT"], None, 120.0),
        (["mon, 30 nov 2026 12:02:00 gmt"], None, 120.0),
        (["Mon, 30 Nov 2026 12:01:60 GMT"], None, 120.0),
        (["Mon, 30 Nov 2026 12:02:00 UTC"], None, None),
        (["Mon, 30 Nov 2026 12:02:00 +0000"], None, None),
        (["Mon, 30 Nov 2026 12:02:00"], None, None),
        (["Mon, 31 Nov 2026 12:02:00 GMT"], None, None),
        (["Mon, 30 Nov 2026 25:02:00 GMT"], None, None),
        (["Mon, 30 Nov 2026 12:02:61 GMT"], None, None),
        (["Fri, 31 Dec 9999 23:59:60 GMT"], None, None),
        (["Mon, 00 Nov 2026 12:02:00 GMT"], None, None),
        (["Mon, 30 Nov 0000 12:02:00 GMT"], None, None),
        (["30 Nov 2026 12:02:00 GMT"], None, None),
        (["2026-11-30T12:02:00Z"], None, None),
    ],
)
def test_retry_after_is_read_as_the_table_says(values: list[str], date: str | None, seconds: float | None) -> None:
    assert parse_retry_after(values, date, NOW) == seconds


@given(st.lists(st.text() | st.from_regex(r"[0-9]{1,9}(\.[0-9]{1,4})?", fullmatch=True)), st.none() | st.text())
def test_any_retry_after_is_none_or_a_whole_number_of_seconds_from_zero(values: list[str], date: str | None) -> None:
    seconds = parse_retry_after(values, date, NOW)
    assert seconds is None or (seconds >= 0 and seconds == int(seconds))
    assert seconds == max((s for v in values if (s := parse_retry_after([v], date, NOW)) is not None), default=None)


@given(st.integers(0, 10**9), st.integers(-(10**8), 10**8))
def test_a_date_is_as_far_away_as_the_subscribers_clock_says(wait: int, skew: int) -> None:
    theirs = NOW + timedelta(seconds=skew)
    until = format_datetime(theirs + timedelta(seconds=wait), usegmt=True)
    assert parse_retry_after([until], format_datetime(theirs, usegmt=True), NOW) == wait


def test_fractions_of_our_own_clock_are_rounded_up() -> None:
    now = NOW - timedelta(milliseconds=1)
    assert parse_retry_after(["Mon, 30 Nov 2026 12:00:00 GMT"], None, now) == 1.0


def test_the_default_cap_is_a_day() -> None:
    assert CAP_SECONDS == 86_400.0
