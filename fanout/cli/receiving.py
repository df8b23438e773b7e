"""``fanout receiver``."""

from pathlib import Path

from fanout.cli.ending import DONE
from fanout.model.problems import Invalid
from fanout.receiver.command import run_receiver


async def receive(host: str, port: int, script: Path | None, secrets: Path | None, *, json_output: bool) -> int:
    """Until Ctrl-C or SIGTERM. A wrong file or a port that is taken is ``Invalid``."""
    try:
        await run_receiver(host, port, script, secrets, json_output)
    except OSError as error:
        raise Invalid.field(
            "--port",
            f"cannot listen on {host} port {port}: {error.strerror or error}",
            "choose a free one; 0 takes any",
        ) from None
    return DONE
