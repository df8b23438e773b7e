"""One region's broker under examination, by what AMQP itself can tell: no management interface is asked.

It does not tell bindings, policies, which alarm is on, nor how much memory and disk are left: `rabbitmq-diagnostics` does.
"""

import asyncio
import re
import secrets

from aio_pika import ExchangeType, Message
from aio_pika.abc import AbstractExchange

from fanout.cli.examining import Check
from fanout.settings import RegionSettings, redact_url
from fanout.transports.rabbitmq import Topology
from fanout.transports.rabbitmq.link import LOST, Link, Session, guarded, within
from fanout.transports.rabbitmq.refusals import is_forbidden, is_missing
from fanout.transports.transport import QueueRefused, QueueUnavailable

VERSION_MIN = (3, 10)
"""Older ones are not tested."""
ANSWER_SECONDS = 5.0
BLOCKED_SECONDS = 0.5
"""A broker whose alarm is on says so at the first message, beside its confirmation."""
_NOT_YET = "not there yet: the region's first scheduler or consumer makes it"


async def examine_broker(region: RegionSettings, exchange: str) -> list[Check]:
    """Never raises for what a broker does. Changes nothing there; one message that no queue gets shows whether it takes any."""
    link = Link(region.broker_url, "fanout doctor", _nothing)
    what = f"{region.name}: broker"
    checks: list[Check] = []
    try:
        session = await link.opened()
        checks.append(_version(what, region, session.server_version))
        await _look(link, session, region.name, Topology(exchange, region.queue, region.declare), checks)
    except (QueueUnavailable, QueueRefused, *LOST) as error:
        checks.append(_cannot(what, region, link.refusal_of(error) or error))
    finally:
        await link.close()
    return checks


async def _nothing(_session: Session) -> None:
    pass


def _version(what: str, region: RegionSettings, text: str) -> Check:
    found = f"{redact_url(region.broker_url)}, RabbitMQ {text or 'of an unknown version'}"
    numbers = tuple(map(int, re.findall(r"\d+", text)[:2]))
    old = bool(numbers) and numbers < VERSION_MIN
    return Check(what, found, f"use RabbitMQ {'.'.join(map(str, VERSION_MIN))} or newer" if old else "")


def _cannot(what: str, region: RegionSettings, error: BaseException) -> Check:
    if isinstance(error, QueueRefused):
        sentence, _, mend = str(error).partition("; ")
        return Check(what, sentence, mend)
    setting = f"regions.{region.name}.amqp_url (or FANOUT_AMQP_URL)"
    where = redact_url(region.broker_url)
    return Check(what, f"{where} cannot be used: {error}", f"see whether it runs, or correct {setting}")


async def _look(link: Link, session: Session, region: str, topology: Topology, checks: list[Check]) -> None:
    exchange: AbstractExchange | None = None
    for kind, name, arguments in (
        ("exchange", topology.exchange, {}),
        ("queue", topology.queue, topology.queue_arguments),
        ("queue", topology.dead_queue, topology.dead_queue_arguments),
    ):
        what = f"{region}: {kind} {name}"
        try:
            found = await _there(session, kind, name)
            # What is there is declared once more: that changes nothing, and is refused where it is not as we need it.
            channel = await session.open_channel(passing=True)
            if kind == "exchange":
                exchange = await guarded(channel.declare_exchange(name, ExchangeType.DIRECT, durable=True))
            else:
                await guarded(channel.declare_queue(name, durable=True, arguments=arguments))
        except LOST as error:
            if is_missing(error) and not topology.declare:
                mend = f"let an administrator of the broker run {topology.how_to_make(session.vhost)}"
                checks.append(Check(what, "not there, and we are told not to declare it", mend))
            else:
                checks.append(_not_as_needed(link, what, error))
        else:
            checks.append(Check(what, found))
    checks.append(await _takes_messages(session, f"{region}: broker's alarms", exchange))


async def _there(session: Session, kind: str, name: str) -> str:
    channel = await session.open_channel(passing=True)
    if kind == "exchange":
        await guarded(channel.declare_exchange(name, ExchangeType.DIRECT, passive=True))
        return "as it has to be"
    counts = (await guarded(channel.declare_queue(name, passive=True))).declaration_result
    return f"as it has to be; {counts.message_count} messages ready, {counts.consumer_count} consumers"


def _not_as_needed(link: Link, what: str, error: BaseException) -> Check:
    if is_missing(error):
        return Check(what, _NOT_YET)
    if is_forbidden(error):
        return Check(what, "not compared: this user may not declare it")
    refusal = link.refusal_of(error)
    if refusal is None:
        raise error
    sentence, _, mend = str(refusal).partition("; ")
    return Check(what, sentence, mend)


async def _takes_messages(session: Session, what: str, exchange: AbstractExchange | None) -> Check:
    if exchange is None:
        return Check(what, "not tried: there is no exchange to send to")
    nowhere = f"doctor.{secrets.token_hex(8)}"
    try:
        await within(ANSWER_SECONDS, exchange.publish(Message(b""), nowhere, mandatory=False))
    except TimeoutError:
        pass  # a blocked one need not confirm
    except LOST as error:
        if not is_forbidden(error):
            raise
        return Check(what, "not tried: this user may not publish")
    deadline = asyncio.get_running_loop().time() + BLOCKED_SECONDS
    while asyncio.get_running_loop().time() < deadline:
        if await session.is_blocked():
            mend = "free memory or disk there (`rabbitmq-diagnostics alarms` says which); deliveries wait, and none is lost"
            return Check(what, "one is on: the broker takes no messages", mend)
        await asyncio.sleep(BLOCKED_SECONDS / 10)
    return Check(what, "none is on: it takes messages")
