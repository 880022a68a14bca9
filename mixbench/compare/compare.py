"""Studies to reports: choices, paired differences, verdicts and costs.

`compare` makes the content of `report.json`; tables, pages and plots are drawn from it alone. Never
imports torch.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec.structs import replace

from mixbench.compare.analyses import task_analysis
from mixbench.compare.arms import ablation_reports, arm_report, worst_metrics
from mixbench.compare.content import StudyReport, TaskReport
from mixbench.compare.notes import config_differences, environment_of, stale_choices
from mixbench.compare.pairs import (
    judging_commands,
    paired_scores,
    strongest_baseline,
    with_statistics,
)
from mixbench.compare.studies import StudyRuns, TaskRuns
from mixbench.compare.verdicts import study_verdict
from mixbench.records.result import COMPLETED


def compare(study: StudyRuns) -> StudyReport:
    """One study's comparison, see the module."""
    tasks = with_statistics([_task(study, task) for task in study.tasks.values()])
    tasks = [
        replace(
            task,
            verdicts=[
                study_verdict(study, task, idea)
                for idea in study.ideas
                if any(comparison.idea == idea for comparison in task.comparisons)
            ],
        )
        for task in tasks
    ]
    report = StudyReport(
        name=study.name,
        title=study.title,
        planned=study.planned,
        stage=study.stage,
        ideas=study.ideas,
        baselines=study.baselines,
        published=study.published,
        source=study.source,
        command=study.command,
        commands=[study.command] if study.planned else judging_commands(study),
        wall_seconds=study.wall_seconds,
        launched=study.launched,
        notes=study.notes + stale_choices(tasks) + config_differences(study),
        environment=environment_of(study),
        tasks=tasks,
    )
    return msgspec.convert(_strip_control_characters(msgspec.to_builtins(report)), StudyReport)


def _strip_control_characters(content: Any) -> Any:
    """Plain data, its texts without what acts on a terminal or page instead of being read.

    Control characters, surrogates and overrides of the writing direction become U+FFFD: records may
    come from strangers.
    """
    if isinstance(content, (float, int)):  # nearly all of it
        return content
    if isinstance(content, str):
        return _ILLEGIBLE.sub("\N{REPLACEMENT CHARACTER}", content)
    if isinstance(content, dict):
        return {
            _strip_control_characters(key): _strip_control_characters(value)
            for key, value in content.items()
        }
    if isinstance(content, (list, tuple)):
        return list(map(_strip_control_characters, content))
    return content


_ILLEGIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def _task(study: StudyRuns, task: TaskRuns) -> TaskReport:
    results = [run.result for arm in task.arms.values() for run in arm.runs if run.result]
    completed = [result for result in results if result.status == COMPLETED]
    known = results[0] if results else None
    metric = None if known is None else known.metric
    sign = 1.0 if known is None or known.higher_is_better else -1.0
    worst = worst_metrics(task, metric, sign)
    arms = [arm_report(arm, sign, worst) for arm in task.arms.values()]
    margin = task.margin
    if margin is None and known is not None:
        margin = known.margin
    return TaskReport(
        name=task.name,
        metric=metric,
        higher_is_better=sign > 0,
        margin=margin,
        ceiling=None if known is None else known.ceiling,
        trivial_baseline=completed[0].trivial_baseline if completed else {},
        dataset={} if known is None else known.config["dataset"],
        analysis=task_analysis(completed),
        arms=arms,
        comparisons=[
            paired_scores(study, task, idea, baseline, sign, worst)
            for idea in study.ideas
            for baseline in study.baselines
            if idea in task.arms and baseline in task.arms
        ],
        strongest_baseline=strongest_baseline(study, arms, sign),
        ablations=ablation_reports(study, task, sign, worst),
    )
