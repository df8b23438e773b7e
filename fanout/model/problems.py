"""How bad input is reported: which field, why, and what would be right."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with one field. ``field`` is named as the person who wrote it would find it."""

    field: str
    why: str
    right: str = ""
    malformed: bool = False
    """True where the input cannot even be read as what it should be (HTTP 400); False where it is well-formed but not
    allowed (HTTP 422)."""

    def __str__(self) -> str:
        text = f"{self.field}: {self.why}"
        return f"{text}; {self.right}" if self.right else text


class Invalid(ValueError):  # noqa: N818 - reads as what it says: the input is invalid
    """Input that is refused as a whole. Carries every problem that was found, never a secret value."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems

    @classmethod
    def field(cls, field: str, why: str, right: str = "", *, malformed: bool = False) -> Self:
        return cls(Problem(field, why, right, malformed))

    @property
    def malformed(self) -> bool:
        return any(problem.malformed for problem in self.problems)
