"""What one can ask about a version: which regions have expanded it, and what became of its deliveries there."""

import pytest

from fanout.database.connection import open_pool
from fanout.home import outbox
from fanout.home.inspection import OutboxState
from fanout.home.publishing import publish_many
from fanout.home.registry import set_regions
from fanout.ledger.inspection import VersionCounts
from fanout.model.shipment import ShipmentVersion
from fanout.version_progress import progress_document, version_progress

SOME = VersionCounts(True, 5, 1, 1, 1, 1, 1)


@pytest.mark.parametrize(
    ("home", "counts", "expansion", "accepted"),
    [
        (OutboxState(False, None), None, "pending", 0),
        (OutboxState(False, None), VersionCounts(False, 5, 5, 0, 0, 0, 0), "pending", 5),
        (OutboxState(False, None), SOME, "done", 5),
        (OutboxState(True, 5), SOME, "done", 5),
        (OutboxState(True, 0), None, "none", 0),
        (OutboxState(True, 0), VersionCounts(True, 0, 0, 0, 0, 0, 0), "done", 0),
    ],
)
def test_expansion_in_one_word(home, counts, expansion, accepted):
    document = progress_document(home, counts, reachable=True)
    assert list(document) == ["expansion", "accepted", "waiting", "queued", "leased", "delivered", "dead"]
    assert (document["expansion"], document["accepted"]) == (expansion, accepted)


def test_of_a_region_that_cannot_be_asked_only_what_home_was_told_is_known():
    document = progress_document(OutboxState(True, 5), None, reachable=False)
    assert (document["expansion"], document["accepted"], document["waiting"]) == ("unreachable", 5, None)


async def test_one_region_that_is_away_does_not_hide_the_others(home, eu):
    await set_regions(home.connection, home.schema, ["eu", "us"])
    await publish_many(home.connection, [ShipmentVersion("S1", 3, "a.b", b"hello")], schema=home.schema)
    rows = await outbox.take(home.connection, home.schema, "eu", 1, 0)
    await outbox.finish(home.connection, home.schema, "eu", {rows[0].announcement.version_no: 0})
    nowhere = await open_pool("postgresql://nobody@127.0.0.1:9/nothing", "test", most=1)
    ledgers = {"eu": (eu.connection, eu.schema), "us": (nowhere, eu.schema)}
    document = await version_progress(home.connection, home.schema, ledgers, "S1", 3)
    assert {region: counts["expansion"] for region, counts in document["regions"].items()} == {
        "eu": "none",
        "us": "unreachable",
    }
    assert (document["version"], document["bytes"], len(document["sha256"])) == (3, 5, 64)
    assert await version_progress(home.connection, home.schema, ledgers, "S1", 4) is None
    await nowhere.close()
