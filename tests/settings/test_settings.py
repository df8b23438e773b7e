"""Settings: the defaults run, the environment beats the file, and what is wrong is one line that names its key."""

import pickle
import re
import tomllib
from ipaddress import ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanout.settings import Settings, SettingsError, is_loopback, redact_url

DEFAULT_FILE = Path(__file__).parents[2] / "config" / "fanout.toml"
DATABASE = "postgresql://app:hush@db.example:5432/fanout"
BROKER = "amqp://app:hush@mq.example/"


@pytest.fixture
def load(tmp_path):
    def load(text=None, **environ):
        file = tmp_path / "config" / "fanout.toml"
        file.parent.mkdir(exist_ok=True)
        if text is not None:
            file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return Settings.load(environ, tmp_path)

    return load


def refusal_of(load, *args, **environ):
    with pytest.raises(SettingsError) as refusal:
        load(*args, **environ)
    text = str(refusal.value)
    assert "hush" not in text
    assert "\n" not in text
    assert len(refusal.value.problems) == 1
    return text


def test_the_defaults_run(load):
    settings = load()
    assert (settings.namespace, settings.home.schema, settings.exchange, settings.home.database_url) == (
        "fanout",
        "fanout",
        "fanout",
        None,
    )
    assert [
        (name, region.name, region.schema, region.queue, region.transport) for name, region in settings.regions.items()
    ] == [
        ("eu", "eu", "fanout_eu", "fanout.eu", "ledger"),
        ("us", "us", "fanout_us", "fanout.us", "ledger"),
    ]
    assert (settings.http.host, settings.http.port, settings.home.poll_seconds) == ("127.0.0.1", 8080, 1)
    delivery = settings.delivery
    assert (
        delivery.backoff_first_seconds,
        delivery.backoff_factor,
        delivery.backoff_cap_seconds,
        delivery.attempts,
    ) == (5, 3, 7200, 20)
    assert (delivery.max_age_seconds, delivery.retry_after_cap_seconds) == (72 * 3600, 24 * 3600)
    assert (delivery.timeout_seconds, delivery.lease_margin_seconds, delivery.concurrency, delivery.in_flight) == (
        15,
        15,
        4,
        500,
    )
    assert settings.residency == {"eu_only": ("eu",)}
    assert settings.subscriber_rules().allow_networks == {"eu": (), "us": ()}


def test_the_file_that_is_delivered_says_exactly_the_defaults(load):
    text = DEFAULT_FILE.read_text()
    assert load(text) == Settings.load({}, Path("/nowhere"))
    assert load(text).file is not None
    derived = "".join(
        f"{line.removeprefix('# ')}\n" if re.match(r"# \w+ = ", line) else f"{line}\n" for line in text.splitlines()
    )
    everything = load(derived.replace("…", "h/d"))
    assert everything.regions["eu"].transport == "rabbitmq"
    assert everything.regions["eu"].schema == "fanout_eu"


def test_every_key_stands_in_the_delivered_file(load):
    text = DEFAULT_FILE.read_text()
    document, settings = tomllib.loads(text), load()
    assert document["http"] == settings.http.model_dump()
    assert document["log"] == settings.log.model_dump()
    assert document["delivery"] == settings.delivery.model_dump()
    assert document["retention"] == settings.retention.model_dump()
    for name in (
        "namespace",
        "database_url",
        "poll_seconds",
        "schema",
        "amqp_url",
        "queue",
        "transport",
        "declare",
        "allow_networks",
    ):
        assert re.search(rf"^(# )?{name} = ", text, re.MULTILINE)


def test_the_file_is_found_where_it_is_named_or_where_it_usually_is(load, tmp_path):
    (tmp_path / "other.toml").write_text('namespace = "other"')
    assert load('namespace = "usual"').namespace == "usual"
    assert load(FANOUT_CONFIG="other.toml").namespace == "other"
    assert load(FANOUT_CONFIG=str(tmp_path / "other.toml")).file == tmp_path / "other.toml"
    assert load(FANOUT_CONFIG="").namespace == "usual"
    assert "FANOUT_CONFIG: there is no file" in refusal_of(load, FANOUT_CONFIG="missing.toml")


