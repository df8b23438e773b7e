"""The POST by aiohttp, for the peers that live in an event loop."""

import aiohttp
import job


def session(connections: int) -> aiohttp.ClientSession:
    """One for the whole process; as many connections as there are requests at once."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections), timeout=aiohttp.ClientTimeout(total=job.TIMEOUT_SECONDS)
    )


async def post(client: aiohttp.ClientSession, message: job.Message) -> None:
    """Raises where the answer is not 2xx."""
    async with client.post(message["url"], data=message["body"].encode(), headers=job.headers(message)) as answer:
        await answer.read()
        answer.raise_for_status()
