"""Tables of runs on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from mixbench.core.numbers import quantity
from mixbench.records.folder import RunFolder
from mixbench.records.result import COMPLETED, Result, Signature

SPLITS = ("valid", "test")


Job = tuple[Sequence[str], Result | None, RunFolder]
"""A job of a grid: its overrides, its result (None if it left none) and its folder."""


def run_table(result: Result, folder: Path) -> Table:
    """What one run gave and what it took."""
    names = result.names
    title = f"{names['mixer']} on {names['dataset']}, seed {result.seed}"
    table = Table(title=Text(title), show_header=False, title_justify="left", min_width=60)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("status", _status(result))
    chance = result.trivial_baseline
    metrics = [name.partition("/")[2] for name in result.metrics if name.startswith("valid/")]
    for name in metrics:
        values = [
            f"{split} {_number(result.metrics[f'{split}/{name}'])}"
            for split in SPLITS
            if f"{split}/{name}" in result.metrics
        ]
        if name in chance:
            values.append(f"chance {_number(chance[name])}")
        table.add_row(name.replace("_", " "), "   ".join(values))
    for name in [name for name in chance if name not in metrics]:
        table.add_row(f"chance, {name.replace('_', ' ')}", _number(chance[name]))
    parameters = result.parameters
    table.add_row("parameters", f"total {parameters.total:,}   mixers {parameters.mixer:,}")
    state, held = result.state_size, result.measured_state_size
    if state is not None:
        bound = "at most " if result.state_size_is_bound else ""
        measured = "" if held is None else f"   held while streaming {held:,}"
        conv = result.conv_state_size
        table.add_row("state size", f"{bound}{state:,} (short convolution {conv:,}){measured}")
    operations = result.operations
    if operations is not None:
        for name, counts in (("token", operations.per_token), ("pair", operations.per_pair)):
            if counts is not None:
                table.add_row(f"ops/{name}", _operations(counts))
        flops = operations.measured_flops_per_token
        table.add_row("FLOPs a token", f"{flops:,.0f} in the mixers, as PyTorch counts")
    for name, value in result.diagnostics.items():
        table.add_row(name.replace("_", " "), quantity(value))
    for name, scores in result.probes.items():
        score = "could not be run" if scores is None else _number(scores[result.metric])
        table.add_row(f"probe {name}", score)
    if result.status == COMPLETED:
        seconds = result.seconds
        table.add_row("steps", f"{result.steps:,} in {result.epochs} epochs")
        table.add_row(
            "seconds",
            f"total {seconds.total:.1f}   training {seconds.train:.1f}   data {seconds.data:.2f}",
        )
        table.add_row("tokens/s", f"{result.tokens_per_second:,.0f} in training")
        shared = {name: rows for name, rows in result.overlap.items() if rows}
        if shared:
            table.add_row("shared rows", ", ".join(f"{n} {k}" for k, n in shared.items()))
    table.add_row("record", Text(_path(folder)))
    return table


def grid_table(jobs: Sequence[Job]) -> Table:
    """One line a job of a grid."""
    settings = [dict(_split(override) for override in overrides) for overrides, _, _ in jobs]
    keys = list(dict.fromkeys(key for setting in settings for key in setting))
    varying = [key for key in keys if len({setting.get(key) for setting in settings}) > 1]
    metrics = [
        name
        for _, result, _ in jobs
        if result is not None
        for name in (f"valid/{result.metric}", f"test/{result.metric}")
    ]
    metrics = list(dict.fromkeys(metrics))
    table = Table(title=f"{len(jobs)} runs", title_justify="left")
    for name in [*varying, "status", *metrics, "seconds", "identity"]:
        table.add_column(Text(name), overflow="fold", justify="right")
    for setting, (_, result, folder) in zip(settings, jobs, strict=True):
        cells = [Text(setting.get(key, "")) for key in varying]
        if result is None:
            cells += [Text("no record", style="red"), *(Text("") for _ in metrics), Text("")]
        else:
            done = result.status == COMPLETED
            cells.append(Text(result.status, style="green" if done else "red"))
            values = [result.metrics.get(name) for name in metrics]
            cells += [Text("" if value is None else _number(value)) for value in values]
            cells.append(Text(f"{result.seconds.total:.1f}"))
        table.add_row(*cells, Text(folder.identity))
    return table


def losses_table(jobs: Sequence[Job], reasons: Mapping[RunFolder, str]) -> Table | None:
    """The runs that did not complete, why, and where their logs are; None if all did.

    Args:
        jobs: All runs.
        reasons: What is known of those that left no record.
    """
    table = Table(title="runs that did not complete", title_justify="left", title_style="red")
    for name in ("run", "outcome", "log, with its traceback"):
        table.add_column(name, overflow="fold")
    for _, result, folder in jobs:
        if result is None:
            why = ": ".join(["left no record", *filter(None, [reasons.get(folder)])])
            table.add_row(Text(folder.identity), Text(why), Text(str(folder.log)))
        elif result.status != COMPLETED:
            why = f"{result.status}: {result.reason}"
            table.add_row(Text(folder.identity), Text(why), Text(str(folder.log)))
    return table if table.rows else None


def _status(result: Result) -> Text:
    if result.status == COMPLETED:
        return Text(COMPLETED, style="green")
    return Text(f"{result.status}: {result.reason}", style="red")


def _operations(operations: Mapping[str, float]) -> str:
    return ", ".join(f"{n:,.0f} {name.replace('_', ' ')}" for name, n in operations.items())


def signature_line(signature: Signature) -> Text:
    """How many of a mixer's claims about itself hold, and which do not."""
    line = f"signature: {signature.held}/{signature.of} hold"
    if signature.holds:
        return Text(line, style="green")
    return Text(f"{line}; fails: {', '.join(signature.failing)}", style="red")


def _split(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key, value


def _number(value: float) -> str:
    return f"{value:.4f}" if abs(value) >= 1e-3 or value == 0 else f"{value:.1e}"


def _path(folder: Path) -> str:
    here = Path.cwd()
    return str(folder.relative_to(here) if folder.is_relative_to(here) else folder)
