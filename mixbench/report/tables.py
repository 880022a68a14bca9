"""The report's tables as rows of text, shared by the terminal and Markdown. Never imports torch."""

from __future__ import annotations

from mixbench.compare.content import TaskReport
from mixbench.core.numbers import interval, number, signed
from mixbench.report.detail_tables import signature_table
from mixbench.report.format import (
    TextTable,
    by_kind,
    count_text,
    diagnostics_text,
    mean_text,
    optional,
    total_operations,
    values_text,
)


def task_tables(task: TaskReport) -> list[TextTable]:
    """All tables of one task of a comparison, in reading order; empty ones are left out."""
    if task.metric is None:  # no run of it has left a result
        return [gaps_table(task)] if gaps_table(task).rows else []
    tables = [
        scores_table(task),
        comparisons_table(task),
        costs_table(task),
        analysis_table(task),
        probes_table(task),
        trials_table(task),
        budget_table(task),
        signature_table(task),
        ablations_table(task),
        losses_table(task),
        gaps_table(task),
    ]
    return [table for table in tables if table.rows]


def scores_table(task: TaskReport) -> TextTable:
    """What every arm chose and scored."""
    better = "higher is better" if task.higher_is_better else "lower is better"
    assert task.metric is not None  # some run has left a result
    assert task.margin is not None
    chance = task.trivial_baseline.get(task.metric)
    told = "" if chance is None else f", chance {number(chance)}"
    rows = []
    for arm in task.arms:
        edge = f" (edge of {', '.join(arm.on_edge)})" if arm.on_edge else ""
        rows.append(
            (
                arm.name,
                str(len(arm.trials)),
                values_text(arm.evaluated) + edge,
                mean_text(arm.valid),
                mean_text(arm.test),
                "-" if arm.test.iqm is None else number(arm.test.iqm),
                str(len(arm.lost)),
            )
        )
    return TextTable(
        f"{task.metric} on {task.name} ({better}{told}, margin {number(task.margin)})",
        ("arm", "trials", "chosen", "valid [95 % CI]", "test [95 % CI]", "test IQM", "lost"),
        rows,
    )


def costs_table(task: TaskReport) -> TextTable:
    """What every arm costs."""
    rows = [
        (
            arm.name,
            count_text(arm.parameters),
            count_text(
                arm.measured_state_size if arm.measured_state_size is not None else arm.state_size
            ),
            diagnostics_text(arm.diagnostics),
            total_operations(arm.operations),
            by_kind(arm.pair_operations),
            "-" if arm.seconds.mean is None else f"{arm.seconds.mean:.1f}",
            f"{arm.seconds.total:.0f}",
        )
        for arm in task.arms
    ]
    return TextTable(
        "costs of the chosen configurations, all layers together",
        (
            "arm",
            "parameters",
            "state held",
            "diagnostics",
            "ops/token",
            "a pair and head",
            "seconds a run",
            "total s",
        ),
        rows,
    )


def analysis_table(task: TaskReport) -> TextTable:
    """What only this task can say of the arms."""
    analysis = task.analysis
    if analysis is None:
        return TextTable("analysis", (), [])
    names = list(dict.fromkeys(name for arm in task.arms for name in arm.analysis))
    rows = [
        (arm.name, *(optional(arm.analysis.get(name)) for name in names))
        for arm in task.arms
        if arm.analysis
    ]
    return TextTable(analysis.title, ("arm", *names), rows, analysis.note)


def probes_table(task: TaskReport) -> TextTable:
    """Further test sets, which nothing was chosen by."""
    names = list(dict.fromkeys(name for arm in task.arms for name in arm.probes))
    rows = [
        (arm.name, *(optional(arm.probes.get(name)) for name in names))
        for arm in task.arms
        if arm.probes
    ]
    title = f"{task.metric} on further test sets, means over the evaluation seeds"
    return TextTable(title, ("arm", *names), rows, "nothing was chosen by them")


