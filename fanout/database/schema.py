"""The name of a PostgreSQL schema, and SQL that is written for whichever schema a deployment uses."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Schema:
    """Every statement names its schema: nothing depends on ``search_path``, so a transaction pooler may stand in front."""

    name: str
    _ready: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def quoted(self) -> str:
        return '"' + self.name.replace('"', '""') + '"'

    def sql(self, text: str) -> str:
        """``text`` with ``{schema}`` replaced. Remembered per text: callers pass literals."""
        ready = self._ready.get(text)
        if ready is None:
            ready = self._ready[text] = text.replace("{schema}", self.quoted)
        return ready
