"""What a comparison would run, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from mixbench.config.comparison_schema import ABLATION, EVALUATION, SELECTION
from mixbench.core.overrides import as_override
from mixbench.sweeps.study import Study


def plan_table(study: Study) -> Table:
    """The runs that a comparison asks for, without running any."""
    numbers = study.numbers()
    said = ", ".join(f"{count} {stage}" for stage, count in numbers.items() if count)
    if study.search.kind == "random":
        said += f"; up to {study.max_extension_runs()} more beyond edges"
    table = Table(
        title=Text(f"{study.name}: {sum(numbers.values())} runs ({said}); nothing was run"),
        title_justify="left",
    )
    for name in ("task", "arm", "stage", "configuration", "seeds", "runs"):
        table.add_column(name, overflow="fold")

    def row(task: str, arm: str, stage: str, what: str, seeds: Sequence[int]) -> None:
        shown = ", ".join(map(str, seeds))
        table.add_row(*map(Text, (task, arm, stage, what, shown, str(len(seeds)))))

    for task in study.tasks.values():
        for arm in study.arms.values():
            fixed = [f"{key} of {other}'s choice" for key, other in arm.inherit.items()]
            for trial in arm.trials:
                values = [f"{key}={as_override(value)}" for key, value in trial.items()]
                what = ", ".join([*values, *fixed]) or "as configured"
                row(task.name, arm.name, SELECTION, what, study.selection_seeds)
        for arm in study.arms.values():
            row(task.name, arm.name, EVALUATION, f"best of {len(arm.trials)}", study.eval_seeds)
        for name, texts in study.ablations.items() if task.ablations else ():
            row(
                task.name,
                study.ideas[0],
                ABLATION,
                f"{name}: {' '.join(texts)}",
                study.ablation_seeds,
            )
    return table
