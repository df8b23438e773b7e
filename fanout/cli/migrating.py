"""``fanout migrate``."""

from fanout.cli.databases import explain
from fanout.cli.ending import DONE, Failed
from fanout.cli.output import say
from fanout.running.schemas import migrate_all
from fanout.settings import Settings


async def migrate_everything() -> int:
    """A line for each schema. One that fails stops no other; then the command fails, and names it."""
    failed = await migrate_all(Settings.load(), say, explain)
    if failed:
        raise Failed(
            f"not migrated: {', '.join(failed)}; mend that and run `fanout migrate` again: it does what is left"
        )
    return DONE