def test_the_long_form_beats_the_short_form_which_beats_the_file(load):
    text = '[http]\nport = 1\n[regions.eu]\nallow_networks = ["10.0.0.0/8"]\n[regions.us]'
    assert load(text).http.port == 1
    assert load(text, FANOUT_HTTP_PORT="2").http.port == 2
    assert load(text, FANOUT_HTTP_PORT="2", FANOUT__HTTP__PORT="3").http.port == 3
    settings = load(
        text, FANOUT_ALLOW_NETWORKS="127.0.0.0/8, ::1", FANOUT__REGIONS__US__ALLOW_NETWORKS="192.168.0.0/16"
    )
    assert settings.regions["eu"].allow_networks == (ip_network("127.0.0.0/8"), ip_network("::1/128"))
    assert settings.regions["us"].allow_networks == (ip_network("192.168.0.0/16"),)


def test_every_kind_of_value_can_come_from_the_environment(load):
    settings = load(
        FANOUT_NAMESPACE="demo", FANOUT_HTTP_HOST="0.0.0.0", FANOUT__HOME__POLL_SECONDS="0.5", FANOUT__DELIVERY__ATTEMPTS="3",
        FANOUT__DELIVERY__BACKOFF_FACTOR="1.5", FANOUT__RESIDENCY__US_ONLY="us", FANOUT__REGIONS__EU__SCHEMA="europe",
        FANOUT__REGIONS__EU__QUEUE="europe", FANOUT__RETENTION__PAYLOAD_DAYS="1", HOME="/", FANOUTX="1",
    )  # fmt: skip
    assert (settings.home.schema, settings.regions["us"].schema, settings.regions["us"].queue) == (
        "demo",
        "demo_us",
        "demo.us",
    )
    assert (settings.regions["eu"].schema, settings.regions["eu"].queue, settings.http.host) == (
        "europe",
        "europe",
        "0.0.0.0",
    )
    assert (settings.home.poll_seconds, settings.delivery.attempts, settings.delivery.backoff_factor) == (0.5, 3, 1.5)
    assert settings.residency == {"us_only": ("us",)}
    assert settings.retention.payload_days == 1


def test_home_and_every_region_that_names_none_share_the_database(load):
    settings = load('[regions.eu]\ndatabase_url = "postgresql://eu/d"\n[regions.us]', FANOUT_DATABASE_URL=DATABASE)
    assert (settings.home.database_url, settings.regions["eu"].database_url) == (DATABASE, "postgresql://eu/d")
    assert settings.regions["us"].database_url == DATABASE
    assert load('[home]\ndatabase_url = "postgresql://home/d"').regions[
        "us"
    ].database_url == "postgresql://eu/d".replace("eu", "home")
    settings = load(FANOUT_DATABASE_URL=DATABASE, FANOUT__HOME__DATABASE_URL="postgresql://home/d")
    assert (settings.home.database_url, settings.regions["eu"].database_url) == ("postgresql://home/d", DATABASE)


@pytest.mark.parametrize(("text", "declares"), [("true", True), ("false", False), (" False ", False)])
def test_whether_we_declare_on_the_broker_can_be_said_in_the_environment(load, text, declares):
    settings = load(FANOUT__REGIONS__EU__DECLARE=text)
    assert [region.declare for region in settings.regions.values()] == [declares, True]
    assert "FANOUT__REGIONS__EU__DECLARE: 'perhaps' is not allowed" in refusal_of(
        load, FANOUT__REGIONS__EU__DECLARE="perhaps"
    )


def test_the_transport_is_rabbitmq_where_a_broker_is_known(load):
    settings = load(FANOUT_AMQP_URL=BROKER, FANOUT__REGIONS__US__TRANSPORT="ledger")
    assert [(region.transport, region.amqp_url) for region in settings.regions.values()] == [
        ("rabbitmq", BROKER),
        ("ledger", BROKER),
    ]
    settings = load(FANOUT__REGIONS__EU__AMQP_URL=BROKER)
    assert [region.transport for region in settings.regions.values()] == ["rabbitmq", "ledger"]


