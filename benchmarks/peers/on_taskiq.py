"""taskiq on RabbitMQ by aio-pika: persistent messages in a durable queue, acknowledged when the task was executed."""

import asyncio
import os
import sys

import aiohttp
import job
from over_aiohttp import post, session
from taskiq import TaskiqEvents, TaskiqState
from taskiq_aio_pika import AioPikaBroker, Exchange, Queue

CONCURRENCY = 100
PREFETCH = 200
AT_ONCE = 200

broker = AioPikaBroker(
    os.environ["PEER_AMQP_URL"],
    qos=PREFETCH,
    exchange=Exchange(name="taskiq_peer"),
    task_queues=[Queue(name="taskiq_peer", durable=True)],
)


@broker.on_event(TaskiqEvents.WORKER_STARTUP)
async def startup(state: TaskiqState) -> None:
    state.client = session(CONCURRENCY)


@broker.task(task_name="deliver")
async def deliver(message: dict[str, str]) -> None:
    client: aiohttp.ClientSession = broker.state.client
    await post(client, message)


async def fill(count: int, url: str) -> None:
    await broker.startup()
    pending = []
    for message in job.messages(count, url):
        pending.append(deliver.kiq(message))
        if len(pending) == AT_ONCE:
            await asyncio.gather(*pending)
            pending.clear()
    await asyncio.gather(*pending)
    await broker.shutdown()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["fill", count, url]:
            asyncio.run(fill(int(count), url))
        case ["work", *_]:
            how = ("--workers", "1", "--max-async-tasks", str(CONCURRENCY), "--max-prefetch", str(PREFETCH))
            what = ("--ack-type", "when_executed", "--no-parse", "--log-level", "ERROR")
            os.execv(sys.executable, (sys.executable, "-m", "taskiq", "worker", "on_taskiq:broker", *how, *what))
