"""Creating, replacing and deleting: repeatable, all or nothing, each change once in the audit, secrets told once."""

import asyncio
import json

import pytest

from fanout.database.connection import connect
from fanout.ledger.registry import (
    Change,
    StillClosing,
    UnknownSubscriber,
    apply_all,
    delete,
    replace,
    rotate_secret,
    save,
)
from fanout.ledger.registry_reading import changes_of, list_subscribers, secrets_of, show, spec_of
from fanout.ledger.sweeping import close_out
from fanout.model.signing_secret import Secret
from fanout.model.subscriber import SubscriberRules

RULES = SubscriberRules({"eu": (), "us": ()})
EVERYTHING = {
    "endpoint": "https://hooks.example.com/in?token=hush",
    "event_types": ["shipment.delayed", "shipment.c*"],
    "labels": {"carrier": ["UA", "DL"]},
    "concurrency": 8,
    "rate_per_second": 0.1,
    "ordering": "latest",
    "headers": {"X-Api-Key": "hush hush"},
    "timeout_seconds": 12.3,
    "retry_statuses": [409, 503],
}


async def test_a_new_subscriber_is_told_the_secret_that_was_made_for_it_and_only_then(eu, wish):
    created = await save(eu.connection, eu.schema, "acme", wish(), by="ann")
    assert (created.change, created.config_version) == (Change.CREATED, 1)
    assert await secrets_of(eu.connection, eu.schema, ["acme"]) == {"acme": [created.secret]}
    again = await save(eu.connection, eu.schema, "acme", wish(concurrency=9), by="ann")
    assert (again.change, again.config_version, again.secret) == (Change.UPDATED, 2, None)
    assert await secrets_of(eu.connection, eu.schema, ["acme"]) == {"acme": [created.secret]}


async def test_a_subscriber_that_brings_secrets_is_told_none(eu, wish):
    given = [Secret.new(), Secret.new()]
    saved = await save(eu.connection, eu.schema, "acme", wish(secrets=[s.reveal() for s in given]), by="ann")
    assert saved.secret is None
    assert (await secrets_of(eu.connection, eu.schema, ["acme"]))["acme"] == given


async def test_what_was_saved_reads_back_the_same(eu, wish):
    spec = wish(**EVERYTHING)
    await save(eu.connection, eu.schema, "acme", spec, by="ann")
    assert (await spec_of(eu.connection, eu.schema, "eu", "acme"))[0] == spec


async def test_saving_the_same_again_changes_nothing(eu, wish):
    secret = Secret.new().reveal()
    await save(eu.connection, eu.schema, "acme", wish(**EVERYTHING, secrets=[secret]), by="ann")
    before = await eu.one(
        "SELECT s.xmin AS s, d.xmin AS d FROM {schema}.subscriber s JOIN {schema}.destination d USING (id)"
    )
    saved = await save(eu.connection, eu.schema, "acme", wish(**EVERYTHING, secrets=[secret]), by="bob")
    assert (saved.change, saved.config_version) == (Change.UNCHANGED, 1)
    assert before == await eu.one(
        "SELECT s.xmin AS s, d.xmin AS d FROM {schema}.subscriber s JOIN {schema}.destination d USING (id)"
    )
    assert len(await changes_of(eu.connection, eu.schema, "acme")) == 1


@pytest.mark.parametrize("field", EVERYTHING)
async def test_each_setting_that_differs_is_saved_and_raises_the_config_version(eu, wish, field):
    await save(eu.connection, eu.schema, "acme", wish(), by="ann")
    spec = wish(**{field: EVERYTHING[field]})
    saved = await save(eu.connection, eu.schema, "acme", spec, by="ann")
    assert (saved.change, saved.config_version) == (Change.UPDATED, 2)
    assert (await spec_of(eu.connection, eu.schema, "eu", "acme"))[0] == spec
    newest = (await changes_of(eu.connection, eu.schema, "acme"))[0]
    assert (newest.config_version, newest.change["action"], list(newest.change["fields"])) == (2, "changed", [field])


