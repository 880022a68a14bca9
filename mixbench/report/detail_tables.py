"""Tables for who looks closer: signatures, seeds, configurations, the machine."""

from __future__ import annotations

from mixbench.compare.content import StudyReport, TaskReport
from mixbench.core.numbers import signed
from mixbench.core.overrides import as_override, flat
from mixbench.report.format import TextTable, observed, score_text


def signature_table(task: TaskReport) -> TextTable:
    """What each mixer predicts about itself, on the trained models."""
    rows: list[tuple[str, ...]] = []
    flagged = set()
    for arm in task.arms:
        signature = arm.signature
        for name in dict.fromkeys(check.name for check in signature.checks):
            layers = [check for check in signature.checks if check.name == name]
            held = min(check.holds_in for check in layers)
            if held < signature.models:
                flagged.add(len(rows))
            rows.append(
                (
                    arm.name,
                    name,
                    observed(layers[0].predicted),
                    " / ".join(dict.fromkeys(observed(check.observed) for check in layers)),
                    f"{held}/{signature.models}",
                )
            )
    return TextTable(
        "signatures on the trained models",
        ("arm", "check", "predicted", "observed in the first (by layer)", "holds in"),
        rows,
        flagged=frozenset(flagged),
    )


def seeds_table(task: TaskReport) -> TextTable:
    """Every evaluation seed's test scores, and the paired differences."""
    runs = {
        arm.name: {run.seed: run for run in arm.evaluation} for arm in task.arms if arm.evaluation
    }
    differences = [{pair.seed: pair.difference for pair in each.pairs} for each in task.comparisons]
    rows = [
        (
            str(seed),
            *(score_text(by_seed.get(seed)) for by_seed in runs.values()),
            *("" if seed not in each else signed(each[seed]) for each in differences),
        )
        for seed in sorted({seed for by_seed in runs.values() for seed in by_seed})
    ]
    return TextTable(
        f"test {task.metric} by seed, differences positive is better",
        ("seed", *runs, *(f"{each.idea} vs {each.baseline}" for each in task.comparisons)),
        rows,
    )


def configuration_tables(task: TaskReport) -> list[TextTable]:
    """The chosen configurations: what differs, first what was tuned, and what is the same."""
    configs = {
        arm.name: flat({k: v for k, v in arm.config.items() if k not in ("dataset", "test")})
        for arm in task.arms
        if arm.config is not None
    }
    tuned = [key for arm in task.arms for key in arm.evaluated or ()]
    keys = list(dict.fromkeys(tuned + [key for config in configs.values() for key in config]))
    texts = {
        key: [as_override(c[key]) if key in c else "" for c in configs.values()] for key in keys
    }
    same = [key for key in keys if len(set(texts[key])) == 1 and key not in tuned]
    data = flat(task.dataset)
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


def environment_table(study: StudyReport) -> TextTable:
    """Where and with what the runs were made; several values where records differ."""
    found = study.environment
    rows = [("runs", ", ".join(f"{count} {status}" for status, count in found.runs.items()))]
    names = {
        "code_version": "mixbench's code",
        "threads": "threads a run",
        "cpus": "CPUs",
        "cpu": "CPU",
        "cpu_capability": "CPU instructions",
        "gpu": "GPU",
        "blas": "BLAS",
        "onednn": "oneDNN",
    }
    rows += [(names.get(key, key), ", ".join(values)) for key, values in found.found.items()]
    if found.first_started:
        rows.append(("started", f"{found.first_started} to {found.last_started}"))
    if study.wall_seconds is not None:
        minutes = f"{study.wall_seconds / 60:.1f} minutes, for {study.launched} runs"
        rows.append(("wall time", minutes))
    return TextTable("machine and versions", ("what", "value"), rows)