def test_adding_a_region_is_adding_a_table(load):
    settings = load("[regions.eu]\n[regions.us]\n[regions.asia]")
    assert list(settings.regions) == ["eu", "us", "asia"]
    assert settings.regions["asia"].schema == "fanout_asia"
    assert load("[regions.asia]", FANOUT__REGIONS__ASIA__QUEUE="a").regions["asia"].queue == "a"
    assert load("[regions.asia]").residency == {}
    assert list(load("", FANOUT__REGIONS__EU__QUEUE="a").regions) == ["eu", "us"]


def test_what_an_orchestrator_sets_beside_our_service_is_none_of_our_settings(load):
    for name in ("FANOUT", "FANOUT_API"):
        load(**{
            f"{name}_SERVICE_HOST": "10.0.0.1", f"{name}_SERVICE_PORT": "80", f"{name}_SERVICE_PORT_HTTP": "80", f"{name}_PORT": "tcp://10.0.0.1:80",
            f"{name}_PORT_80_TCP": "tcp://10.0.0.1:80", f"{name}_PORT_80_TCP_PROTO": "tcp", f"{name}_PORT_80_TCP_ADDR": "10.0.0.1",
        })  # fmt: skip
    assert "did you mean FANOUT_HTTP_PORT?" in refusal_of(load, FANOUT_PORT="8080")


VARIABLES = [
    ("FANOUT_FOO", "1", "no such setting"), ("FANOUT_NAMESPACES", "a", "did you mean FANOUT_NAMESPACE?"), ("FANOUT__HTTP__PROT", "1", "did you mean FANOUT__HTTP__PORT?"),
    ("FANOUT__HTPP__PORT", "1", "did you mean FANOUT__HTTP__PORT?"), ("FANOUT__HTTP__PORT__X", "1", "nothing stands below"),
    ("FANOUT__", "1", "no such setting"), ("FANOUT__HTTP__", "1", "no such setting"), ("FANOUT__HTTP", "1", "names a whole table"),
    ("FANOUT__REGIONS", "eu", "names a whole table"), ("FANOUT__REGIONS__EU", "x", "names a whole table"), ("FANOUT__RESIDENCY", "x", "names a whole table"),
    ("FANOUT__REGIONS__UE__QUEUE", "x", "there is no region 'ue'; the regions are eu, us"), ("FANOUT__REGIONS__EU__TRANSPROT", "x", "did you mean FANOUT__REGIONS__EU__TRANSPORT?"),
    ("FANOUT_HTTP_PORT", "65536", "less than or equal to 65535"), ("FANOUT_HTTP_PORT", "http", "'http' is not allowed; it has to be a valid integer"),
    ("FANOUT_HTTP_HOST", "a b", "address or a host name"), ("FANOUT_NAMESPACE", "Fan-out", "a-z 0-9 _"), ("FANOUT_NAMESPACE", "a" * 32, "31 characters"),
    ("FANOUT_DATABASE_URL", "mysql://app:hush@h/d", "as postgresql://USER:PASSWORD"), ("FANOUT_AMQP_URL", "http://app:hush@h/", "as amqp://USER:PASSWORD"),
    ("FANOUT_DATABASE_URL", "postgresql://app:hush@h/d\nx", "as postgresql://USER:PASSWORD"),
    ("FANOUT__REGIONS__EU__AMQP_URL", "hush", "its value is not allowed"), ("FANOUT__HOME__DATABASE_URL", "hush", "its value is not allowed"),
    ("FANOUT_ALLOW_NETWORKS", "10.0.0.1/8", "has host bits set"), ("FANOUT_ALLOW_NETWORKS", "localhost", "list of networks"),
    ("FANOUT__REGIONS__EU__TRANSPORT", "kafka", "'rabbitmq' or 'ledger'"), ("FANOUT__REGIONS__EU__TRANSPORT", "rabbitmq", "needs a broker"),
    ("FANOUT__REGIONS__EU__SCHEMA", "pg_x", "not with pg_"), ("FANOUT__REGIONS__EU__SCHEMA", "a" * 64, "63 characters"), ("FANOUT__REGIONS__EU__QUEUE", "amq.x", "begin with amq."),
    ("FANOUT__REGIONS__EU__SCHEMA", "fanout_us", "also the schema of"), ("FANOUT__REGIONS__EU__SCHEMA", "fanout", "also the schema of home"),
    ("FANOUT__DELIVERY__LEASE_MARGIN_SECONDS", "4.9", "greater than or equal to 5"), ("FANOUT__DELIVERY__BACKOFF_FACTOR", "0.9", "greater than or equal to 1"),
    ("FANOUT__DELIVERY__BACKOFF_FIRST_SECONDS", "0", "greater than 0"), ("FANOUT__DELIVERY__BACKOFF_FIRST_SECONDS", "nan", "finite"),
    ("FANOUT__DELIVERY__BACKOFF_CAP_SECONDS", "4", "at least backoff_first_seconds"), ("FANOUT__DELIVERY__ATTEMPTS", "0", "greater than or equal to 1"),
    ("FANOUT__DELIVERY__TIMEOUT_SECONDS", "301", "less than or equal to 300"), ("FANOUT__DELIVERY__CONCURRENCY", "101", "less than or equal to 100"),
    ("FANOUT__RETENTION__PAYLOAD_DAYS", "91", "in rising order"), ("FANOUT__RESIDENCY__EU_ONLY", "eu,mars", "there is no region 'mars'"), ("FANOUT__RESIDENCY__EU_ONLY", ",", "one or more regions"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "why"), VARIABLES, ids=lambda value: str(value)[:50])
