"""Every measurement, one after the other, and the report: ``python -m benchmarks [NAME …] [--quick] [--again]``.

Each result is kept in ``results/NAME.json``. One that was made with these sizes from this revision is not made again, so what was
interrupted goes on where it stopped. The report (the tables in README.md and the plot) is written anew each time.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from pathlib import Path

from benchmarks import (
    RESULTS,
    ROOT,
    admission,
    drain,
    expansion,
    growth,
    latency,
    limits,
    neighbours,
    promotion_growth,
    report,
    rest,
    scale_out,
)
from benchmarks.accounts import cpu_seconds, machine_busy_seconds
from benchmarks.scenario import Document, Scenario, tell

PRODUCT = ("fanout", "regions")
MODULES = (drain, scale_out, expansion, admission, latency, neighbours, limits, growth, promotion_growth, rest)
SCENARIOS = tuple(module.SCENARIO for module in MODULES)


def revision() -> str:
    """Of the product, as git names the last change of it; ``+`` where it was changed since, ``unknown`` outside a repository."""
    last = _git("log", "-1", "--format=%h", "--", *PRODUCT)
    return last + "+" * bool(_git("status", "--porcelain", "--", *PRODUCT)) or "unknown"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def machine() -> Document:
    """On what it was measured."""
    told = Path("/proc/cpuinfo").read_text().splitlines()
    cpus = [line.partition(":")[2].strip() for line in told if line.startswith("model name")]
    return {
        "cores": os.cpu_count(),
        "cpu": cpus[0] if cpus else platform.machine(),
        "python": platform.python_version(),
    }


def others_cpu() -> float:
    """Seconds of CPU that were used by whatever is no child of ours."""
    return machine_busy_seconds() - cpu_seconds(os.getpid())


async def measured(scenario: Scenario, *, quick: bool) -> Document:
    chosen = scenario.chosen(quick=quick)
    started, others = time.monotonic(), others_cpu()
    document = await scenario.measure(chosen)
    lasted = time.monotonic() - started
    return {
        "name": scenario.name,
        "revision": revision(),
        "sizes": vars(chosen),
        "machine": machine(),
        "lasted_seconds": lasted,
        "others_cores": max(0.0, others_cpu() - others) / lasted,
        "document": document,
    }


def kept(scenario: Scenario, *, quick: bool) -> bool:
    """Is there a result of this revision with these sizes?"""
    file = RESULTS / f"{scenario.name}.json"
    if not file.is_file():
        return False
    result = json.loads(file.read_text())
    return result["revision"] == revision() and result["sizes"] == vars(scenario.chosen(quick=quick))


def main() -> int:
    names = [scenario.name for scenario in SCENARIOS]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all, or some of {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="the small sizes: to see that it runs")
    parser.add_argument("--again", action="store_true", help="also what has a result of this revision already")
    given = parser.parse_args()
    if unknown := set(given.names) - set(names):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    RESULTS.mkdir(exist_ok=True)
    failed = []
    for scenario in SCENARIOS:
        if (given.names and scenario.name not in given.names) or (
            not given.again and kept(scenario, quick=given.quick)
        ):
            continue
        tell(f"== {scenario.title}")
        try:
            result = asyncio.run(measured(scenario, quick=given.quick))
        except Exception:  # noqa: BLE001 - one that fails does not spoil the others
            traceback.print_exc()
            failed.append(scenario.name)
            continue
        (RESULTS / f"{scenario.name}.json").write_text(json.dumps(result, indent=1) + "\n")
    report.write(SCENARIOS)
    if failed:
        tell(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
