"""The tables of ``config/fanout.toml`` with their limits and defaults: what a person may write, before anything is derived.

``None`` stands for "derived": see ``fanout.settings.resolved``.
"""

import re
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, model_validator

from fanout.model.subscriber import CONCURRENCY_MAX, TIMEOUT_SECONDS_MAX
from fanout.settings.urls import has_scheme

Network = IPv4Network | IPv6Network

_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
_SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
_QUEUE = re.compile(r"(?!amq\.)[\x21-\x7e]{1,255}")
_HOST = re.compile(r"[\x21-\x7e]{1,253}")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("has to be 1 to 31 characters of a-z 0-9 _ and begin with a letter")
    return text


def _schema(text: str) -> str:
    if not _SCHEMA.fullmatch(text):
        raise ValueError("has to be 1 to 63 characters of a-z 0-9 _, not begin with a digit, and not with pg_")
    return text


def _queue(text: str) -> str:
    if not _QUEUE.fullmatch(text):
        raise ValueError("has to be 1 to 255 printable ASCII characters without blanks, and not begin with amq.")
    return text


def _host(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise ValueError("has to be an address or a host name to listen on, as 127.0.0.1")
    return text


def check_database_url(text: str) -> str:
    if not has_scheme(text, "postgresql", "postgres"):
        raise ValueError("has to be as postgresql://USER:PASSWORD@HOST:5432/DATABASE")
    return text


def check_amqp_url(text: str) -> str:
    if not has_scheme(text, "amqp", "amqps"):
        raise ValueError("has to be as amqp://USER:PASSWORD@HOST:5672/VIRTUAL_HOST")
    return text


def _networks(value: object) -> tuple[Network, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise ValueError("has to be a list of networks, as 10.1.0.0/16")
    try:
        return tuple(ip_network(each) for each in value)
    except ValueError as error:
        raise ValueError(f"has to be a list of networks, as 10.1.0.0/16: {error}") from None


def _region_names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value or not all(isinstance(each, str) for each in value):
        raise ValueError("has to be a list of one or more regions")
    return tuple(dict.fromkeys(value))


Name = Annotated[str, AfterValidator(_name)]
DatabaseUrl = Annotated[str, AfterValidator(check_database_url)]
AmqpUrl = Annotated[str, AfterValidator(check_amqp_url)]
Networks = Annotated[tuple[Network, ...], PlainValidator(_networks)]
RegionNames = Annotated[tuple[str, ...], PlainValidator(_region_names)]
Seconds = Annotated[float, Field(gt=0, le=366 * 86400, allow_inf_nan=False)]
Days = Annotated[int, Field(ge=1, le=36_500)]


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_by_name=False, validate_by_alias=True)


class HomeTable(Table):
    database_url: DatabaseUrl | None = Field(default=None, repr=False)
    poll_seconds: Annotated[Seconds, Field(le=3600)] = 1


class HttpTable(Table):
    """Where a role serves its API, probes and metrics. Port 0 takes any free one."""

    host: Annotated[str, AfterValidator(_host)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8080


class LogTable(Table):
    """From which level on our own lines are written; libraries are heard from ``warning`` on."""

    level: Literal["debug", "info", "warning", "error"] = "info"


class RegionTable(Table):
    database_url: DatabaseUrl | None = Field(default=None, repr=False)
    schema_name: Annotated[str, AfterValidator(_schema)] | None = Field(default=None, alias="schema")
    amqp_url: AmqpUrl | None = Field(default=None, repr=False)
    queue: Annotated[str, AfterValidator(_queue)] | None = None
    transport: Literal["rabbitmq", "ledger"] | None = None
    declare: bool = True
    allow_networks: Networks = ()


class DeliveryTable(Table):
    """How deliveries are tried. Backoff, budget and age as docs/reference.md says; ``concurrency`` and ``timeout_seconds`` are
    for subscribers that name none; ``in_flight`` is what one consumer sends at once, beside at most twice as many that are held by
    subscribers who answer nothing.
    """

    backoff_first_seconds: Seconds = 5
    backoff_factor: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)] = 3
    backoff_cap_seconds: Seconds = 7200
    attempts: Annotated[int, Field(ge=1, le=1000)] = 20
    max_age_seconds: Seconds = 259_200
    retry_after_cap_seconds: Seconds = 86_400
    timeout_seconds: Annotated[float, Field(ge=1, le=TIMEOUT_SECONDS_MAX, allow_inf_nan=False)] = 15
    lease_margin_seconds: Annotated[float, Field(ge=5, le=300, allow_inf_nan=False)] = 15
    concurrency: Annotated[int, Field(ge=1, le=CONCURRENCY_MAX)] = 4
    in_flight: Annotated[int, Field(ge=1, le=100_000)] = 500

    @model_validator(mode="after")
    def _cap_is_not_below_the_first(self) -> Self:
        if self.backoff_cap_seconds < self.backoff_first_seconds:
            raise ValueError("backoff_cap_seconds has to be at least backoff_first_seconds")
        return self


class RetentionTable(Table):
    """How long a region keeps what is over: payload copies of terminal deliveries, deliveries with their attempts, and
    the bare keys by which a late duplicate is known.
    """

    payload_days: Days = 30
    delivery_days: Days = 90
    tombstone_days: Days = 365

    @model_validator(mode="after")
    def _nothing_outlives_what_explains_it(self) -> Self:
        if not self.payload_days <= self.delivery_days <= self.tombstone_days:
            raise ValueError("payload_days, delivery_days, tombstone_days have to be in rising order")
        return self


class Tables(Table):
    """The whole file."""

    namespace: Name = "fanout"
    home: HomeTable = HomeTable()
    http: HttpTable = HttpTable()
    log: LogTable = LogTable()
    regions: dict[Name, RegionTable] = Field(default={"eu": RegionTable(), "us": RegionTable()}, min_length=1)
    delivery: DeliveryTable = DeliveryTable()
    residency: dict[Name, RegionNames] | None = None
    retention: RetentionTable = RetentionTable()
