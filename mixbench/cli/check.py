"""`mixbench check`: what is wrong with a mixer, before it is trained."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.table import Table
from rich.text import Text

from mixbench.checks.suite import (
    CHECKS,
    EXCEPTED,
    FAILED,
    PASSED,
    SEQ_LEN,
    SKIPPED,
    Outcome,
    failures,
    run_checks,
)
from mixbench.config.choices import mixer_names
from mixbench.config.compose import composed_settings
from mixbench.config.settings import Settings
from mixbench.core.errors import Parser, RunsFailed, SettingError, some_of
from mixbench.core.overrides import override_key
from mixbench.display.console import make_console
from mixbench.display.progress import steps_display
from mixbench.runs.build import build_dataset, build_mixer

_STYLES = {PASSED: "green", FAILED: "red", SKIPPED: "dim", EXCEPTED: "yellow"}


# The usual task of each form, where the user chooses none.
_TASKS = {True: "mqar", False: "forecasting"}


@dataclass(frozen=True)
class Form:
    """A mixer in one of its forms."""

    name: str
    settings: Settings
    seq_len: int

    @property
    def title(self) -> str:
        return f"{self.name}, {'causal' if self.settings.mixer.get('causal') else 'bidirectional'}"


def main(arguments: Sequence[str]) -> None:
    """Entry point of `mixbench check`.

    Raises:
        SettingError: Wrong arguments or settings.
        RunsFailed: A required check failed.
    """
    given = _parse(arguments)
    names = [check.name for check in CHECKS]
    if given.list:
        make_console().print(_list())
        return
    only = some_of("--only", given.only.split(","), names) if given.only else names
    skip = some_of("--skip", given.skip.split(","), names) if given.skip else []
    left_out = [name for name in names if name in skip or name not in only]
    forms = list(_forms(given.overrides, given.config_dir))
    console = make_console()
    torch.set_num_threads(1)
    found: list[tuple[Form, list[Outcome]]] = []
    for form in forms:
        clock = time.perf_counter()
        with steps_display(len(names) - len(left_out)) as begin:
            outcomes = run_checks(
                partial(build_mixer, form.settings),
                seq_len=form.seq_len,
                skip=left_out,
                told=partial(_begin, begin, form.title),
            )
        found.append((form, outcomes))
        if not given.json:
            console.print(_table(form, outcomes, time.perf_counter() - clock))
    if given.json:
        json.dump({"mixers": [_content(*each) for each in found]}, sys.stdout, indent=1)
        print()
    failed = [(form, each.check) for form, outcomes in found for each in failures(outcomes)]
    if failed:
        said = "; ".join(f"{form.title}: {name}" for form, name in failed)
        raise RunsFailed(f"{len(failed)} required checks failed: {said}")


def _begin(begin: Callable[[str], None], title: str, check: str) -> None:
    begin(f"{title}: {check}")


def _forms(overrides: Sequence[str], config_dir: Path | None) -> Iterator[Form]:
    """The mixers that are named, each in the forms that it has, causal first.

    Without a `dataset` or `causal` among the settings that is both, in those that differ.
    """
    typed = {override_key(text): text.partition("=")[2] for text in overrides}
    chosen = typed.get("mixer")
    if chosen is None and "mixer._target_" not in typed:
        raise SettingError(
            "check", expected="mixer=NAME, mixer=all or mixer._target_=MODULE.CLASS", got="none"
        )
    rest = [text for text in overrides if override_key(text) != "mixer"]
    everything = chosen == "all"
    for name in mixer_names(config_dir) if everything else (chosen or "").split(","):
        mixer = [f"mixer={name}"] if name else []
        label = name or typed["mixer._target_"].rpartition(".")[2]
        if {"causal", "dataset"} & typed.keys():
            yield _form(label, [*mixer, *rest], config_dir)
            continue
        refusals: list[SettingError] = []
        seen: list[Any] = []
        for causal, task in _TASKS.items():
            texts = [*mixer, *rest, f"dataset={task}", f"dataset.seq_len={SEQ_LEN}"]
            texts += [] if causal else ["causal=false"]
            try:
                form = _form(label, texts, config_dir)
            except SettingError as error:
                if not error.key.endswith("causal"):
                    raise
                refusals.append(error)
                continue
            if form.settings.mixer.get("causal") not in seen:
                seen.append(form.settings.mixer.get("causal"))
                yield form
        if not seen:
            raise refusals[0]


def _form(name: str, overrides: Sequence[str], config_dir: Path | None) -> Form:
    settings = composed_settings(overrides, config_dir)
    build_mixer(settings)  # what its constructor refuses is said before anything is checked
    return Form(name, settings, build_dataset(settings).seq_len)


def _table(form: Form, outcomes: Sequence[Outcome], seconds: float) -> Table:
    counts = {status: sum(each.status == status for each in outcomes) for status in _STYLES}
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    table = Table(
        title=Text(f"{form.title}: {said} in {seconds:.1f} s"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("check", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("what was seen, and where it fails what to look at", ratio=1)
    for each in outcomes:
        status = Text(each.status, _STYLES[each.status])
        if each.status == FAILED and not each.required:
            status = Text("no", "yellow")
        seen = Text(each.observed, "dim" if each.status == SKIPPED else "")
        if each.hint:
            seen.append(f"\nlook at: {each.hint}", "bold" if each.required else "dim")
        table.add_row(Text(each.check), status, seen)
    return table


def _list() -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("check", no_wrap=True)
    table.add_column("required")
    table.add_column("what holds when it passes", ratio=1)
    for each in CHECKS:
        table.add_row(each.name, "yes" if each.required else "no", Text(each.what))
    return table


def _content(form: Form, outcomes: Sequence[Outcome]) -> Mapping[str, Any]:
    return {
        "mixer": form.name,
        "causal": form.settings.mixer.get("causal"),
        "seq_len": form.seq_len,
        "config": form.settings.mixer,
        "passed": not failures(outcomes),
        "checks": [asdict(each) for each in outcomes],
    }


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="mixbench check", description="What is wrong with a mixer, before it is trained."
    )
    parser.add_argument(
        "overrides", nargs="*", help="mixer=NAME, mixer=all or mixer._target_=MODULE.CLASS, ..."
    )
    parser.add_argument("--json", action="store_true", help="JSON instead of tables")
    parser.add_argument("--list", action="store_true", help="list the checks, run none")
    parser.add_argument("--only", help="names of checks, separated by commas")
    parser.add_argument("--skip", help="names of checks to leave out")
    parser.add_argument("--config-dir", type=Path, help="a folder of configurations of your own")
    return parser.parse_intermixed_args(list(arguments))