async def test_a_put_takes_what_it_does_not_name_back_to_its_default(eu, wish):
    await save(eu.connection, eu.schema, "acme", wish(**EVERYTHING), by="ann")
    await save(eu.connection, eu.schema, "acme", wish(), by="ann")
    assert (await spec_of(eu.connection, eu.schema, "eu", "acme"))[0] == wish()


async def test_expansion_sees_the_new_patterns_and_no_old_one(eu, wish):
    await save(eu.connection, eu.schema, "acme", wish(event_types=["a", "b*"]), by="ann")
    await save(eu.connection, eu.schema, "acme", wish(event_types=["b*", "c"]), by="ann")
    assert sorted(await eu.values("SELECT pattern FROM {schema}.subscription")) == ["b*", "c"]


async def test_the_audit_tells_who_and_what_and_nothing_confidential(eu, wish):
    await save(eu.connection, eu.schema, "acme", wish(**EVERYTHING), by="ann")
    changed = EVERYTHING | {
        "endpoint": "https://other.example.com/in?token=hush2",
        "headers": {"X-Api-Key": "hush again", "X-More": "hush"},
        "concurrency": 3,
        "rate_per_second": None,
    }
    await save(eu.connection, eu.schema, "acme", wish(**changed, secrets=[Secret.new().reveal()]), by="bob")
    newest, oldest = await changes_of(eu.connection, eu.schema, "acme")
    assert (oldest.changed_by, oldest.change, newest.changed_by) == ("ann", {"action": "created"}, "bob")
    assert newest.change["fields"] == {
        "endpoint": {"from": "https://hooks.example.com/in", "to": "https://other.example.com/in"},
        "headers": {"from": ["X-Api-Key"], "to": ["X-Api-Key", "X-More"]},
        "concurrency": {"from": 8, "to": 3},
        "rate_per_second": {"from": 0.1, "to": None},
        "secrets": "replaced",
    }


async def test_showing_a_subscriber_shows_no_secret_and_no_header_value(eu, wish):
    saved = await save(eu.connection, eu.schema, "acme", wish(**EVERYTHING), by="ann")
    shown = await show(eu.connection, eu.schema, "eu", "acme")
    listed = await list_subscribers(eu.connection, eu.schema, "eu")
    assert listed == [shown]
    text = json.dumps(shown.document()) + repr(shown)
    assert "hush hush" not in text
    assert "hush" not in repr(shown)
    assert "whsec_" not in text
    assert saved.secret.reveal() not in text
    assert shown.settings["headers"] == {"X-Api-Key": "***"}
    assert (shown.settings["rate_per_second"], shown.settings["timeout_seconds"]) == (0.1, 12.3)
    assert (shown.status, shown.gate.window, shown.config_version) == ("active", 8, 1)


async def test_listing_goes_on_after_the_last_id_of_the_page_before(eu, wish):
    await apply_all(eu.connection, eu.schema, {f"s{n}": wish() for n in range(5)}, prune=False, by="ann")
    first = await list_subscribers(eu.connection, eu.schema, "eu", limit=3)
    rest = await list_subscribers(eu.connection, eu.schema, "eu", after=first[-1].subscriber_id, limit=3)
    assert [s.subscriber_id for s in first + rest] == ["s0", "s1", "s2", "s3", "s4"]


async def test_a_patch_of_an_unknown_or_deleted_subscriber_creates_nothing(eu, wish):
    with pytest.raises(UnknownSubscriber, match="nobody"):
        await replace(eu.connection, eu.schema, "nobody", wish(), seen=1, by="ann")
    await save(eu.connection, eu.schema, "acme", wish(), by="ann")
    await delete(eu.connection, eu.schema, ["acme"], by="ann")
    with pytest.raises(UnknownSubscriber):
        await replace(eu.connection, eu.schema, "acme", wish(), seen=1, by="ann")
    with pytest.raises(UnknownSubscriber):
        await show(eu.connection, eu.schema, "eu", "acme")
    assert await list_subscribers(eu.connection, eu.schema, "eu") == []


