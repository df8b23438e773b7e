"""Taking away what was declared for a while: a demo leaves nothing behind."""

import asyncio
from collections.abc import Sequence

from aio_pika import connect

from fanout.transports.rabbitmq.link import LOST
from fanout.transports.rabbitmq.refusals import trouble_of
from fanout.transports.rabbitmq.topology import Topology
from fanout.transports.transport import QueueUnavailable

REMOVE_SECONDS = 5.0


async def remove(url: str, topologies: Sequence[Topology]) -> None:
    """Deletes queues, with what is in them, and exchanges; what is not there is no trouble. Raises ``QueueUnavailable``."""
    try:
        async with asyncio.timeout(REMOVE_SECONDS):
            async with await connect(url) as connection:
                channel = await connection.channel()
                for topology in topologies:
                    for queue in (topology.queue, topology.dead_queue):
                        await channel.queue_delete(queue)
                    await channel.exchange_delete(topology.exchange)
    except LOST as error:  # a timeout is among them
        raise QueueUnavailable(trouble_of(error, url)) from error
