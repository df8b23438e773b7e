"""CPU and memory of groups of processes, with all their children, as Linux counts them in /proc."""

import os
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def family(pid: int) -> Iterator[int]:
    """A process and everything below it that is alive."""
    open_ = [pid]
    while open_:
        each = open_.pop()
        yield each
        try:
            for task in Path(f"/proc/{each}/task").iterdir():
                open_ += map(int, (task / "children").read_text().split())
        except OSError:
            continue  # it ended while we looked


def cpu_seconds(pid: int) -> float:
    """User and system time of a family: of those that live, and of those that ended and were waited for."""
    ticks = 0
    for each in family(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS


def resident_bytes(pid: int) -> int:
    """Memory of a family that is its own: pages that it shares (PostgreSQL's buffers) do not count."""
    pages = 0
    for each in family(pid):
        try:
            _, resident, shared, *_ = map(int, Path(f"/proc/{each}/statm").read_text().split())
        except OSError:
            continue
        pages += resident - shared
    return pages * _PAGE


def pss_bytes(pid: int) -> int:
    """Memory of a family, pages that several share divided among them."""
    rollups = (Path(f"/proc/{each}/smaps_rollup").read_text().splitlines() for each in family(pid))
    return sum(int(line.split()[1]) * 1024 for lines in rollups for line in lines if line.startswith("Pss:"))


def peak_bytes(pid: int) -> int:
    """The most that this one process ever had in memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def machine_busy_seconds() -> float:
    """CPU time that the whole machine has spent on anything but waiting, since it started."""
    user, nice, system, _idle, _wait, irq, softirq, *_ = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / _TICKS


class Accounts:
    """Groups of processes by name, as ``consumer`` and ``postgresql``."""

    def __init__(self) -> None:
        self._roots: dict[str, list[int]] = {}

    def add(self, group: str, pid: int) -> None:
        self._roots.setdefault(group, []).append(pid)

    def cpu(self) -> dict[str, float]:
        """Seconds so far."""
        return {group: sum(map(cpu_seconds, pids)) for group, pids in self._roots.items()}
