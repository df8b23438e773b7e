"""A bare loop over a list in memory: nothing is durable, nothing is retried. What the HTTP client alone can do."""

import asyncio
import sys
from collections.abc import Iterator

import job
import uvloop
from over_aiohttp import post, session

CONCURRENCY = 100


async def work(count: int, url: str) -> None:
    left = iter(list(job.messages(count, url)))
    async with session(CONCURRENCY) as client:

        async def one(messages: Iterator[job.Message]) -> None:
            for message in messages:
                await post(client, message)

        await asyncio.gather(*(one(left) for _ in range(CONCURRENCY)))
    await asyncio.Event().wait()  # until it is ended: its CPU is read while it lives


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", count, url]:
            uvloop.run(work(int(count), url))
