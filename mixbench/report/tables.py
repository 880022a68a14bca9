"""The report's tables as rows of text, shared by the terminal and Markdown. Never imports torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mixbench.overrides import as_override, flat
from mixbench.stats import STATE_BITS


@dataclass(frozen=True)
class TextTable:
    """A titled table of strings.

    Attributes:
        note: What its reader has to know.
        flagged: Numbers of the rows that say something is wrong.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""
    flagged: frozenset[int] = frozenset()


def task_tables(task: Mapping[str, Any]) -> list[TextTable]:
    """All tables of one task of a comparison, in reading order; empty ones are left out."""
    if task["metric"] is None:  # no run of it has left a result
        return [gaps_table(task)] if gaps_table(task).rows else []
    tables = [
        scores_table(task),
        comparisons_table(task),
        costs_table(task),
        recall_table(task),
        trials_table(task),
        budget_table(task),
        signature_table(task),
        ablations_table(task),
        losses_table(task),
        gaps_table(task),
    ]
    return [table for table in tables if table.rows]


def scores_table(task: Mapping[str, Any]) -> TextTable:
    """What every arm chose and scored."""
    better = "higher is better" if task["higher_is_better"] else "lower is better"
    chance = task["chance"].get(task["metric"])
    told = "" if chance is None else f", chance {number(chance)}"
    rows = []
    for arm in task["arms"]:
        edge = f" (edge of {', '.join(arm['on_edge'])})" if arm["on_edge"] else ""
        rows.append(
            (
                arm["name"],
                str(len(arm["trials"])),
                _values(arm["evaluated"]) + edge,
                _mean(arm["valid"]),
                _mean(arm["test"]),
                "-" if arm["test"]["iqm"] is None else number(arm["test"]["iqm"]),
                str(len(arm["lost"])),
            )
        )
    return TextTable(
        f"{task['metric']} on {task['name']} ({better}{told}, margin {number(task['margin'])})",
        ("arm", "trials", "chosen", "valid [95 % CI]", "test [95 % CI]", "test IQM", "lost"),
        rows,
    )


def costs_table(task: Mapping[str, Any]) -> TextTable:
    """What every arm costs."""
    rows = [
        (
            arm["name"],
            _count(arm["parameters"]),
            _count(arm["state_held"] if arm["state_held"] is not None else arm["state_size"]),
            _count(arm["n_cells"]),
            _total(arm["operations"]),
            _by_kind(arm["pair_operations"]),
            "-" if arm["seconds"]["mean"] is None else f"{arm['seconds']['mean']:.1f}",
            f"{arm['seconds']['total']:.0f}",
        )
        for arm in task["arms"]
    ]
    return TextTable(
        "costs of the chosen configurations, all layers together",
        (
            "arm",
            "parameters",
            "state held",
            "cells",
            "operations a token",
            "a pair and head",
            "seconds a run",
            "seconds in all",
        ),
        rows,
    )


def recall_table(task: Mapping[str, Any]) -> TextTable:
    """What associative recall takes, and what of their state the arms use for it."""
    recall = task["recall"]
    if recall is None:
        return TextTable("recall", (), [])
    pairs, values = recall["pairs"], recall["values"]
    rows = [
        (
            arm["name"],
            f"{arm['recall']['bits']:.1f}",
            f"{arm['recall']['state_bits']:,.0f}",
            f"{arm['recall']['efficiency']:.2g}",
        )
        for arm in task["arms"]
        if arm["recall"] is not None
    ]
    return TextTable(
        f"recall efficiency: {pairs} pairs with {values} values take at least "
        f"{recall['bits']:.1f} bits",
        ("arm", "recalled bits", f"state bits ({STATE_BITS} a number)", "recalled over state"),
        rows,
        f"at least: sum of log2({values} - i) over i < {pairs}; recalled, on test: "
        f"{pairs} (log2 {values} - h2(e) - e log2 {values - 1}) with the error e, h2 the binary "
        "entropy (Fano's inequality); means over the completed runs",
    )


def comparisons_table(task: Mapping[str, Any]) -> TextTable:
    """Paired differences, one line a comparison."""
    rows = []
    for each in task["comparisons"]:
        several = len({other["baseline"] for other in task["comparisons"]}) > 1
        strongest = several and each["baseline"] == task["strongest_baseline"]
        name = f"{each['idea']} vs {each['baseline']}{' (strongest)' if strongest else ''}"
        outcome = ", ".join([each["outcome"], *each["qualifiers"]])
        if each["outcome"] == "incomplete":
            told = f"{len(each['gaps'])} sides missing"
            rows.append((name, outcome, "", "", "", "", "", f"{len(each['pairs'])} ({told})"))
            continue
        rows.append(
            (
                name,
                outcome,
                signed(each["d"]),
                interval(each["interval"]),
                f"{each['p']:.3g} ({each['p_adjusted']:.3g})",
                f"{each['probability_of_improvement']:.2f}",
                "" if each["effect_size"] is None else f"{each['effect_size']:.2f}",
                str(len(each["pairs"])),
            )
        )
    return TextTable(
        "paired differences, positive is better",
        (
            "comparison",
            "outcome",
            "d",
            "95 % CI",
            "p (Holm)",
            "P(improves)",
            "effect size",
            "pairs",
        ),
        rows,
        "p: one-sided sign-flip permutation test, adjusted over all comparisons of the study",
    )


