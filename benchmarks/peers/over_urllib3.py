"""The POST by urllib3, for the peers that live in threads or greenlets."""

import job
import urllib3


def pool(connections: int) -> urllib3.PoolManager:
    """One for the whole process."""
    return urllib3.PoolManager(maxsize=connections, timeout=job.TIMEOUT_SECONDS, retries=False)


def post(client: urllib3.PoolManager, message: job.Message) -> None:
    """Raises where the answer is not 2xx."""
    answer = client.request("POST", message["url"], body=message["body"].encode(), headers=job.headers(message))
    if not 200 <= answer.status < 300:
        raise RuntimeError(f"answered {answer.status}")
