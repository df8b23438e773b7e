"""Who acts, and on which region: what the commands on one subscriber have in common."""

import getpass
from dataclasses import dataclass

from fanout.cli.databases import opened
from fanout.cli.ending import Failed, complain
from fanout.database.fetching import Fetches
from fanout.home.registry import region_of
from fanout.ledger import channels
from fanout.ledger.registry import UnknownSubscriber
from fanout.ledger.registry_reading import Subscriber, show
from fanout.model.identity import check_id
from fanout.model.problems import Invalid
from fanout.running.schemas import Place, home_place, region_place
from fanout.settings import RegionSettings, Settings


def who(by: str | None) -> str:
    """The operator's name for the record: as given, else the login name."""
    if by is not None:
        return check_text("--by", by, "say who you are, or leave it out for your login name")
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise Invalid.field("--by", "this user has no login name", "say who you are") from None


def check_text(field: str, text: str, right: str) -> str:
    """What stands in the record for ever: readable, and something."""
    if not text.strip():
        raise Invalid.field(field, "is empty", right)
    if not text.isprintable():
        raise Invalid.field(field, "holds a line end or another control character", "write one line of plain text")
    return text.strip()


def known_region(settings: Settings, name: str, field: str = "REGION") -> RegionSettings:
    """Raises ``Invalid`` naming the regions there are."""
    if name not in settings.regions:
        raise Invalid.field(
            field, f"there is no region {name[:40]!a}", f"the regions are {', '.join(settings.regions)}"
        )
    return settings.regions[name]


def places_of(settings: Settings, region: str | None) -> list[Place]:
    """The ledger of one region, or of all."""
    if region is not None:
        return [region_place(known_region(settings, region, "--region"))]
    return [region_place(each) for each in settings.regions.values()]


async def ring_scheduler(connection: Fetches, place: Place) -> None:
    """A destination may have more to do now."""
    await connection.fetch("SELECT pg_notify($1, '')", channels.due(place.schema))


@dataclass(frozen=True, slots=True)
class Found:
    place: Place
    subscriber: Subscriber


async def find(settings: Settings, subscriber_id: str) -> Found:
    """The subscriber and where it is. Home knows the region; while home is away every region is asked. ``Failed`` where there
    is none.
    """
    check_id("ID", subscriber_id)
    for place in await candidate_places(settings, subscriber_id):
        try:
            async with opened(place, "subscribers") as connection:
                return Found(place, await show(connection, place.schema, place.name, subscriber_id))
        except UnknownSubscriber:
            continue
    raise _unknown(subscriber_id)


async def find_registered(settings: Settings, subscriber_id: str) -> None:
    """``Failed`` where no subscriber, deleted or not, ever had this id. While home is away nobody can say."""
    if not await candidate_places(settings, subscriber_id):
        raise _unknown(subscriber_id)


def _unknown(subscriber_id: str) -> Failed:
    return Failed(f"there is no subscriber {subscriber_id}; `fanout subscribers list` shows those there are")


async def candidate_places(settings: Settings, subscriber_id: str) -> list[Place]:
    """Where a subscriber may be, deleted or not: one region, none, or all while home is away."""
    home = home_place(settings)
    try:
        async with opened(home, "subscribers") as connection:
            registered = await region_of(connection, home.schema, subscriber_id)
    except Failed as error:
        complain(f"{error}; asking every region")
        return places_of(settings, None)
    if registered is None or registered.region not in settings.regions:
        return []
    return [region_place(settings.regions[registered.region])]
