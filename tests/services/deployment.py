"""A deployment of real processes around one region, with a receiver in the test's own process."""

from fanout.home.publishing import Receipt, publish_many
from fanout.model.shipment import ShipmentVersion
from fanout.receiver import ReceiverServer
from services.region import Region
from services.roles import Role, Roles
from services.waiting import eventually

QUICK = {
    "FANOUT_ALLOW_NETWORKS": "127.0.0.0/8",
    "FANOUT_HTTP_PORT": "0",
    "FANOUT__DELIVERY__BACKOFF_FIRST_SECONDS": "0.2",
    "FANOUT__DELIVERY__BACKOFF_CAP_SECONDS": "1",
    "FANOUT__DELIVERY__LEASE_MARGIN_SECONDS": "5",
}


class Deployment:
    """Region ``eu`` in a database, our roles as processes, and what a test needs to look at both ends."""

    def __init__(self, region: Region, roles: Roles, receiver: ReceiverServer) -> None:
        self.region = region
        self.receiver = receiver
        self._roles = roles
        self.environment = roles.environment
        self.environment |= QUICK | {"FANOUT_DATABASE_URL": region.url}

    async def subscriber(self, subscriber_id: str, **options) -> int:
        return await self.region.subscriber(subscriber_id, endpoint=self.receiver.endpoint(subscriber_id), **options)

    def start(self, *names: str, **environment: str) -> list[Role]:
        """``publisher``, ``scheduler``, ``consumer``: by default one of each."""
        regional = {"scheduler", "consumer"}
        return [
            self._roles.start(name, *(["eu"] if name in regional else []), env=environment)
            for name in names or ("publisher", "scheduler", "consumer")
        ]

    async def publish(self, *versions: ShipmentVersion) -> list[Receipt]:
        return await publish_many(self.region.connection, versions)

    async def delivered(self, count: int, deadline: float = 30) -> None:
        """Until the ledger says that so many are delivered."""

        async def enough() -> bool:
            return await self.region.value("SELECT sum(delivered) FROM {schema}.destination") == count

        await eventually(enough, deadline, f"{count} deliveries")

    async def settled(self, deadline: float = 60) -> dict[str, int]:
        """Until nothing is open and the outbox is empty; the sums of the counters."""

        async def over() -> bool:
            pending = await self.region.value("SELECT count(*) FROM fanout.outbox WHERE NOT done AND region = 'eu'")
            return pending == 0 and await self.region.value(
                "SELECT sum(waiting + queued + in_flight) = 0 FROM {schema}.destination"
            )

        await eventually(over, deadline, "nothing open")
        [row] = await self.region.rows(
            "SELECT sum(delivered)::int AS delivered, sum(dead)::int AS dead, sum(late_results)::int AS late, "
            "sum(unknown_attempts)::int AS unknown, (SELECT sum(created)::int FROM {schema}.expansion) AS accepted "
            "FROM {schema}.destination"
        )
        return dict(row)

    async def attempts(self) -> list[tuple[int, str]]:
        rows = await self.region.rows("SELECT n, outcome FROM {schema}.attempt ORDER BY delivery_id, n")
        return [(row["n"], row["outcome"]) for row in rows]

    def keys(self) -> list[str]:
        return [request.header("Idempotency-Key") for request in self.receiver.received]


def versions(count: int, payload: bytes = b'{"status":"booked"}') -> list[ShipmentVersion]:
    return [ShipmentVersion(f"s-{n}", 1, "shipment.booked", payload, "application/json") for n in range(count)]
