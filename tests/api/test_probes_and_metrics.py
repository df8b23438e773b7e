"""Probes say whether to restart us, whether to send us work, and what we have done."""

import asyncio
from dataclasses import dataclass, field, replace

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from served import Served, problem_of, serving, settings_for

from fanout.api.app import check_binding
from fanout.api.probes import create_probes
from fanout.settings import SettingsError
from fanout.telemetry.metrics import FIGURES, Figures


def figures_in(text: str) -> dict[tuple[str, ...], float]:
    """By name and the values of its labels, in alphabetical order."""
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_the_api_is_up_and_ready(api: Served):
    assert (await api.get("/healthz")).json() == {"status": "ok", "role": "api"}
    ready = await api.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["checks"] == {"home": {"ok": True}, "region eu": {"ok": True}, "region us": {"ok": True}}


async def test_figures_follow_the_ledger(api: Served):
    await api.subscribe()
    await api.put()
    await api.put()
    pending = figures_in((await api.get("/metrics")).text)
    assert pending["fanout_outbox_pending", "eu"] == 1
    assert pending["fanout_published_total", "accepted"] == pending["fanout_published_total", "duplicate"] == 1
    assert pending["fanout_http_responses_total", "202"] == 1
    await api.expand()
    answer = await api.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    now = figures_in(answer.text)
    assert now["fanout_outbox_pending", "eu"] == 0
    assert now["fanout_deliveries", "eu", "waiting"] == 1
    assert now["fanout_deliveries", "us", "waiting"] == 0
    assert now["fanout_deliveries_accepted_total", "eu"] == 1
    assert now["fanout_up", "home"] == now["fanout_up", "region eu"] == 1
    assert now["fanout_oldest_due_age_seconds", "eu"] > 0
    assert now["process_resident_memory_bytes",] > 0
    assert "acme" not in answer.text


def test_no_figure_has_a_label_without_a_bound():
    labels = {label for figure in FIGURES.values() for label in figure.labels}
    assert labels == {"region", "state", "outcome", "service", "status", "verdict"}


@dataclass
class Consumed:
    outcomes: dict[str, int] = field(default_factory=dict)
    claims: int = 7
    settlements: int = 0
    late: int = 0
    released: int = 0
    in_flight_peak: int = 0


async def test_a_role_shows_its_own_counts_and_is_ready_where_its_checks_pass(api: Served):
    counted = Consumed()
    figures = Figures()
    figures.add_consumer("eu", lambda: counted)
    figures.add_scheduler("eu", lambda: None)
    trouble: list[Exception] = []

    async def ledger() -> None:
        if trouble:
            raise trouble[0]

    transport = httpx2.ASGITransport(create_probes("consumer eu", {"ledger": ledger}, figures))
    async with httpx2.AsyncClient(transport=transport, base_url="http://probes") as probes:
        assert (await probes.get("/healthz")).json()["role"] == "consumer eu"
        assert (await probes.get("/readyz")).json() == {
            "ready": True, "role": "consumer eu", "checks": {"ledger": {"ok": True}},
        }  # fmt: skip
        counted.outcomes["throttled"] = 3
        now = figures_in((await probes.get("/metrics")).text)
        assert now["fanout_attempts_total", "eu", "throttled"] == 3
        assert now["fanout_claims_total", "eu"] == 7
        assert ("fanout_promotions_total", "eu") not in now, "the scheduler has not begun"
        trouble.append(ConnectionRefusedError("no ledger"))
        away = await probes.get("/readyz")
        assert away.status_code == 503
        assert "no ledger" in away.json()["checks"]["ledger"]["why"]
        assert (await probes.get("/healthz")).status_code == 200
        problem_of(await probes.get("/v1/regions"), 404)


async def test_a_check_that_hangs_is_a_check_that_fails(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fanout.api.probes.CHECK_SECONDS", 0.05)

    async def hangs() -> None:
        await asyncio.Event().wait()

    transport = httpx2.ASGITransport(create_probes("scheduler us", {"ledger": hangs}, Figures()))
    async with httpx2.AsyncClient(transport=transport, base_url="http://probes") as probes:
        answer = await probes.get("/readyz")
        assert (answer.status_code, answer.json()["ready"]) == (503, False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "api.example.com"])
def test_without_keys_only_this_machine_may_reach_the_api(host: str):
    settings = settings_for("postgresql://u@127.0.0.1/d", FANOUT_HTTP_HOST=host)
    with pytest.raises(SettingsError, match=r"http\.host: there are no API keys"):
        check_binding(settings)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_is_fine(host: str):
    check_binding(settings_for("postgresql://u@127.0.0.1/d", FANOUT_HTTP_HOST=host))


async def test_a_home_that_was_never_migrated_is_not_ready_and_publishes_nothing(database_url: str):
    async with serving(settings_for(database_url)) as api:
        ready = await api.get("/readyz")
        assert ready.status_code == 503
        assert "migrated" in ready.json()["checks"]["home"]["why"]
        problem_of(await api.put(), 503)
        assert (await api.get("/healthz")).status_code == 200


async def test_a_region_that_home_does_not_know_yet_stops_publishing(ready_url: str):
    with_third = settings_for(ready_url)
    regions = dict(with_third.regions)
    regions["ap"] = replace(regions["us"], name="ap")
    async with serving(replace(with_third, regions=regions)) as api:
        problem_of(await api.put(), 503)
        assert await api.rows("SELECT * FROM {schema}.version") == []
        assert "fanout migrate" in (await api.get("/readyz")).json()["checks"]["home"]["why"]