def trials_table(task: Mapping[str, Any]) -> TextTable:
    """Every trial's validation, the chosen one marked."""
    rows = []
    for arm in task["arms"]:
        for index, trial in enumerate(arm["trials"]):
            lost = {k: n for k, n in trial["status"].items() if k != "completed"}
            rows.append(
                (
                    arm["name"],
                    _values(trial["values"]),
                    "worst" if trial["mean"] is None else number(trial["mean"]),
                    ", ".join("-" if s is None else number(s) for s in trial["scores"]),
                    ", ".join(f"{n} {state}" for state, n in lost.items()),
                    "chosen" if index == arm["chosen"] else "",
                )
            )
    return TextTable(
        "selection by mean validation",
        ("arm", "trial", "mean valid", "by seed", "lost", ""),
        rows,
    )


def budget_table(task: Mapping[str, Any]) -> TextTable:
    """Expected validation of the best of n trials."""
    most = max((len(arm["budget"]) for arm in task["arms"]), default=0)
    rows = [
        (
            arm["name"],
            *("-" if v is None else number(v) for v in arm["budget"]),
            *("" for _ in range(most - len(arm["budget"]))),
        )
        for arm in task["arms"]
    ]
    return TextTable(
        "expected validation of the best of n trials",
        ("arm", *(f"n={n}" for n in range(1, most + 1))),
        rows if most > 1 else [],
    )


def signature_table(task: Mapping[str, Any]) -> TextTable:
    """What each mixer predicts about itself, on the trained models."""
    rows: list[tuple[str, ...]] = []
    flagged = set()
    for arm in task["arms"]:
        signature = arm["signature"]
        for name in dict.fromkeys(check["name"] for check in signature["checks"]):
            layers = [check for check in signature["checks"] if check["name"] == name]
            held = min(check["holds_in"] for check in layers)
            if held < signature["models"]:
                flagged.add(len(rows))
            rows.append(
                (
                    arm["name"],
                    name,
                    observed(layers[0]["predicted"]),
                    " / ".join(dict.fromkeys(observed(check["observed"]) for check in layers)),
                    f"{held}/{signature['models']}",
                )
            )
    return TextTable(
        "signatures on the trained models",
        ("arm", "check", "predicted", "observed in the first (by layer)", "holds in"),
        rows,
        flagged=frozenset(flagged),
    )


def seeds_table(task: Mapping[str, Any]) -> TextTable:
    """Every evaluation seed's test scores, and the paired differences."""
    runs = {
        arm["name"]: {run["seed"]: run for run in arm["evaluation"]}
        for arm in task["arms"]
        if arm["evaluation"]
    }
    differences = [
        {pair["seed"]: pair["difference"] for pair in each["pairs"]} for each in task["comparisons"]
    ]
    rows = [
        (
            str(seed),
            *(_score(by_seed.get(seed)) for by_seed in runs.values()),
            *("" if seed not in each else signed(each[seed]) for each in differences),
        )
        for seed in sorted({seed for by_seed in runs.values() for seed in by_seed})
    ]
    return TextTable(
        f"test {task['metric']} by seed, differences positive is better",
        ("seed", *runs, *(f"{each['idea']} vs {each['baseline']}" for each in task["comparisons"])),
        rows,
    )


def configuration_tables(task: Mapping[str, Any]) -> list[TextTable]:
    """The chosen configurations: what differs, first what was tuned, and what is the same."""
    configs = {
        arm["name"]: flat({k: v for k, v in arm["config"].items() if k not in ("dataset", "test")})
        for arm in task["arms"]
        if arm["config"] is not None
    }
    tuned = [key for arm in task["arms"] for key in arm["evaluated"] or ()]
    keys = list(dict.fromkeys(tuned + [key for config in configs.values() for key in config]))
    if "lr" in keys:  # which the optimizer's interpolates
        keys = [key for key in keys if key != "optimizer.lr"]
    texts = {
        key: [as_override(c[key]) if key in c else "" for c in configs.values()] for key in keys
    }
    same = [key for key in keys if len(set(texts[key])) == 1 and key not in tuned]
    data = flat(task["dataset"])
    return [
        TextTable(
            "what was tuned, and what else differs between the arms",
            ("setting", *configs),
            [(key, *texts[key]) for key in keys if key not in same],
        ),
        TextTable(
            "what is the same for all arms",
            ("setting", "value"),
            [(f"dataset.{key}", as_override(value)) for key, value in data.items()]
            + [(key, texts[key][0]) for key in same],
        ),
    ]


