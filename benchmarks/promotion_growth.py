"""How the cost of one promotion step grows with the backlog: time and pages touched, and the plan it runs.

    python benchmarks/promotion_growth.py [--rows 10000,100000,1000000] [--plan]

Seeds a ledger of its own in an embedded PostgreSQL with 200 destinations, and measures steps of 64 destinations, each rolled back, at
each size in the same run. Prints a Markdown table.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
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


async def measure(region: Region) -> tuple[float, int, int, list[dict]]:
    """Median milliseconds, rows found, pages touched, plans."""
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
    return statistics.median(durations), found, watched.buffers, watched.plans


async def run(sizes: list[int], *, show_plan: bool) -> None:
    async with EmbeddedPostgres() as server:
        print("| destinations | waiting | rows found | median ms per step | pages touched |")
        print("|---|---|---|---|---|")
        for skewed in (False, True):
            url = await server.create_database(f"growth_{'skewed' if skewed else 'even'}")
            region = await Region.open(url, watched=False)
            for number in range(DESTINATIONS):
                await region.subscriber(f"d-{number}", concurrency=5)
            upto = 0
            plans: list[dict] = []
            for size in sizes:
                await seed(region, upto + 1, size, skewed=skewed)
                upto = size
                milliseconds, found, pages, plans = await measure(region)
                name = f"{DESTINATIONS}, one with 90 %" if skewed else f"{DESTINATIONS}, even"
                print(f"| {name} | {size:,} | {found} | {milliseconds:.2f} | {pages:,} |", flush=True)
            if show_plan and skewed:
                print(json.dumps(plans[-2:], indent=1))
            await region.connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="10000,100000,1000000")
    parser.add_argument("--plan", action="store_true", help="print the plan of the last step")
    arguments = parser.parse_args()
    asyncio.run(run([int(each) for each in arguments.rows.split(",")], show_plan=arguments.plan))


if __name__ == "__main__":
    main()
