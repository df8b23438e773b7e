"""pgqueuer on PostgreSQL by asyncpg: a job is a row until it has returned, and its end is written down."""

import itertools
import json
import os
import sys

import asyncpg
import job
import uvloop
from over_aiohttp import post, session
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

CONCURRENCY = 200
BATCH = 100
AT_ONCE = 1_000


async def fill(count: int, url: str) -> None:
    async with asyncpg.create_pool(os.environ["PEER_DATABASE_URL"], min_size=1, max_size=2) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()
        messages = job.messages(count, url)
        while batch := [json.dumps(each).encode() for each in itertools.islice(messages, AT_ONCE)]:
            await queries.enqueue(["deliver"] * len(batch), batch, [0] * len(batch))


async def work() -> None:
    async with (
        session(CONCURRENCY) as client,
        asyncpg.create_pool(os.environ["PEER_DATABASE_URL"], min_size=4, max_size=8) as pool,
    ):
        queuer = PgQueuer(AsyncpgPoolDriver(pool))

        @queuer.entrypoint("deliver")
        async def deliver(one: Job) -> None:
            assert one.payload is not None
            await post(client, json.loads(one.payload))

        await queuer.run(batch_size=BATCH, max_concurrent_tasks=CONCURRENCY)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["fill", count, url]:
            uvloop.run(fill(int(count), url))
        case ["work", *_]:
            uvloop.run(work())
