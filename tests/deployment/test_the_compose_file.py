"""`docker compose up` is told the right things: read without an engine, from the file alone."""

import re
import shutil
import subprocess

import pytest

from fanout.api.places import HOME_CONNECTIONS, REGION_CONNECTIONS
from regions.consumer.consumer import GRACE_SECONDS

from .compose import EXAMPLE, ROOT, compose, environment_of, mounts, ours, seconds, services, variables

SERVICE_KEYS = {
    "build", "cap_drop", "command", "depends_on", "deploy", "environment", "healthcheck", "hostname", "image", "init", "logging",
    "network_mode", "networks", "ports", "profiles", "pull_policy", "read_only", "restart", "security_opt", "shm_size",
    "stop_grace_period", "tmpfs", "ulimits", "volumes",
}  # fmt: skip
CONDITIONS = {"service_started", "service_healthy", "service_completed_successfully"}


def test_every_key_is_one_that_compose_knows():
    document = compose()
    top = {"name", "services", "networks", "volumes"}
    assert {key for key in document if not key.startswith("x-")} == top
    for name, service in document["services"].items():
        assert service.keys() <= SERVICE_KEYS, name


def test_whatever_a_service_refers_to_is_there():
    document = compose()
    for name, service in document["services"].items():
        assert set(service.get("networks", [])) <= document["networks"].keys(), name
        for source, _, writable in mounts(service):
            if source.startswith("./"):
                assert (ROOT / source).exists(), f"{name} mounts {source}"
                assert not writable, f"{name} may write to {source}"
            else:
                assert source in document["volumes"], f"{name} mounts {source}"
        for other, needed in service.get("depends_on", {}).items():
            assert needed["condition"] in CONDITIONS
            if needed["condition"] == "service_healthy":
                assert "test" in document["services"][other]["healthcheck"], f"{name} waits for {other}"
    used = {source for service in document["services"].values() for source, _, _ in mounts(service)}
    assert document["volumes"].keys() <= used


def test_it_refuses_to_start_without_passwords():
    passwords = {name for name in variables() if name.endswith("PASSWORD")}
    assert passwords == {variable.name for variable in variables().values() if variable.required}
    assert len(passwords) == 7


def test_the_example_names_every_variable_and_holds_no_password():
    given = dict(re.findall(r"^(?:# )?([A-Z][A-Z_]+)=(.*)$", EXAMPLE.read_text(), re.MULTILINE))
    assert given.keys() == variables().keys()
    for name, variable in variables().items():
        assert (f"\n{name}=\n" in EXAMPLE.read_text()) == variable.required, name
        if variable.default and not variable.required:
            assert given[name] == variable.default, "the example shows the default"


def test_the_lines_in_the_example_make_an_env_file_that_is_complete_and_private(tmp_path):
    """They are run as they stand there."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to draw passwords with")
    text = EXAMPLE.read_text()
    lines = [line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   ")]
    (tmp_path / EXAMPLE.name).write_text(text)
    subprocess.run(["/bin/sh", "-euc", "\n".join(lines)], cwd=tmp_path, check=True)
    made = tmp_path / ".env"
    values = dict(re.findall(r"^([A-Z_]+)=(.*)$", made.read_text(), re.MULTILINE))
    assert values.keys() == {variable.name for variable in variables().values() if variable.required}
    assert all(re.fullmatch(r"[0-9a-f]{48}", value) for value in values.values())
    assert len(set(values.values())) == len(values)
    assert made.stat().st_mode & 0o777 == 0o600


def test_nothing_can_be_reached_from_other_machines():
    for name, service in services().items():
        for port in service.get("ports", []):
            assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), f"{name}: {port}"
        assert service.get("network_mode") != "host", name
    published = [port.rpartition(":")[2] for service in services().values() for port in service.get("ports", [])]
    assert not {"8080", "5672"} & set(published), "neither the API, probes nor AMQP"


def test_no_image_is_fetched_for_ours_and_the_others_are_pinned():
    assert [name for name, service in ours().items() if "build" in service] == ["migrate"]
    for name, service in services().items():
        image = service["image"]
        assert "." not in image.split("/")[0].split(":")[0], f"{name}: no registry is named"
        if name in ours():
            assert service["pull_policy"] == ("build" if name == "migrate" else "never")
        else:
            assert re.search(r":v?\d", image), f"{name}: {image}"


def test_every_role_runs_with_as_little_as_it_needs():
    for name, service in services().items():
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}, name
    for name, service in ours().items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name


def test_every_role_comes_back_and_the_schemas_come_first():
    roles = {"api", "publisher", "scheduler-eu", "scheduler-us", "consumer-eu", "consumer-us"}
    assert ours().keys() == roles | {"migrate", "receiver"}
    for name in roles:
        service = ours()[name]
        assert service["restart"] == "unless-stopped"
        assert service["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
        region = name.partition("-")[2]
        if region:
            assert service["depends_on"][f"rabbitmq-{region}"] == {"condition": "service_healthy"}
    assert ours()["migrate"]["restart"] == "no", "it ends, and that is what the others wait for"
    assert ours()["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}


def test_consumers_are_given_their_grace_and_the_time_to_settle():
    for region in ("eu", "us"):
        assert seconds(ours()[f"consumer-{region}"]["stop_grace_period"]) >= GRACE_SECONDS + 10


def test_what_compose_starts_fits_into_the_server():
    command = services()["postgres"]["command"]
    most = next(int(each.partition("=")[2]) for each in command if each.startswith("max_connections="))
    consumers = sum(int(services()[f"consumer-{region}"]["deploy"]["replicas"]) for region in ("eu", "us"))
    api = HOME_CONNECTIONS + 1 + 2 * (REGION_CONNECTIONS + 1)
    assert api + 12 + 2 * 5 + consumers * 7 <= most / 2, "an upgrade may double them"


@pytest.mark.parametrize("region", ["eu", "us"])
def test_a_region_is_a_cell(region: str):
    """Its roles know the passwords of their region and no other, and reach no other region's network."""
    other = {"eu": "us", "us": "eu"}[region]
    for role in ("scheduler", "consumer"):
        service = ours()[f"{role}-{region}"]
        known = " ".join(environment_of(service).values())
        assert re.findall(r"the-[a-z-]+-password", known) == [
            f"the-{region}-database-password",
            f"the-{region}-broker-password",
        ]
        assert service["networks"] == [region]
        assert other not in known
        assert "home" not in known
    assert services()[f"rabbitmq-{region}"]["networks"] == [region]