async def test_a_patch_changes_what_it_names(eu, wish):
    await save(eu.connection, eu.schema, "acme", wish(**EVERYTHING), by="ann")
    merged = (await spec_of(eu.connection, eu.schema, "eu", "acme"))[0].patched({"concurrency": 2}, RULES)
    assert (await replace(eu.connection, eu.schema, "acme", merged, seen=1, by="ann")).change is Change.UPDATED
    assert (await spec_of(eu.connection, eu.schema, "eu", "acme"))[0] == wish(**EVERYTHING | {"concurrency": 2})


async def test_a_replaced_secret_signs_beside_the_newest_for_a_day_and_no_longer(eu, wish):
    first = (await save(eu.connection, eu.schema, "acme", wish(), by="ann")).secret
    second = (await rotate_secret(eu.connection, eu.schema, "acme", by="ann")).secret
    assert (await secrets_of(eu.connection, eu.schema, ["acme"]))["acme"] == [second, first]
    left = await eu.one(
        "SELECT extract(epoch FROM retires_at - now()) / 3600 AS hours FROM {schema}.secret WHERE place = 1"
    )
    assert 23.9 < left["hours"] <= 24
    await eu.run("UPDATE {schema}.secret SET retires_at = now() - interval '1 second' WHERE place = 1")
    assert (await secrets_of(eu.connection, eu.schema, ["acme"]))["acme"] == [second]
    assert (await show(eu.connection, eu.schema, "eu", "acme")).config_version == 2


async def test_at_most_five_secrets_sign_at_once(eu, wish):
    await save(eu.connection, eu.schema, "acme", wish(), by="ann")
    rotated = [(await rotate_secret(eu.connection, eu.schema, "acme", by="ann")).secret for _ in range(7)]
    assert (await secrets_of(eu.connection, eu.schema, ["acme"]))["acme"] == rotated[:1:-1]


async def test_a_secret_that_comes_back_signs_for_good_and_in_its_new_place(eu, wish):
    first = (await save(eu.connection, eu.schema, "acme", wish(), by="ann")).secret
    second = (await rotate_secret(eu.connection, eu.schema, "acme", by="ann")).secret
    await save(eu.connection, eu.schema, "acme", wish(secrets=[first.reveal()]), by="ann")
    assert (await secrets_of(eu.connection, eu.schema, ["acme"]))["acme"] == [first, second]
    assert await eu.values("SELECT retires_at IS NULL FROM {schema}.secret ORDER BY place") == [True, False]


async def test_rotating_the_secret_of_nobody_is_an_error(eu):
    with pytest.raises(UnknownSubscriber):
        await rotate_secret(eu.connection, eu.schema, "nobody", by="ann")


async def test_deleting_wipes_what_was_confidential_and_closes_the_destination(eu, wish):
    await save(eu.connection, eu.schema, "acme", wish(**EVERYTHING), by="ann")
    assert await delete(eu.connection, eu.schema, ["acme", "nobody"], by="bob") == ["acme"]
    assert await delete(eu.connection, eu.schema, ["acme"], by="bob") == []
    row = await eu.one("SELECT endpoint, headers::text, deleted_at IS NOT NULL FROM {schema}.subscriber")
    assert tuple(row) == ("", "{}", True)
    assert await eu.values("SELECT 1 FROM {schema}.secret") == []
    assert await eu.values("SELECT 1 FROM {schema}.subscription") == []
    gate = await eu.gate("acme")
    assert (gate["disabled_why"], gate["disabled_by"], gate["wake_at"]) == ("cancelled", "bob", None)
    assert [c.change["action"] for c in await changes_of(eu.connection, eu.schema, "acme")] == ["deleted", "created"]


