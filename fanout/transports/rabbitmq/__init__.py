"""The queue on RabbitMQ: a direct exchange, a durable quorum queue per region, a dead-letter queue beside it.

Built on plain aio-pika connections with a reconnection of our own (``link``): what is lost is opened again from scratch, so that
there is one way to start and the same way to recover.
"""

from fanout.transports.rabbitmq.consuming import RabbitConsuming
from fanout.transports.rabbitmq.publishing import NotConfirmed, RabbitPublishing
from fanout.transports.rabbitmq.removing import remove
from fanout.transports.rabbitmq.topology import Topology
from fanout.transports.transport import QueueRefused

__all__ = ["NotConfirmed", "QueueRefused", "RabbitConsuming", "RabbitPublishing", "Topology", "remove"]