def test_a_wrong_variable_is_named(load, name, value, why):
    text = refusal_of(load, **{name: value})
    assert text.startswith(name)
    assert why in text


def test_every_mistake_is_named_at_once(load):
    text = "[delivery]\nattempts = 0\nbackof = 1\n[regions.eu]\n[http]\nport = 'x'\n[spam.eggs]\na = 1\n"
    with pytest.raises(SettingsError) as refusal:
        load(text, FANOUT_AMQP_URL="http://x", FANOUT__REGIONS__MARS__QUEUE="x", FANOUT_SPEED="9")
    named = [problem.field.removeprefix("config/fanout.toml: ") for problem in refusal.value.problems]
    assert sorted(named) == [
        "FANOUT_AMQP_URL", "FANOUT_SPEED", "FANOUT__REGIONS__MARS__QUEUE", "delivery.attempts", "delivery.backof", "http.port", "spam",
    ]  # fmt: skip


def test_a_clash_is_complained_about_where_somebody_wrote_it(load):
    eu, us = {"FANOUT__REGIONS__EU__SCHEMA": "fanout_us"}, {"FANOUT__REGIONS__US__SCHEMA": "fanout_eu"}
    assert (
        refusal_of(load, **eu)
        == "FANOUT__REGIONS__EU__SCHEMA: 'fanout_us' is also the schema of regions.us; give each its own"
    )
    assert (
        refusal_of(load, **us)
        == "FANOUT__REGIONS__US__SCHEMA: 'fanout_eu' is also the schema of regions.eu; give each its own"
    )


FILES = [
    ("x = 1", "x", "no such setting"), ("[http]\nprot = 1", "http.prot", "did you mean http.port?"), ("[home]\nschema = 'x'", "home.schema", "no such setting"),
    ("[regions.eu]\nurl = 1", "regions.eu.url", "no such setting"), ("[delivery.attempts]\nx = 1", "delivery.attempts.x", "nothing stands below"),
    ("http = 3", "http", "not a table; write [http]"), ("regions = ['eu']", "regions", "not a table"), ("regions.eu = 1", "regions.eu", "not a table"), ("[regions]", "regions", "is empty"),
    ("[http]\nport = '8080'", "http.port", "valid integer"), ("[http]\nport = true", "http.port", "valid integer"), ("[http]\nhost = 1", "http.host", "valid string"),
    ("[delivery]\nattempts = 2.5", "delivery.attempts", "valid integer"), ("[delivery]\ntimeout_seconds = nan", "delivery.timeout_seconds", "finite"),
    ("[regions.EU]", "regions.EU", "begin with a letter"), ("[regions.1a]", "regions.1a", "begin with a letter"), ("[regions.eu]\nallow_networks = '10.0.0.0/8'", "regions.eu.allow_networks", "list of networks"),
    ("[regions.eu]\nallow_networks = ['x']", "regions.eu.allow_networks", "list of networks"), ("[residency]\neu_only = 'eu'", "residency.eu_only", "list of one or more"),
    ("[residency]\neu_only = ['mars']", "residency.eu_only", "no region 'mars'"), ("[home]\ndatabase_url = 'hush'", "home.database_url", "its value is not allowed"),
    ("[home]\ndatabase_url = 5", "home.database_url", "valid string"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "key", "why"), FILES, ids=lambda value: str(value)[:40])
