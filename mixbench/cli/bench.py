"""`mixbench bench`: measure speed and memory; a table, JSON and a plot with fitted exponents."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich import box
from rich.table import Table
from rich.text import Text

from mixbench.bench import mixer_cases, op_cases, rows, system_cases
from mixbench.bench.mixer_cases import Build
from mixbench.bench.rows import Effort, Row
from mixbench.bench.system_cases import PARTS
from mixbench.config.choices import mixer_names
from mixbench.config.compose import composed_settings
from mixbench.config.settings import Settings
from mixbench.core.errors import Parser, SettingError, some_of
from mixbench.core.files import make_folder, write_json
from mixbench.core.memory import keep_freed_memory
from mixbench.core.overrides import override_key
from mixbench.display.console import make_console
from mixbench.display.progress import steps_display
from mixbench.mixers.base import Mixer
from mixbench.runs.build import build_mixer
from mixbench.runs.environment import machine, steering_variables, versions


def main(arguments: Sequence[str]) -> None:
    """Entry point of `mixbench bench`.

    Raises:
        SettingError: Wrong arguments or settings.
    """
    given = _parse(arguments)
    parts = some_of("--parts", given.parts.split(","), PARTS)
    lengths = _numbers("--lengths", given.lengths)
    threads = [
        os.cpu_count() or 1 if text == "all" else _numbers("--threads", text)[0]
        for text in given.threads.split(",")
    ]
    names, overrides = _mixers(given.overrides, given.config_dir)
    settings = composed_settings([*overrides, f"mixer={names[-1]}"], given.config_dir)
    build = partial(_build, overrides, given.config_dir)
    effort = Effort(
        lengths=lengths,
        tokens=given.tokens,
        batch=given.batch,
        contexts=_numbers("--contexts", given.contexts),
        repeats=given.repeats,
        seconds=given.seconds,
    )
    out: Path = given.out
    make_folder(out, key="--out")
    keep_freed_memory()  # as runs do
    console = make_console()
    rows = []
    counts = list(dict.fromkeys(threads))
    with steps_display(len(counts) * len(parts)) as begin:
        for count in counts:
            torch.set_num_threads(count)
            for part in parts:
                begin(f"{part}, threads {count}")
                console.print(f"measuring {part}, threads {count}", highlight=False)
                measured = list(_measure(part, names, build, settings, effort))
                rows += measured
                console.print(_table(part, measured, _bound(rows, count)))
    bound = _bound(rows, None)
    fits = exponents(rows)
    for line in [*_fit_lines(fits), *([] if bound is None else [_bound_line(bound)])]:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    write_json(out / "bench.json", _content(rows, fits, effort, overrides))
    if any(row.part in ("ops", "mixers") for row in rows):
        from mixbench.bench.plot import draw_growth

        draw_growth(rows, fits, out / "bench.png")
    console.print(f"bench: {out}", markup=False, highlight=False, soft_wrap=True)


def _bound(rows: Sequence[Row], threads: int | None) -> float | None:
    """FLOP/s of the machine's matrix products, with a number of threads or at best."""
    rates = [_rate(row) for row in rows if row.part == "machine" and threads in (row.threads, None)]
    return max(rates, default=None)


def exponents(rows: Sequence[Row]) -> dict[tuple[str, str, int], float]:
    """How a sequence's time grows with T: the slope of a line through log time over log T.

    By (name, what, threads), where at least three lengths were measured; the three longest count.
    """
    series: dict[tuple[str, str, int], list[tuple[int, float]]] = {}
    for row in rows:
        if row.part in ("ops", "mixers"):
            point = (row.size, row.seconds.median / row.batch)
            series.setdefault((row.name, row.what, row.threads), []).append(point)
    fits = {}
    for key, points in series.items():
        if len(points) >= 3:
            lengths, seconds = np.log(np.array(sorted(points)[-3:])).T
            fits[key] = float(np.polyfit(lengths, seconds, 1)[0])
    return fits


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="mixbench bench", description=(__doc__ or "").partition(": ")[2])
    parser.add_argument("overrides", nargs="*", help="settings, e.g. mixer=lattice,gdn")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--lengths", default="64,256,1024,4096", help="sequence lengths T")
    parser.add_argument("--contexts", default="1000,10000", help="tokens before a streaming step")
    parser.add_argument("--threads", default="1,all", help="numbers of threads")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens a batch of the mixers")
    parser.add_argument("--batch", type=int, default=64, help="sequences a batch of the ops")
    parser.add_argument("--repeats", type=int, default=7, help="turns at most")
    parser.add_argument("--seconds", type=float, default=2.0, help="no new turn after this long")
    parser.add_argument("--out", type=Path, default=Path("outputs/bench"), help="folder")
    parser.add_argument("--config-dir", type=Path, help="a folder of configurations of your own")
    return parser.parse_intermixed_args(list(arguments))


