"""arq on Redis: a job is removed after it has returned. Its own promise is that a job may run again, never that it is lost."""

import asyncio
import logging
import os
import sys
from typing import Any

import job
import uvloop
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker
from over_aiohttp import post, session

CONCURRENCY = 100
AT_ONCE = 200

redis = RedisSettings.from_dsn(os.environ["PEER_REDIS_URL"])


async def deliver(ctx: dict[str, Any], message: job.Message) -> None:
    await post(ctx["client"], message)


async def startup(ctx: dict[str, Any]) -> None:
    ctx["client"] = session(CONCURRENCY)


async def fill(count: int, url: str) -> None:
    pool = await create_pool(redis)
    pending: set[asyncio.Task[Any]] = set()
    for message in job.messages(count, url):
        pending.add(asyncio.create_task(pool.enqueue_job("deliver", message, _job_id=message["key"])))
        if len(pending) == AT_ONCE:
            await asyncio.gather(*pending)
            pending.clear()
    await asyncio.gather(*pending)


async def work() -> None:
    await Worker(
        [deliver],
        redis_settings=redis,
        on_startup=startup,
        max_jobs=CONCURRENCY,
        poll_delay=0.02,
        keep_result=0,
        log_results=False,
    ).async_run()


if __name__ == "__main__":
    logging.disable(logging.INFO)
    match sys.argv[1:]:
        case ["fill", count, url]:
            uvloop.run(fill(int(count), url))
        case ["work", *_]:
            uvloop.run(work())
