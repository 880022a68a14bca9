"""Run records to studies: which arms, trials and seeds there are. Never imports torch.

A comparison's sweep folder says what every run is for. Plain runs and grids do not, so for them it
is inferred, and what was assumed is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mixbench.compare.inferred import infer
from mixbench.compare.planned import from_sweeps
from mixbench.compare.studies import StudyRuns
from mixbench.core.errors import SettingError, nearest
from mixbench.records.folder import RunFolder


def collect(
    paths: Sequence[Path], baseline: str | None = None, idea: str | None = None
) -> list[StudyRuns]:
    """All studies below some paths: sweep folders, run folders, or folders of them.

    Args:
        paths: Where to look.
        baseline: The arm to beat; None for the sweep's, or for attention among plain runs.
        idea: The arm on trial; None for the sweep's, or for every other arm.

    Raises:
        SettingError: A path does not exist or holds no record; no study has such an arm.
    """
    sweeps: list[Path] = []
    runs: list[Path] = []
    for path in paths:
        if not path.exists():
            raise SettingError("report", expected="a path that exists", got=path)
        found = _below(path.resolve())
        if not any(found):
            raise SettingError(
                "report", expected="a folder with run records or sweeps", got=f"{path}, with none"
            )
        sweeps += [sweep for sweep in found[0] if sweep not in sweeps]
        runs += [run for run in found[1] if run not in runs]
    studies, grid_runs, claimed = from_sweeps(sweeps)
    runs += [run for run in grid_runs if run not in runs]
    plain = [RunFolder.at(path) for path in runs if path not in claimed]
    if plain:
        inferred = infer(plain, baseline, idea)
        if inferred.tasks or not studies:
            studies.append(inferred)
    known = {arm for study in studies for task in study.tasks.values() for arm in task.arms}
    for key, name in (("--baseline", baseline), ("--idea", idea)):
        if name is not None and name not in known:
            raise SettingError(
                key,
                expected=f"one of {', '.join(sorted(known)) or 'no arm: nothing has completed'}",
                got=name,
                fix=nearest(name, known),
            )
    for study in studies:
        if study.planned:
            _reassign(study, baseline, idea)
    return studies


def _below(path: Path) -> tuple[list[Path], list[Path]]:
    """Sweep folders and run folders at or below a path."""
    if path.is_file():
        path = path.parent
    if (path / "sweep.json").is_file():
        return [path], []
    if (path / "result.json").is_file() or (path / "run.log").is_file():
        return [], [path]
    sweeps, runs = [], []
    for child in sorted(path.iterdir()):
        if child.is_dir() and not child.name.startswith("."):
            below = _below(child)
            sweeps += below[0]
            runs += below[1]
    return sweeps, runs


def _reassign(study: StudyRuns, baseline: str | None, idea: str | None) -> None:
    """Roles that the user gave instead of the sweep's."""
    arms = {arm for task in study.tasks.values() for arm in task.arms}
    if baseline is not None and baseline in arms and study.baselines != [baseline]:
        study.notes.append(f"--baseline {baseline} instead of {', '.join(study.baselines)}")
        study.baselines = [baseline]
    if idea is not None and idea in arms and study.ideas != [idea]:
        study.notes.append(f"--idea {idea} instead of {', '.join(study.ideas)}")
        study.ideas = [idea]
    for name in set(study.ideas) & set(study.baselines):
        # The role that was given stands; the other one is left to other arms.
        (study.baselines if name == idea else study.ideas).remove(name)
    if not study.ideas or not study.baselines:
        given = "--idea" if idea is not None and not study.baselines else "--baseline"
        raise SettingError(
            given,
            expected="another arm than the one in the other role",
            got=idea if given == "--idea" else baseline,
            fix="give both --idea and --baseline",
        )