async def test_a_deleted_id_comes_back_as_the_same_destination_with_an_open_gate_and_a_new_secret(eu, wish):
    old = await save(eu.connection, eu.schema, "acme", wish(concurrency=8), by="ann")
    before = await eu.one("SELECT id, created_at FROM {schema}.subscriber")
    await eu.run(
        "UPDATE {schema}.destination SET send_window = 1, probation = true, fail_streak = 9, hold_until = now() + '1 h'"
    )
    await delete(eu.connection, eu.schema, ["acme"], by="ann")
    new = await save(eu.connection, eu.schema, "acme", wish(concurrency=5), by="ann")
    after = await eu.one("SELECT id, created_at FROM {schema}.subscriber")
    assert new.change is Change.CREATED
    assert new.config_version > old.config_version
    assert (after["id"], after["created_at"] > before["created_at"]) == (before["id"], True)
    assert (await secrets_of(eu.connection, eu.schema, ["acme"]))["acme"] == [new.secret]
    gate = await eu.gate("acme")
    assert (gate["send_window"], gate["probation"], gate["fail_streak"]) == (5, False, 0)
    assert (gate["hold_until"], gate["disabled_at"], gate["disabled_why"]) == (None, None, None)


@pytest.mark.parametrize("state", ["waiting", "queued", "in_flight"])
async def test_a_deleted_id_comes_back_only_after_everything_from_before_has_ended(eu, wish, state):
    await apply_all(eu.connection, eu.schema, {"acme": wish(), "bank": wish()}, prune=False, by="ann")
    await delete(eu.connection, eu.schema, ["acme"], by="ann")
    await eu.run(f"UPDATE {{schema}}.destination SET {state} = 1")
    with pytest.raises(StillClosing, match="acme: deleted a moment ago"):
        await apply_all(eu.connection, eu.schema, {"acme": wish(), "bank": wish(concurrency=9)}, prune=False, by="ann")
    assert (await show(eu.connection, eu.schema, "eu", "bank")).config_version == 1
    await eu.run(f"UPDATE {{schema}}.destination SET {state} = 0")
    assert (await save(eu.connection, eu.schema, "acme", wish(), by="ann")).change is Change.CREATED


async def test_apply_creates_updates_and_with_prune_deletes(eu, wish):
    specs = {"new": wish(), "same": wish(), "other": wish(concurrency=9)}
    await apply_all(eu.connection, eu.schema, {"same": wish(), "other": wish(), "gone": wish()}, prune=False, by="ann")
    applied = await apply_all(eu.connection, eu.schema, specs, prune=False, by="ann")
    assert (applied.created, applied.updated, applied.unchanged, applied.deleted) == (["new"], ["other"], ["same"], [])
    assert (await secrets_of(eu.connection, eu.schema, ["new"]))["new"] == [applied.secrets["new"]]
    assert list(applied.secrets) == ["new"]
    applied = await apply_all(eu.connection, eu.schema, specs, prune=True, by="ann")
    assert (applied.created, applied.unchanged, applied.deleted) == ([], ["new", "other", "same"], ["gone"])
    applied = await apply_all(eu.connection, eu.schema, specs, prune=True, by="ann")
    assert (applied.updated, applied.deleted, applied.secrets) == ([], [], {})


async def test_pruning_with_nobody_named_deletes_everyone(eu, wish):
    await apply_all(eu.connection, eu.schema, {"a": wish(), "b": wish()}, prune=False, by="ann")
    assert (await apply_all(eu.connection, eu.schema, {}, prune=True, by="ann")).deleted == ["a", "b"]


async def test_apply_is_all_or_nothing(eu, wish):
    await eu.run("ALTER TABLE {schema}.subscriber ADD CHECK (subscriber_id <> 'z')")
    with pytest.raises(Exception, match="violates check constraint"):
        await apply_all(eu.connection, eu.schema, {"a": wish(), "z": wish()}, prune=False, by="ann")
    assert await list_subscribers(eu.connection, eu.schema, "eu") == []


