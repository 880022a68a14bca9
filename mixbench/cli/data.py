"""`mixbench data`: look at a task before training on it, and write it out for use elsewhere."""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mixbench.config.compose import composed_settings
from mixbench.core.errors import CannotWrite, Parser, SettingError, at_least, some_of
from mixbench.core.files import make_folder, write_bytes
from mixbench.datasets.base import IGNORE, SPLITS, Dataset, Examples, SplitName, overlap
from mixbench.display.console import make_console

STYLES = {
    "key": "cyan", "value": "magenta", "query": "bold cyan", "label": "bold green", "filler": "dim",
    "token": "",
}  # fmt: skip


_BARS = "▁▂▃▄▅▆▇█"


def main(arguments: Sequence[str]) -> None:
    """Entry point of `mixbench data`.

    Raises:
        SettingError: Wrong arguments or settings.
        CannotWrite: The export or plot cannot be written.
    """
    given = _parse(arguments)
    some_of("--split", [given.split], SPLITS)
    split: SplitName = given.split
    at_least("--rows", given.rows, 1)
    if given.export is not None and given.export.suffix not in (".npz", ".jsonl"):
        raise SettingError("--export", expected="a name ending in .npz or .jsonl", got=given.export)
    settings = composed_settings(given.overrides, given.config_dir)
    from mixbench.runs.build import build_dataset

    dataset = build_dataset(settings)
    if given.export is not None:
        make_folder(given.export.absolute().parent, key="--export")
    rows: dict[SplitName, Examples] = {}
    seconds: dict[SplitName, float] = {}
    for name in SPLITS:
        started = time.perf_counter()
        rows[name] = dataset.generate(name, settings.seed)
        seconds[name] = time.perf_counter() - started
    console = make_console()
    console.print(_splits(rows, seconds))
    chance = ", ".join(
        f"{name} {value:.4g}" for name, value in dataset.trivial_baseline(rows["test"]).items()
    )
    console.print(f"chance level: {chance}", highlight=False)
    if np.issubdtype(rows[split].inputs.dtype, np.integer):
        _show_tokens(console, dataset, rows[split], given.rows)
    else:
        _show_values(console, rows[split], given.rows)
        plot = given.plot or Path("outputs/data.png")
        make_folder(plot.absolute().parent, key="--plot")
        _draw(rows[split], given.rows, plot)
        console.print(f"plot: {plot}", highlight=False, soft_wrap=True)
    if given.export is not None:
        _export(rows, given.export)
        console.print(f"written: {given.export}", highlight=False, soft_wrap=True)


def digest(rows: Examples) -> str:
    """16 hex digits over every byte of a split."""
    content = hashlib.sha256()
    for array in (rows.inputs, rows.targets):
        content.update(
            f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes()
        )
    return content.hexdigest()[:16]


def _splits(rows: Mapping[SplitName, Examples], seconds: Mapping[SplitName, float]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("split", "rows", "length", "labels", "train overlap", "ms/row", "hash"):
        table.add_column(name, justify="left" if name in ("split", "hash") else "right")
    for name, split in rows.items():
        labels = int((split.targets != IGNORE).sum())
        shared = "" if name == "train" else f"{overlap(split, rows['train']):,}"
        table.add_row(
            name,
            f"{len(split):,}",
            str(split.inputs.shape[1]),
            f"{labels:,}",
            shared,
            f"{1e3 * seconds[name] / max(1, len(split)):.4f}",
            digest(split),
        )
    return table


def _show_tokens(console: Console, dataset: Dataset, rows: Examples, number: int) -> None:
    roles = dataset.roles(rows)
    legend = Text("key, value and query as they come: ")
    for role in dict.fromkeys(roles[:number].ravel().tolist()):
        legend.append(f"{role} ", STYLES[role])
    legend.append("label", STYLES["label"])
    console.print(legend)
    width = max(
        len(str(int(rows.inputs.max(initial=0)))), len(str(int(rows.targets.max(initial=0))))
    )
    for row in range(min(number, len(rows))):
        line, below = Text("in     "), Text("label  ")
        for token, label, role in zip(rows.inputs[row], rows.targets[row], roles[row], strict=True):
            line.append(f"{token:>{width}} ", STYLES[role])
            below.append(f"{'.' if label == IGNORE else label:>{width}} ", STYLES["label"])
        console.print(line, soft_wrap=True)
        console.print(below, soft_wrap=True)


def _show_values(console: Console, rows: Examples, number: int) -> None:
    everything = np.concatenate([rows.inputs.ravel(), rows.targets.ravel()])
    low, high = float(everything.min()), float(everything.max())
    console.print(
        f"from {low:.3g} to {high:.3g}; behind the bar what is asked for", highlight=False
    )
    for row in range(min(number, len(rows))):
        line = Text("".join(_bar(value, low, high) for value in rows.inputs[row]))
        line.append(" | ")
        line.append(_bar(rows.targets[row], low, high), STYLES["label"])
        console.print(line, soft_wrap=True)


def _bar(value: float, low: float, high: float) -> str:
    share = (float(value) - low) / (high - low) if high > low else 0.0
    return _BARS[min(len(_BARS) - 1, int(share * len(_BARS)))]


def _draw(rows: Examples, number: int, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    T = rows.inputs.shape[1]
    for row in range(min(number, len(rows))):
        (line,) = axes.plot(range(T), rows.inputs[row], lw=1)
        axes.plot([T], [rows.targets[row]], "o", ms=4, color=line.get_color())
    axes.set_xlabel("position in the window; dots are what is asked for")
    try:
        figure.savefig(path, dpi=110)
    except OSError as error:
        raise CannotWrite(path, error.strerror or str(error)) from error


def _export(rows: Mapping[SplitName, Examples], path: Path) -> None:
    if path.suffix == ".npz":
        arrays = {
            f"{name}_{part}": getattr(split, part)
            for name, split in rows.items()
            for part in ("inputs", "targets")
        }
        try:
            np.savez_compressed(path, allow_pickle=False, **arrays)
        except OSError as error:
            raise CannotWrite(path, error.strerror or str(error)) from error
    else:
        write_bytes(path, "".join(_lines(rows)).encode())


def _lines(rows: Mapping[SplitName, Examples]) -> Iterator[str]:
    for name, split in rows.items():
        for inputs, targets in zip(split.inputs, split.targets, strict=True):
            content = {"split": name, "inputs": inputs.tolist(), "targets": targets.tolist()}
            yield json.dumps(content) + "\n"


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="mixbench data", description="Look at a task before training on it.")
    parser.add_argument("overrides", nargs="*", help="settings, e.g. dataset=mqar seed=1")
    parser.add_argument("--rows", type=int, default=4, help="how many to show")
    parser.add_argument("--split", default="train", help=", ".join(SPLITS))
    parser.add_argument("--export", type=Path, help="write all splits to FILE.npz or FILE.jsonl")
    parser.add_argument("--config-dir", type=Path, help="a folder of configurations of your own")
    parser.add_argument("--plot", type=Path, help="where the plot of a series goes")
    return parser.parse_intermixed_args(list(arguments))