def comparisons_table(task: TaskReport) -> TextTable:
    """Paired differences, one line a comparison."""
    rows = []
    for each in task.comparisons:
        several = len({other.baseline for other in task.comparisons}) > 1
        strongest = several and each.baseline == task.strongest_baseline
        name = f"{each.idea} vs {each.baseline}{' (strongest)' if strongest else ''}"
        outcome = ", ".join([each.outcome, *each.qualifiers])
        found = each.statistics
        if found is None:
            told = f"{len(each.gaps)} sides missing"
            rows.append((name, outcome, "", "", "", "", "", f"{len(each.pairs)} ({told})"))
            continue
        rows.append(
            (
                name,
                outcome,
                signed(found.d),
                interval(found.interval),
                f"{found.p:.3g} ({found.p_adjusted:.3g})",
                f"{found.probability_of_improvement:.2f}",
                "" if found.effect_size is None else f"{found.effect_size:.2f}",
                str(len(each.pairs)),
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


def trials_table(task: TaskReport) -> TextTable:
    """Every trial's validation, the chosen one marked."""
    rows = []
    for arm in task.arms:
        for index, trial in enumerate(arm.trials):
            lost = {k: n for k, n in trial.status.items() if k != "completed"}
            rows.append(
                (
                    arm.name,
                    values_text(trial.values),
                    "worst" if trial.mean is None else number(trial.mean),
                    ", ".join("-" if s is None else number(s) for s in trial.scores),
                    ", ".join(f"{n} {state}" for state, n in lost.items()),
                    "chosen" if index == arm.chosen else "",
                )
            )
    return TextTable(
        "selection by mean validation",
        ("arm", "trial", "mean valid", "by seed", "lost", ""),
        rows,
    )


def budget_table(task: TaskReport) -> TextTable:
    """Expected validation of the best of n trials."""
    most = max((len(arm.budget) for arm in task.arms), default=0)
    rows = [
        (
            arm.name,
            *("-" if v is None else number(v) for v in arm.budget),
            *("" for _ in range(most - len(arm.budget))),
        )
        for arm in task.arms
    ]
    return TextTable(
        "expected validation of the best of n trials",
        ("arm", *(f"n={n}" for n in range(1, most + 1))),
        rows if most > 1 else [],
    )


def ablations_table(task: TaskReport) -> TextTable:
    """The idea with one thing changed."""
    rows = [
        (
            each.name,
            " ".join(each.overrides),
            mean_text(each.test),
            mean_text(each.difference, signed),
            diagnostics_text(each.diagnostics),
            each.signature.outcome,
            str(len(each.lost)),
        )
        for each in task.ablations
    ]
    return TextTable(
        "ablations of the chosen configuration, difference to it positive is better",
        (
            "ablation",
            "changes",
            "test [95 % CI]",
            "difference [95 % CI]",
            "diagnostics",
            "signature",
            "lost",
        ),
        rows,
    )


def losses_table(task: TaskReport) -> TextTable:
    """Runs that did not complete."""
    lost = [run for arm in task.arms for run in arm.lost]
    lost += [run for each in task.ablations for run in each.lost]
    rows = [(run.record, run.status, run.reason or "") for run in lost]
    return TextTable("runs that did not complete", ("record", "status", "reason"), rows)


def gaps_table(task: TaskReport) -> TextTable:
    """Pairs that lack a side."""
    rows = [
        (f"{each.idea} vs {each.baseline}", str(gap.seed), gap.arm, gap.status)
        for each in task.comparisons
        for gap in each.gaps
    ]
    commands = [command for each in task.comparisons for command in each.commands]
    return TextTable(
        "unpaired seeds (excluded)",
        ("comparison", "seed", "arm", "status"),
        rows,
        "fill the gaps with: " + "; ".join(dict.fromkeys(commands)) if commands else "",
    )