async def test_ten_thousand_subscribers_are_applied_in_seconds_and_again_without_a_write(eu, wish):
    specs = {f"s{n:05}": wish(concurrency=1 + n % 9, labels={"n": [str(n)]}) for n in range(10_000)}
    async with asyncio.timeout(20):
        assert len((await apply_all(eu.connection, eu.schema, specs, prune=True, by="ann")).created) == 10_000
        before = await eu.one("SELECT pg_current_xact_id_if_assigned() AS own")
        async with eu.connection.transaction():
            assert len((await apply_all(eu.connection, eu.schema, specs, prune=True, by="ann")).unchanged) == 10_000
            written = await eu.one("SELECT pg_current_xact_id_if_assigned() AS own")
    assert (before["own"], written["own"]) == (None, None)


async def test_two_people_creating_the_same_subscriber_at_once_create_it_once(eu, wish):
    others = [await connect(eu.url, "test") for _ in range(4)]
    saved = await asyncio.gather(
        *(save(each, eu.schema, "acme", wish(concurrency=5), by=f"person {n}") for n, each in enumerate(others))
    )
    assert sorted(each.change for each in saved) == ["created", "unchanged", "unchanged", "unchanged"]
    for each in others:
        await each.close()


async def test_applying_crosses_with_settlements_without_a_deadlock(eu, wish):
    """Settlements lock destinations by id; an apply that updates some and prunes others has to lock in the same order."""
    names = [f"s{n}" for n in range(40)]
    await apply_all(eu.connection, eu.schema, dict.fromkeys(names, wish()), prune=False, by="ann")
    other = await connect(eu.url, "test")

    async def lock_like_a_settlement() -> None:
        for _ in range(60):
            await other.execute(eu.schema.sql(
                "DO $$ BEGIN PERFORM FROM {schema}.destination ORDER BY id FOR NO KEY UPDATE; "
                "UPDATE {schema}.destination SET last_success_at = now(); END $$"
            ))  # fmt: skip

    async def apply_back_and_forth() -> None:
        for n in range(30):
            kept = names[n % 2 :: 2]
            await apply_all(eu.connection, eu.schema, {k: wish(concurrency=1 + n) for k in kept}, prune=True, by="ann")

    await asyncio.gather(lock_like_a_settlement(), apply_back_and_forth())
    await other.close()


async def test_an_open_change_of_the_registry_stops_no_expansion_and_no_settlement(eu, wish):
    await eu.subscribe("acme")
    await eu.version(1)
    other = await connect(eu.url, "test")
    async with eu.connection.transaction():
        await save(eu.connection, eu.schema, "bank", wish(), by="ann")
        async with asyncio.timeout(5):
            await other.execute(
                eu.schema.sql("SELECT * FROM {schema}.expand(ARRAY[1], ARRAY['shipment.moved'], ARRAY['{}'], 10)")
            )
            await other.execute(eu.schema.sql(
                "WITH s AS (UPDATE {schema}.destination SET last_success_at = now() WHERE id = 1 RETURNING id) "
                "INSERT INTO {schema}.operator_event (kind, subscriber, detail) SELECT 'test', id, 'checks the key of a subscriber' FROM s"
            ))  # fmt: skip
    await other.close()


async def test_deleting_ends_open_deliveries_as_cancelled_and_then_the_id_may_come_back(eu, wish):
    await eu.subscribe("acme", "bank")
    for number, state in enumerate(["waiting", "queued", "delivered"], start=1):
        await eu.version(number)
        await eu.delivery(number, "acme", state)
        await eu.delivery(number, "bank", state)
    await delete(eu.connection, eu.schema, ["acme"], by="ann")
    with pytest.raises(StillClosing):
        await save(eu.connection, eu.schema, "acme", wish(), by="ann")
    assert await close_out(eu.connection, eu.schema, 100) == 2
    counters = (await show(eu.connection, eu.schema, "eu", "bank")).counters
    assert (counters.waiting, counters.queued, counters.dead) == (1, 1, 0)
    await save(eu.connection, eu.schema, "acme", wish(), by="ann")
    counters = (await show(eu.connection, eu.schema, "eu", "acme")).counters
    assert (counters.waiting, counters.queued, counters.dead, counters.delivered) == (0, 0, 2, 1)
    assert await eu.values("SELECT DISTINCT reason::text FROM {schema}.delivery WHERE state = 'dead'") == ["cancelled"]
