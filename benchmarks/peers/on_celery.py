"""Celery on RabbitMQ: persistent messages in a durable queue, confirmed; acks_late, so a message goes after its POST was answered."""

import os
import sys

import job
from celery import Celery
from over_urllib3 import pool, post

CONCURRENCY = 100

app = Celery("on_celery", broker=os.environ["PEER_AMQP_URL"])
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    task_default_queue="celery_peer",
    broker_transport_options={"confirm_publish": True},
    worker_prefetch_multiplier=4,
    worker_hijack_root_logger=False,
)
client = pool(CONCURRENCY)


@app.task(name="deliver")
def deliver(message: job.Message) -> None:
    post(client, message)


def fill(count: int, url: str) -> None:
    with app.producer_pool.acquire(block=True) as producer:
        for message in job.messages(count, url):
            deliver.apply_async((message,), producer=producer)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["fill", count, url]:
            fill(int(count), url)
        case ["work", *_]:
            quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR")
            command = (
                "-m",
                "celery",
                "-A",
                "on_celery",
                "worker",
                "--pool=gevent",
                f"--concurrency={CONCURRENCY}",
                *quiet,
            )
            os.execv(sys.executable, (sys.executable, *command))