def test_a_wrong_key_of_the_file_is_named(load, text, key, why):
    refused = refusal_of(load, text)
    assert refused.startswith(f"config/fanout.toml: {key}: ")
    assert why in refused


@pytest.mark.parametrize(
    ("text", "why"), [("[", "is not TOML"), ("a = 1\na = 2", "is not TOML"), (b"\xff", "byte 0 is not UTF-8")], ids=repr
)
def test_a_file_that_cannot_be_read_is_named(load, text, why):
    assert refusal_of(load, text).startswith(f"config/fanout.toml: {why}")


def test_a_file_without_permission_is_named(load, monkeypatch):
    def refuse(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    assert refusal_of(load, "") == "config/fanout.toml: cannot be read: Permission denied; make it readable"


def test_regions_may_share_names_on_different_servers_only(load):
    text = "[regions.eu]\nqueue = 'q'\nschema = 's'\n[regions.us]\nqueue = 'q'\nschema = 's'\n"
    apart = {"FANOUT__REGIONS__EU__DATABASE_URL": "postgresql://eu/d", "FANOUT__REGIONS__EU__AMQP_URL": "amqp://eu"}
    assert load(text, FANOUT_DATABASE_URL=DATABASE, FANOUT_AMQP_URL=BROKER, **apart).regions["us"].schema == "s"
    assert "regions.eu.schema: 's' is also the schema of regions.us" in refusal_of(load, text)
    same = {"FANOUT__REGIONS__EU__DATABASE_URL": "postgresql://other:login@DB.example/fanout"}
    assert "also the schema" in refusal_of(load, text, FANOUT_DATABASE_URL=DATABASE, **same)
    queues = {"FANOUT__REGIONS__EU__SCHEMA": "t", "FANOUT_AMQP_URL": BROKER}
    assert "regions.eu.queue: 'q' is also the queue of regions.us" in refusal_of(load, text, **queues)


def test_no_url_is_shown(load):
    settings = load(FANOUT_DATABASE_URL=DATABASE, FANOUT_AMQP_URL=BROKER)
    assert "hush" not in repr(settings)
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize(
    ("url", "shown"),
    [(DATABASE, "postgresql://app:***@db.example:5432/fanout"), (BROKER, "amqp://app:***@mq.example/"), ("postgresql://db/d", "postgresql://db/d"),
     ("postgresql://app@db/d", "postgresql://app@db/d"), ("postgresql://app:hu/sh@x@db/d", "postgresql://app:***@db/d"),
     ("postgresql://db/d?user=a&password=hush&x=1", "postgresql://db/d?user=a&password=***&x=1"), ("postgresql:///d?host=/tmp", "postgresql:///d?host=/tmp")],
)  # fmt: skip
def test_a_url_is_shown_without_its_password(url, shown):
    assert redact_url(url) == shown


@given(st.text(min_size=1).map(lambda text: f"hush{text}hush"))
def test_no_password_survives_whatever_it_is_made_of(password):
    assert "hush" not in redact_url(f"postgresql://app:{password}@db.example/d")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("LOCALHOST", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("", False), ("example.com", False), ("localhost.example.com", False), ("::ffff:127.0.0.1", False)],
)  # fmt: skip
def test_only_this_machine_reaches_a_loopback_host(host, loopback):
    assert is_loopback(host) is loopback


def test_a_database_that_is_not_known_is_asked_for_by_name(load):
    settings = load()
    with pytest.raises(SettingsError, match=r"^home\.database_url: no database is known; set FANOUT_DATABASE_URL"):
        _ = settings.home.url
    with pytest.raises(SettingsError, match=r"^regions\.us\.database_url: no database is known"):
        _ = settings.regions["us"].url
    known = load(FANOUT_DATABASE_URL=DATABASE)
    assert known.home.url == known.regions["us"].url == DATABASE
