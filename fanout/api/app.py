"""The API as one ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.routing import Router
from starlette.types import ASGIApp

from fanout.api.deliveries import Deliveries
from fanout.api.operating import Operating
from fanout.api.paths import Line, Paths
from fanout.api.places import Places
from fanout.api.probes import Probes
from fanout.api.regions import Regions
from fanout.api.subscribers import Subscribers
from fanout.api.versions import Versions
from fanout.settings import Settings, SettingsError, is_loopback
from fanout.telemetry.metrics import Figures


def check_binding(settings: Settings) -> None:
    """Without keys, whoever reaches the port may do everything: so only this machine may. Raises SettingsError."""
    if not is_loopback(settings.http.host):
        raise SettingsError.field(
            "http.host",
            f"there are no API keys, and {settings.http.host} can be reached from other machines",
            "set FANOUT_HTTP_HOST=127.0.0.1",
        )


def create_app(settings: Settings, figures: Figures | None = None) -> ASGIApp:
    """The application, with its connections opened by its lifespan and when they are first needed.

    Raises SettingsError where a database is not known. Starts, and answers 503, while home is away. ``figures``: of a process that
    has more roles than this one, to be shown at ``/metrics`` with the api's own.
    """
    places = Places(settings)
    figures = figures or Figures()
    regions = Regions(places)
    versions = Versions(places, settings.residency)
    probes = Probes(
        "api",
        {"home": places.check_home},
        figures,
        shown={place.name: place.check for place in places.regions.values()},
        ask=regions.readings,
    )
    paths = Paths([*probes.lines(), *_calls(places, settings, versions, regions)])
    figures.add("fanout_http_responses", lambda: paths.answered)
    figures.add("fanout_published", lambda: versions.published)

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await places.close()

    return Router(default=paths, redirect_slashes=False, lifespan=lifespan)


def _calls(places: Places, settings: Settings, versions: Versions, regions: Regions) -> list[Line]:
    subscribers = Subscribers(places, settings.subscriber_rules())
    operating = Operating(places)
    deliveries = Deliveries(places)
    version, subscriber = "/v1/shipments/{shipment_id}/versions/{version}", "/v1/subscribers/{subscriber_id}"
    return [
        ("PUT", version, versions.put),
        ("GET", version, versions.get),
        ("GET", "/v1/subscribers", subscribers.page),
        ("PUT", subscriber, subscribers.put),
        ("GET", subscriber, subscribers.get),
        ("PATCH", subscriber, subscribers.patch),
        ("DELETE", subscriber, subscribers.delete),
        ("POST", f"{subscriber}/pause", operating.pause),
        ("POST", f"{subscriber}/resume", operating.resume),
        ("POST", f"{subscriber}/disable", operating.disable),
        ("POST", f"{subscriber}/enable", operating.enable),
        ("POST", f"{subscriber}/rotate-secret", operating.rotate_secret),
        ("GET", "/v1/deliveries", deliveries.page),
        ("GET", "/v1/deliveries/{key}", deliveries.get),
        ("GET", "/v1/regions", regions.get),
    ]
