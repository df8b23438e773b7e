"""Regions: the books of P1 as ``fanout status --json`` shows them, and the same figures for Prometheus."""

import asyncio

from fanout.api.answers import Answer, document
from fanout.api.call import Call
from fanout.api.places import Away, Place, Places
from fanout.home.inspection import outbox_figures
from fanout.ledger.books import region_figures
from fanout.model.states import State
from fanout.reconciliation import RegionBook, compare, status_document
from fanout.telemetry.metrics import Reading


class Regions:
    def __init__(self, places: Places) -> None:
        self._places = places
        self._home = places.home
        self._agreed_up_to = dict.fromkeys(places.regions, 0)
        """By region, the version number below which the two books were seen to agree. What agreed once stays so."""
        self._turn = asyncio.Lock()

    async def get(self, call: Call) -> Answer:
        """A region that is away makes ``balanced`` null, and its own figures; home's away is 503."""
        call.query()
        async with self._turn:  # a comparison reads many rows: callers who come together read them one after the other
            books = await asyncio.gather(*map(self._book, self._places.regions.values()))
        return document(200, status_document(books))

    async def _book(self, place: Place) -> RegionBook:
        since = self._agreed_up_to[place.region]
        try:
            book = await compare(
                self._home.connections,
                self._home.schema,
                place.region,
                place.connections,
                place.schema,
                since=since,
            )
        except Away as away:
            if away.place == self._home.name:
                raise
            outbox = await outbox_figures(self._home.connections, self._home.schema, place.region)
            return RegionBook(place.region, outbox, None, away.why)
        if not book.disagreements and book.figures is not None:
            self._agreed_up_to[place.region] = max(since, book.watch_from)
        return book

    # ---- for operators' machines

    async def readings(self) -> list[Reading]:
        """Of every database that answers in time. Costs a look per version and destination, and none per delivery."""
        answers = await asyncio.gather(
            *(self._outbox(place) for place in self._places.regions.values()),
            *(self._figures(place) for place in self._places.regions.values()),
        )
        home = all(answers[: len(self._places.regions)])
        return [Reading("fanout_up", float(home), ("home",)), *(each for answer in answers for each in answer)]

    async def _outbox(self, place: Place) -> list[Reading]:
        try:
            outbox = await outbox_figures(self._home.connections, self._home.schema, place.region)
        except Away:
            return []
        age = outbox.oldest_pending_age_seconds
        return [
            Reading("fanout_outbox_pending", outbox.pending, (place.region,)),
            Reading("fanout_outbox_oldest_age_seconds", age, (place.region,)),
        ]

    async def _figures(self, place: Place) -> list[Reading]:
        region = (place.region,)
        try:
            figures = await region_figures(place.connections, place.schema)
        except Away:
            return [Reading("fanout_up", 0, (place.name,))]
        return [
            Reading("fanout_up", 1, (place.name,)),
            Reading("fanout_oldest_due_age_seconds", figures.oldest_due_age_seconds, region),
            Reading("fanout_oldest_ready_age_seconds", figures.oldest_ready_age_seconds, region),
            Reading("fanout_queue_age_seconds", figures.queue_age_seconds, region),
            Reading("fanout_deliveries", {state.value: getattr(figures, state.value) for state in State}, region),
            Reading("fanout_deliveries_accepted", figures.accepted, region),
            Reading("fanout_held_destinations", figures.held_destinations, region),
            Reading("fanout_unknown_attempts", figures.unknown_attempts, region),
            Reading("fanout_late_results", figures.late_results, region),
        ]
