"""``fanout migrate``."""

from fanout.cli.databases import explain
from fanout.cli.ending import DONE, Failed
from fanout.cli.output import say, show_json
from fanout.running.schemas import Migrated, migrate_all
from fanout.settings import Settings


async def migrate_everything(*, json_output: bool) -> int:
    """A line for each schema. One that fails stops no other; then the command fails, and names it."""
    schemas: dict[str, dict[str, object]] = {}
    async for each in migrate_all(Settings.load()):
        error = None if each.error is None else explain(each.place, each.error)
        schemas[each.place.name] = {"schema": each.place.schema.name, "applied": each.applied, "error": error}
        if not json_output:
            say(error or _done(each))
    if json_output:
        show_json({"schemas": schemas})
    if failed := [name for name, each in schemas.items() if each["error"] is not None]:
        raise Failed(
            f"not migrated: {', '.join(failed)}; mend that and run `fanout migrate` again: it does what is left"
        )
    return DONE


def _done(migrated: Migrated) -> str:
    what = f"applied {', '.join(migrated.applied)}" if migrated.applied else "up to date"
    return f"{migrated.place.name}: schema {migrated.place.schema.name} {what}"
