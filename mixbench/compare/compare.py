"""Studies to comparisons: choices, paired differences, verdicts and costs as plain data.

`compare` makes the content of `report.json`: strings, numbers, lists and dictionaries, None where
a number is not known. Tables, pages and plots are drawn from it alone. Never imports torch.
"""

from __future__ import annotations

import re
from typing import Any

from mixbench.compare.analyses import mean_analysis, mean_probes, task_analysis
from mixbench.compare.arms import ablation_rows, arm_summary, worst_metrics
from mixbench.compare.headline import study_headline
from mixbench.compare.notes import config_differences, environment_of, stale_choices
from mixbench.compare.pairs import (
    add_statistics,
    compared_names,
    judging_commands,
    paired_scores,
    strongest_baseline,
)
from mixbench.compare.studies import StudyRuns, TaskRuns
from mixbench.records.result import COMPLETED


def compare(study: StudyRuns) -> dict[str, Any]:
    """One study's comparison, see the module."""
    tasks = [_task(study, task) for task in study.tasks.values()]
    comparisons = [comparison for task in tasks for comparison in task["comparisons"]]
    add_statistics(comparisons)
    for task in tasks:
        task["verdicts"] = [
            study_headline(study, task, idea) for idea in study.ideas if compared_names(task, idea)
        ]
    content = {
        "name": study.name,
        "title": study.title,
        "planned": study.planned,
        "stage": study.stage,
        "ideas": study.ideas,
        "baselines": study.baselines,
        "published": study.published,
        "source": study.source,
        "command": study.command,
        "commands": [study.command] if study.planned else judging_commands(study),
        "wall_seconds": study.wall_seconds,
        "launched": study.launched,
        "notes": study.notes + stale_choices(tasks) + config_differences(study),
        "environment": environment_of(study),
        "tasks": tasks,
    }
    clean: dict[str, Any] = _strip_control_characters(content)
    return clean


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


# What stands for a task of which no run has left a result.
_NOTHING: dict[str, Any] = {
    "metric": None,
    "higher_is_better": True,
    "margin": None,
    "config": {"dataset": {}},
}


def _task(study: StudyRuns, task: TaskRuns) -> dict[str, Any]:
    runs = [run for arm in task.arms.values() for run in arm.runs]
    known = next((run.result for run in runs if run.result is not None), _NOTHING)
    sign = 1.0 if known["higher_is_better"] else -1.0
    worst = worst_metrics(task, known["metric"], sign)
    arms = [arm_summary(arm, sign, worst) for arm in task.arms.values()]
    completed = [run.result for run in runs if run.result and run.status == COMPLETED]
    comparisons = [
        paired_scores(study, task, idea, baseline, sign, worst)
        for idea in study.ideas
        for baseline in study.baselines
        if idea in task.arms and baseline in task.arms
    ]
    for arm in arms:
        results = [run.result for run in task.arms[arm["name"]].evaluation]
        arm["analysis"] = mean_analysis(results)
        arm["probes"] = mean_probes(results)
    margin = known["margin"] if task.margin is None else task.margin
    for comparison in comparisons:
        comparison |= {"margin": margin, "ceiling": known.get("ceiling"), "sign": sign}
    return {
        "name": task.name,
        "metric": known["metric"],
        "higher_is_better": known["higher_is_better"],
        "margin": margin,
        "trivial_baseline": completed[0]["trivial_baseline"] if completed else {},
        "ceiling": known.get("ceiling"),
        "dataset": known["config"]["dataset"],
        "analysis": task_analysis(completed),
        "arms": arms,
        "comparisons": comparisons,
        "strongest_baseline": strongest_baseline(study, arms, sign),
        "ablations": ablation_rows(study, task, sign, worst),
    }
