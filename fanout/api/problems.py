"""How the API says no: RFC 9457 problem details, each for the person who has to do something about it."""

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus

from fanout.api.answers import Answer, json_bytes
from fanout.model.problems import Invalid, Problem

CONTENT_TYPE = b"application/problem+json"
RETRY_AFTER_SECONDS = 2
"""What a caller is asked to wait while a database is away or we are full: recovery is noticed at once."""


class Refused(Exception):  # noqa: N818 - says what happened
    """A call that ends with this status. ``members`` stand beside the standard ones (RFC 9457, section 3.2)."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        members: Mapping[str, object] | None = None,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.members = dict(members or {})
        self.headers = list(headers)

    def answer(self) -> Answer:
        return problem(self.status, self.detail, members=self.members, headers=self.headers)


def unavailable(detail: str) -> Refused:
    """Not now: 503, and when to come back."""
    return Refused(503, detail, headers=[(b"retry-after", str(RETRY_AFTER_SECONDS).encode())])


def problem(
    status: int,
    detail: str,
    *,
    members: Mapping[str, object] | None = None,
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> Answer:
    """``type`` is left at its default, about:blank: the status says what kind it is, ``detail`` what happened."""
    document = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail, **(members or {})}
    return Answer(status, json_bytes(document), CONTENT_TYPE, list(headers))


def invalid(error: Invalid) -> Answer:
    """400 where something cannot be read as what it should be, 422 where all is readable and something is not allowed."""
    members = {"errors": [_entry(each) for each in error.problems]}
    return problem(400 if error.malformed else 422, _detail(error.problems), members=members)


def _detail(problems: Sequence[Problem]) -> str:
    first = str(problems[0])
    return first if len(problems) == 1 else f"{first} (and {len(problems) - 1} more, see errors)"


def _entry(each: Problem) -> dict[str, str]:
    return {"field": each.field, "why": each.why, "right": each.right}
