"""From results to the tables in README.md and the plot."""

import asyncio
import json
import subprocess
from collections.abc import Sequence

from benchmarks import HERE, RESULTS
from benchmarks.environments import python_environment
from benchmarks.scenario import Document, Scenario, tell

README = HERE / "README.md"
BEGIN, END = "<!-- written by python -m benchmarks: begin -->", "<!-- end -->"
QUIET_CORES = 0.2
"""What others may use of the machine without a word about it."""


def write(scenarios: Sequence[Scenario]) -> None:
    """Into README.md, between the marks, what there is a result of; then the plot, where matplotlib can be installed."""
    parts = [_part(scenario, result) for scenario in scenarios if (result := _result(scenario)) is not None]
    before, _, rest = README.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    plot = "![What was measured, as a picture](results/overview.png)\n\n" if _plotted() else ""
    README.write_text(f"{before}{BEGIN}\n\n{plot}{''.join(parts)}{END}{after}")


def _result(scenario: Scenario) -> Document | None:
    file = RESULTS / f"{scenario.name}.json"
    return json.loads(file.read_text()) if file.is_file() else None


def _part(scenario: Scenario, result: Document) -> str:
    where = result["machine"]
    told = f"Revision {result['revision']}, {where['cores']} cores ({where['cpu']}), Python {where['python']}"
    if result["others_cores"] > QUIET_CORES:
        told += f"; **other programs used {result['others_cores']:.1f} cores meanwhile**"
    return f"### {scenario.title}\n\n{scenario.says}\n\n{scenario.table(result['document'])}\n\n{told}.\n\n"


def _plotted() -> bool:
    python = asyncio.run(python_environment("report", HERE / "requirements.txt"))
    if python is None:
        return False
    done = subprocess.run([python, HERE / "plot.py", RESULTS], check=False)
    if done.returncode != 0:
        tell("the plot could not be drawn")
    return done.returncode == 0
