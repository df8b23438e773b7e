"""Draws ``overview.png`` from the results in a folder; runs in an environment that has only matplotlib.

python plot.py FOLDER
"""

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

Runs = list[dict[str, Any]]
OURS, THEIRS = "#1b6ca8", "#b8bfc6"
GROUPS = {
    "consumer": "#1b6ca8",
    "scheduler": "#6fb1dd",
    "postgresql": "#e0a030",
    "rabbitmq": "#c8553d",
    "redis": "#8a4f7d",
}


def grouped(runs: Runs, by: str) -> dict[Any, Runs]:
    groups: dict[Any, Runs] = {}
    for run in runs:
        groups.setdefault(run[by], []).append(run)
    return groups


def median(runs: Runs, name: str) -> float:
    return statistics.median(run[name] for run in runs)


def whiskers(groups: dict[Any, Runs], name: str) -> list[list[float]]:
    """Below and above the median of each group."""
    middles = [median(runs, name) for runs in groups.values()]
    lows = [min(run[name] for run in runs) for runs in groups.values()]
    highs = [max(run[name] for run in runs) for runs in groups.values()]
    pairs = list(zip(middles, lows, highs, strict=True))
    return [[middle - low for middle, low, _ in pairs], [high - middle for middle, _, high in pairs]]


def drain_rate(axes: Any, document: dict[str, Any]) -> None:
    groups = grouped(document["runs"], "contestant")
    order = dict(sorted(groups.items(), key=lambda item: median(item[1], "rate")))
    colours = [OURS if name.startswith("ours") else THEIRS for name in order]
    axes.barh(
        list(order), [median(runs, "rate") for runs in order.values()], xerr=whiskers(order, "rate"), color=colours
    )
    axes.set_title("Deliveries per second, one consumer process")


def drain_cpu(axes: Any, document: dict[str, Any]) -> None:
    groups = grouped(document["runs"], "contestant")
    order = dict(sorted(groups.items(), key=lambda item: -median(item[1], "cpu_ms_in_all")))
    left = [0.0] * len(order)
    for group, colour in GROUPS.items():
        widths = [statistics.median(run["cpu_ms"].get(group, 0.0) for run in runs) for runs in order.values()]
        axes.barh(list(order), widths, left=left, color=colour, label=group)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.legend(fontsize=7)
    axes.set_title("CPU seconds of the whole system per 1,000")


def latency(axes: Any, document: dict[str, Any]) -> None:
    groups = grouped(document["runs"], "load")
    loads = [f"{load:.0%}" for load in groups]
    for name, colour in (("p50", OURS), ("p99", "#c8553d")):
        values = [median(runs, name) for runs in groups.values()]
        axes.errorbar(loads, values, yerr=whiskers(groups, name), marker="o", color=colour, label=name, capsize=3)
    axes.set_ylim(bottom=0)
    axes.legend()
    axes.set_title("Accepted to first byte, ms, by part of capacity")


def growth(axes: Any, document: dict[str, Any]) -> None:
    groups = grouped(document["runs"], "ledger")
    names = [name.replace(", ", ",\n") for name in groups]
    axes.bar(names, [median(runs, "rate") for runs in groups.values()], yerr=whiskers(groups, "rate"), color=OURS)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_title("Deliveries per second as the ledger grows")


def neighbours(axes: Any, document: dict[str, Any]) -> None:
    groups = grouped(document["runs"], "way")
    names = [name.replace("beside ", "beside\n") for name in groups]
    places = range(len(names))
    for offset, name, colour in ((-0.2, "p50", OURS), (0.2, "p99", "#c8553d")):
        where = [place + offset for place in places]
        values = [median(runs, name) for runs in groups.values()]
        axes.bar(where, values, 0.4, yerr=whiskers(groups, name), color=colour, label=name)
    axes.set_xticks(list(places), names, fontsize=7)
    axes.legend()
    axes.set_title("140 healthy destinations, accepted to first byte, ms")


def expansion(axes: Any, document: dict[str, Any]) -> None:
    groups = grouped(document["runs"], "fan_out")
    names = [f"{fan_out:,}" for fan_out in groups]
    name = "deliveries_per_second"
    axes.bar(names, [median(runs, name) for runs in groups.values()], yerr=whiskers(groups, name), color=OURS)
    axes.set_title("Expansion, deliveries per second by fan-out")


PANELS: tuple[tuple[str, Callable[[Any, dict[str, Any]], None]], ...] = (
    ("drain", drain_rate),
    ("drain", drain_cpu),
    ("latency", latency),
    ("neighbours", neighbours),
    ("growth", growth),
    ("expansion", expansion),
)


def main(folder: Path) -> None:
    files = [(folder / f"{name}.json", draw) for name, draw in PANELS]
    panels = [(json.loads(file.read_text())["document"], draw) for file, draw in files if file.is_file()]
    if not panels:
        sys.exit("no result that is drawn")
    rows = -(-len(panels) // 2)
    figure, all_axes = plt.subplots(rows, 2, figsize=(12, 4 * rows), squeeze=False, layout="constrained")
    for axes in all_axes.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (document, draw) in zip(all_axes.flat, panels, strict=False):
        draw(axes, document)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "overview.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