def environment_table(study: Mapping[str, Any]) -> TextTable:
    """Where and with what the runs were made; several values where records differ."""
    found = study["environment"]
    rows = [("runs", ", ".join(f"{count} {status}" for status, count in found["runs"].items()))]
    names = {"code_version": "mixbench's code", "threads": "threads a run", "cpus": "CPUs"}
    rows += [
        (names.get(key, key), ", ".join(value))
        for key, value in found.items()
        if isinstance(value, list)
    ]
    if found["first_started"]:
        rows.append(("started", f"{found['first_started']} to {found['last_started']}"))
    if study["wall_seconds"] is not None:
        minutes = f"{study['wall_seconds'] / 60:.1f} minutes, for {study['launched']} runs"
        rows.append(("wall time", minutes))
    return TextTable("machine and versions", ("what", "value"), rows)


def ablations_table(task: Mapping[str, Any]) -> TextTable:
    """The idea with one thing changed."""
    rows = [
        (
            each["name"],
            " ".join(each["overrides"]),
            _mean(each["test"]),
            _mean(each["difference"], signed),
            _count(each["n_cells"]),
            each["signature"]["outcome"],
            str(len(each["lost"])),
        )
        for each in task["ablations"]
    ]
    return TextTable(
        "ablations of the chosen configuration, difference to it positive is better",
        (
            "ablation",
            "changes",
            "test [95 % CI]",
            "difference [95 % CI]",
            "cells",
            "signature",
            "lost",
        ),
        rows,
    )


def losses_table(task: Mapping[str, Any]) -> TextTable:
    """Runs that did not complete."""
    lost = [run for arm in task["arms"] for run in arm["lost"]]
    lost += [run for each in task["ablations"] for run in each["lost"]]
    rows = [(run["record"], run["status"], run["reason"] or "") for run in lost]
    return TextTable("runs that did not complete", ("record", "status", "reason"), rows)


def gaps_table(task: Mapping[str, Any]) -> TextTable:
    """Pairs that lack a side."""
    rows = [
        (f"{each['idea']} vs {each['baseline']}", str(gap["seed"]), gap["arm"], gap["status"])
        for each in task["comparisons"]
        for gap in each["gaps"]
    ]
    commands = [command for each in task["comparisons"] for command in each["commands"]]
    return TextTable(
        "pairs that are refused, for they lack a side",
        ("comparison", "seed", "arm", "status"),
        rows,
        "fill the gaps with: " + "; ".join(dict.fromkeys(commands)) if commands else "",
    )


def number(value: float) -> str:
    """Four digits behind the point, or three significant ones where that shows nothing."""
    return f"{value:.4f}" if abs(value) >= 1e-2 or value == 0 else f"{value:.3g}"


def signed(value: float | None) -> str:
    """A difference, with its sign."""
    return "unbounded" if value is None else f"{value:+.3g}"


def interval(ends: Sequence[float | None]) -> str:
    """A confidence interval of a difference."""
    return f"[{signed(ends[0])}, {signed(ends[1])}]"


def observed(value: Any) -> str:
    """What a check predicted or saw, shortened."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {observed(each)}" for key, each in value.items())
    if isinstance(value, (list, tuple)):
        shown = list(map(observed, value))
        if len(shown) > 8:
            shown = [*shown[:3], f"... {shown[-1]} ({len(shown)} values)"]
        return ", ".join(shown)
    return str(value)


def _score(run: Mapping[str, Any] | None) -> str:
    if run is None:
        return "missing"
    return run["status"] if run["test"] is None else number(run["test"])


def _values(values: Mapping[str, Any] | None) -> str:
    if values is None:
        return "-"
    return (
        ", ".join(f"{key}={as_override(value)}" for key, value in values.items()) or "as configured"
    )


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _total(operations: Mapping[str, float] | None) -> str:
    return "" if operations is None else f"{sum(operations.values()):,.0f}"


def _by_kind(operations: Mapping[str, float] | None) -> str:
    kinds = (operations or {}).items()
    return ", ".join(f"{n:,.0f} {name.replace('_', ' ')}" for name, n in kinds if n)


def _mean(summary: Mapping[str, Any], shown: Any = number) -> str:
    if summary["mean"] is None:
        return "-"
    low, high = summary["interval"]
    ends = "" if low is None else f" [{shown(low)}, {shown(high)}]"
    return f"{shown(summary['mean'])}{ends}"
