"""FastStream on RabbitMQ by aio-pika: persistent messages in a durable queue, acknowledged after the handler has returned."""

import asyncio
import logging
import os
import sys

import job
import uvloop
from faststream import AckPolicy, FastStream
from faststream.rabbit import Channel, RabbitBroker, RabbitQueue
from over_aiohttp import post, session

CONCURRENCY = 100
AT_ONCE = 200

broker = RabbitBroker(os.environ["PEER_AMQP_URL"], default_channel=Channel(prefetch_count=CONCURRENCY), logger=None)
queue = RabbitQueue("faststream_peer", durable=True)


async def fill(count: int, url: str) -> None:
    await broker.connect()
    await broker.declare_queue(queue)
    pending = []
    for message in job.messages(count, url):
        pending.append(broker.publish(message, queue=queue, persist=True))
        if len(pending) == AT_ONCE:
            await asyncio.gather(*pending)
            pending.clear()
    await asyncio.gather(*pending)
    await broker.stop()


async def work() -> None:
    async with session(CONCURRENCY) as client:

        @broker.subscriber(queue, ack_policy=AckPolicy.NACK_ON_ERROR)
        async def deliver(message: dict[str, str]) -> None:
            await post(client, message)

        await FastStream(broker, logger=None).run(log_level=logging.ERROR)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["fill", count, url]:
            uvloop.run(fill(int(count), url))
        case ["work", *_]:
            uvloop.run(work())
