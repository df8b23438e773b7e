"""Dramatiq on RabbitMQ: persistent messages in a durable queue, confirmed, acknowledged after the actor has returned."""

import os
import sys
from pathlib import Path

import dramatiq
import job
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from over_urllib3 import pool, post

CONCURRENCY = 100

broker = RabbitmqBroker(url=os.environ["PEER_AMQP_URL"], confirm_delivery=True)
dramatiq.set_broker(broker)
client = pool(CONCURRENCY)


@dramatiq.actor(queue_name="dramatiq_peer")
def deliver(message: job.Message) -> None:
    post(client, message)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["fill", count, url]:
            for each in job.messages(int(count), url):
                deliver.send(each)
        case ["work", *_]:
            program = str(Path(sys.executable).with_name("dramatiq-gevent"))
            os.execv(program, (program, "on_dramatiq", "--processes", "1", "--threads", str(CONCURRENCY)))
