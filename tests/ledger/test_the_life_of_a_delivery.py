"""Each edge of the state diagram, taken by its operation; and the three places where the diagram stands agree."""

import asyncpg
import pytest

from fanout.ledger import sweeping
from fanout.model.states import TRANSITIONS, Ordering, Outcome, Reason, State
from services.region import released, result


async def labels_of(region, name):
    return [row[0] for row in await region.rows("SELECT unnest(enum_range(NULL::{schema}." + name + "))::text")]


async def test_the_words_of_the_database_are_the_words_of_the_code(region):
    assert await labels_of(region, "delivery_state") == [state.value for state in State]
    assert await labels_of(region, "attempt_outcome") == [outcome.value for outcome in Outcome]
    assert await labels_of(region, "death_reason") == [reason.value for reason in Reason]
    assert await labels_of(region, "ordering") == [ordering.value for ordering in Ordering]


async def test_every_legal_step_but_redrive_and_supersede_is_taken_by_an_operation_and_no_other(region):
    first = await region.subscriber("first", concurrency=10)
    await region.subscriber("second", concurrency=10, event_types=["other"])
    await region.arrive(*(region.announcement(f"s-{n}") for n in range(6)))
    await region.arrive(region.announcement("secret", event_type="other"), forbidden=True)  # not there yet > dead

    references = await region.promote()
    complete, retry, throttle, fail, release, _lost = await region.claim(references[:5]) + [references[5]]
    await region.settle(
        result(complete),
        result(retry, Outcome.FAILED, delay_seconds=60.0),
        result(throttle, Outcome.THROTTLED),
        result(fail, Outcome.REJECTED, state=State.DEAD, reason=Reason.REJECTED),
        released(release),
    )
    await sweeping.requeue_lost(region.connection, region.schema, 0.0, 10)
    await region.execute(
        "UPDATE {schema}.destination SET hold_until = NULL, probation = false, send_window = 10, wake_at = now()"
    )
    assert len(await region.promote()) == 3
    await region.execute(
        "UPDATE {schema}.destination SET disabled_at = now(), disabled_why = 'disabled' WHERE id = $1", first
    )
    while await sweeping.close_out(region.connection, region.schema, 100):
        pass

    steps = {
        (row["before"] or None, row["after"])
        for row in await region.rows("SELECT before, after FROM {schema}.step_taken")
    }
    assert steps == {(before, after) for before, after in TRANSITIONS} - {(State.DEAD, State.WAITING)}


async def test_a_row_that_contradicts_its_state_is_refused_by_the_database(region):
    await region.subscriber("a")
    await region.arrive(region.announcement())
    contradictions = [
        "state = 'leased'",
        "state = 'queued'",
        "state = 'dead', finished_at = now()",
        "state = 'delivered'",
        "reason = 'gone'",
        "worker = 'w'",
        "state = 'queued', queued_at = now(), blocked = true",
    ]
    for contradiction in contradictions:
        with pytest.raises(asyncpg.CheckViolationError):
            await region.execute("UPDATE {schema}.delivery SET " + contradiction)


async def test_a_delivery_exists_once_per_version_and_subscriber_for_ever(region):
    await region.subscriber("a")
    note = region.announcement()
    assert (await region.arrive(note))[0].created == 1
    assert (await region.arrive(note))[0].created == 1  # a repeat of the whole step
    await region.settle(result((await region.leased())[0]))
    assert (await region.arrive(note))[0].created == 1
    assert await region.value("SELECT count(*) FROM {schema}.delivery") == 1
    with pytest.raises(asyncpg.UniqueViolationError):
        await region.execute(
            "INSERT INTO {schema}.delivery (version_no, shipment_no, version, destination_id, state, eligible_at, aged_from) "
            "SELECT version_no, shipment_no, version, destination_id, 'waiting', now(), now() FROM {schema}.delivery"
        )
