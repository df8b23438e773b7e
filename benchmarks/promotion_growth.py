"""How the cost of one promotion step grows with the backlog: time and pages touched.

python -m benchmarks.promotion_growth --quick
"""

import argparse
import statistics
import time

from benchmarks.scenario import Document, Scenario, Size, tell
from fanout.embedded import EmbeddedPostgres
from services.plans import watching
from services.region import Region

DESTINATIONS = 200
STEPS = 15
SEED = """
INSERT INTO {schema}.delivery (version_no, shipment_no, version, destination_id, state, eligible_at, aged_from)
SELECT n, n, 1, CASE WHEN $3 AND n % 10 < 9 THEN 1 ELSE 1 + n / 10 % $4 END, 'waiting', now() - interval '1 hour', now()
FROM generate_series($1::int, $2::int) AS n
"""


async def seed(region: Region, first: int, last: int, *, skewed: bool) -> None:
    await region.execute(SEED, first, last, skewed, DESTINATIONS)
    await region.execute(
        "UPDATE {schema}.destination d SET waiting = (SELECT count(*) FROM {schema}.delivery y WHERE y.destination_id = d.id), wake_at = now()"
    )
    await region.connection.execute(region.schema.sql("VACUUM (ANALYZE) {schema}.delivery"))
    await region.connection.execute(region.schema.sql("VACUUM (ANALYZE) {schema}.destination"))


async def step(region: Region) -> Document:
    """Median of some steps, each rolled back."""
    durations, found = [], 0
    for _ in range(STEPS):
        transaction = region.connection.transaction()
        await transaction.start()
        started = time.perf_counter()
        found = len(await region.promote())
        durations.append((time.perf_counter() - started) * 1000)
        await transaction.rollback()
        await region.connection.execute(region.schema.sql("VACUUM {schema}.delivery"))
    transaction = region.connection.transaction()
    await transaction.start()
    async with watching(region.connection) as watched:
        await region.promote()
    await transaction.rollback()
    return {"found": found, "ms": statistics.median(durations), "pages": watched.buffers}


async def measure(chosen: argparse.Namespace) -> Document:
    runs = []
    async with EmbeddedPostgres() as server:
        for skewed in (False, True):
            url = await server.create_database(f"growth_{'skewed' if skewed else 'even'}")
            region = await Region.open(url, watched=False)
            for number in range(DESTINATIONS):
                await region.subscriber(f"d-{number}", concurrency=5)
            upto = 0
            for size in map(int, chosen.rows.split(",")):
                await seed(region, upto + 1, size, skewed=skewed)
                upto = size
                runs.append({"skewed": skewed, "waiting": size} | await step(region))
                tell(f"{size:,} waiting, {'skewed' if skewed else 'even'}: {runs[-1]['ms']:.2f} ms")
            await region.connection.close()
    return {"runs": runs}


def table(document: Document) -> str:
    lines = ["| destinations | waiting | rows found | median ms per step | pages touched |", "|---|---|---|---|---|"]
    for run in document["runs"]:
        name = f"{DESTINATIONS}, one with 90 %" if run["skewed"] else f"{DESTINATIONS}, even"
        lines.append(f"| {name} | {run['waiting']:,} | {run['found']} | {run['ms']:.2f} | {run['pages']:,} |")
    return "\n".join(lines)


SCENARIO = Scenario(
    "promotion_growth",
    "One promotion step",
    "A step of 64 destinations in a ledger with 200, rolled back each time, at each size in the same run.",
    {"rows": Size("10000,100000", "10000,100000,1000000", "how many wait")},
    measure,
    table,
)

if __name__ == "__main__":
    SCENARIO.main()