def _build(overrides: Sequence[str], config_dir: Path | None, name: str, seq_len: int) -> Mixer:
    knobs = ["dataset=mqar", f"dataset.seq_len={seq_len + seq_len % 2}", "dataset.num_pairs=1"]
    return build_mixer(composed_settings([*overrides, *knobs, f"mixer={name}"], config_dir))


def _measure(
    part: str, names: Sequence[str], build: Build, settings: Settings, effort: Effort
) -> Iterator[Row]:
    if part == "mixers":
        return mixer_cases.every_mixer(build, names, effort)
    if part == "streaming":
        return mixer_cases.streaming(build, names, effort)
    if part == "training":
        return system_cases.training(settings, effort)
    simple = {
        "machine": rows.machine,
        "ops": op_cases.ops,
        "data": system_cases.data,
        "start": system_cases.start,
    }
    return simple[part](effort)


def _mixers(overrides: Sequence[str], config_dir: Path | None) -> tuple[list[str], list[str]]:
    """The mixers that `mixer=a,b` names, or all, attention first; and the other settings."""
    chosen = [text.partition("=")[2] for text in overrides if override_key(text) == "mixer"]
    names = [name for text in chosen for name in text.split(",")] or mixer_names(config_dir)
    rest = [text for text in overrides if override_key(text) != "mixer"]
    return list(dict.fromkeys(["attention", *names])), rest


def _numbers(key: str, text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise SettingError(key, expected="whole numbers of at least 1", got=text)
    return numbers


def _table(part: str, rows: Sequence[Row], bound: float | None) -> Table:
    per = ", ".join(dict.fromkeys(row.per for row in rows if row.per))
    table = Table(title=part, title_justify="left", box=box.SIMPLE_HEAD)
    for name in (
        "name",
        "what",
        "size",
        "batch",
        "ms",
        f"{per} / s" if per else "rate",
        "peak MB",
        "of bound",
        "ratios",
    ):
        table.add_column(name, justify="left" if name in ("name", "what", "ratios") else "right")
    for row in rows:
        table.add_row(
            Text(row.name),
            row.what.replace("forward+backward", "fwd+bwd"),
            f"{row.size:,}",
            str(row.batch),
            f"{1e3 * row.seconds.median:.3f}",
            f"{_rate(row):.3g}" if row.per else "",
            "" if row.peak_memory is None else f"{row.peak_memory / 1e6:.0f}",
            _share_of(bound, row),
            Text("\n".join(f"{ratio:.2f}x {name}" for name, ratio in row.ratios.items())),
        )
    return table


def _share_of(bound: float | None, row: Row) -> str:
    """Which part of the machine's matrix products' rate a row reaches."""
    if bound is None or not row.flops:
        return ""
    return f"{row.flops / row.seconds.median / bound:.0%}"


def _rate(row: Row) -> float:
    return row.count / row.seconds.median


def _bound_line(bound: float) -> str:
    return f"matrix products reach {bound / 1e9:.0f} GFLOP/s on this machine"


def _fit_lines(fits: dict[tuple[str, str, int], float]) -> list[str]:
    return [
        f"time of a sequence grows as T^{slope:.2f}: {name}, {what}, threads {threads}"
        for (name, what, threads), slope in fits.items()
    ]


def _content(
    rows: Sequence[Row],
    fits: dict[tuple[str, str, int], float],
    effort: Effort,
    overrides: Sequence[str],
) -> dict[str, Any]:
    return {
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
        "environment": steering_variables(),
        "overrides": list(overrides),
        "effort": asdict(effort),
        "rows": [row.as_dict() for row in rows],
        "exponents": [
            {"name": name, "what": what, "threads": threads, "exponent": slope}
            for (name, what, threads), slope in fits.items()
        ],
    }
