"""The report's tables as rows of text, shared by the terminal and Markdown. Never imports torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mixbench.overrides import as_override


@dataclass(frozen=True)
class TextTable:
    """A titled table of strings; `note` is what its reader has to know."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""


def task_tables(task: Mapping[str, Any]) -> list[TextTable]:
    """All tables of one task of a comparison, in reading order; empty ones are left out."""
    if task["metric"] is None:  # no run of it has left a result
        return [gaps_table(task)] if gaps_table(task).rows else []
    tables = [
        scores_table(task),
        comparisons_table(task),
        costs_table(task),
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
        f"{task['name']}: {task['metric']} ({better}{told}, margin {number(task['margin'])})",
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
    rows = []
    for arm in task["arms"]:
        signature = arm["signature"]
        for name in dict.fromkeys(check["name"] for check in signature["checks"]):
            layers = [check for check in signature["checks"] if check["name"] == name]
            rows.append(
                (
                    arm["name"],
                    name,
                    observed(layers[0]["predicted"]),
                    " / ".join(dict.fromkeys(observed(check["observed"]) for check in layers)),
                    f"{min(check['holds_in'] for check in layers)}/{signature['models']}",
                )
            )
    return TextTable(
        "signatures on the trained models",
        ("arm", "check", "predicted", "observed in the first (by layer)", "holds in"),
        rows,
    )


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
