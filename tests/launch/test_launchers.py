"""Launchers: presets, what they refuse, and what they do with jobs that fail, stop and get lost.

`python -m tests.stress.launcher_check` runs whole comparisons under them, SLURM and Ray with one
node.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus
from hydra.utils import instantiate
from omegaconf import OmegaConf

from mixbench.cli import main as cli
from mixbench.config.check import check
from mixbench.config.compose import compose_config
from mixbench.core.errors import (
    CannotWrite,
    JobRaised,
    JobStopped,
    RunLockedByAnotherProcess,
    RunsFailed,
    SettingError,
    WorkerLost,
)
from mixbench.launch import base as launchers
from mixbench.launch import slurm as slurm_launcher
from mixbench.launch import submitted
from mixbench.launch.slurm import SubmititSlurm
from mixbench.records.folder import RunFolder
from mixbench.sweeps.grid import GridSweeper
from tests.conftest import TINY, run_command
from tests.support import fake_task

PRESETS = sorted(path.stem for path in Path(cli.config_folder(), "hydra/launcher").iterdir())
GRID = ("--config-dir", "conf", "-m", "dataset=first_token", "epochs=1")


def installed(monkeypatch, *, missing: str | None = None) -> None:
    """Let all packages seem to be here but one."""
    find = importlib.util.find_spec

    def found(name, package=None):
        known = [needed for _, needed, _ in launchers._NEEDS]
        return (None if name == missing else object()) if name in known else find(name, package)

    monkeypatch.setattr(launchers.importlib.util, "find_spec", found)


def test_the_launchers_that_the_readme_names_are_there():
    assert PRESETS == ["joblib", "ray", "submitit_local", "submitit_slurm"]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_stands_for_itself(name, monkeypatch, capfd):
    """Other packages register their own under the same names, with other keys."""
    store = ConfigStore.instance()
    store.store(name, {"_target_": "theirs", "surprise": 1}, group="hydra/launcher")
    assert run_command(f"hydra/launcher={name}", "--cfg", "hydra") == 0
    out, err = capfd.readouterr()
    shown = OmegaConf.create(out).hydra.launcher
    ours = OmegaConf.load(Path(cli.config_folder(), f"hydra/launcher/{name}.yaml"))
    assert shown == ours
    assert err == ""


@pytest.mark.parametrize(
    ("launcher", "package", "extra"),
    [
        ("joblib", "hydra_plugins.hydra_joblib_launcher", "parallel"),
        ("submitit_local", "submitit", "slurm"),
        ("submitit_slurm", "submitit", "slurm"),
        ("ray", "ray", "ray"),
    ],
)
def test_a_missing_package_is_one_line(tmp_path, monkeypatch, capfd, launcher, package, extra):
    monkeypatch.chdir(tmp_path)
    installed(monkeypatch, missing=package)
    assert run_command("-m", *TINY, "seed=1,2", f"hydra/launcher={launcher}") == 2
    assert capfd.readouterr().err == (
        "mixbench: hydra/launcher: expected one whose package is installed, "
        f"got {launcher}; pip install 'mixbench[{extra}]'\n"
    )
    assert not (tmp_path / "outputs").exists()


SLURM, LOCAL, RAY = (
    f"hydra/launcher={name}" for name in ("submitit_slurm", "submitit_local", "ray")
)
MISTAKES = [
    ((SLURM,), "hydra/launcher", "expected SLURM's commands on this machine, got none"),
    ((SLURM, "hydra.launcher.array_parallelism=0"), "hydra.launcher.array_parallelism", "least 1"),
    ((SLURM, "hydra.launcher.timeout_min=soon"), "hydra.launcher.timeout_min", "a whole number"),
    ((SLURM, "hydra.launcher.mem_gb=much"), "hydra.launcher.mem_gb", "a number, got much"),
    ((SLURM, "+hydra.launcher.partitoin=x"), "hydra.launcher.partitoin", "did you mean 'partit"),
    ((SLURM, "hydra.launcher.partitoin=x"), "hydra.launcher.partitoin", "did you mean 'partit"),
    ((LOCAL, "hydra.launcher.cpus_per_task=0"), "hydra.launcher.cpus_per_task", "at least 1"),
    ((LOCAL, "hydra.launcher.timeout_min=0"), "hydra.launcher.timeout_min", "at least 1"),
    ((RAY, "hydra.launcher.ray.remote=2"), "hydra.launcher.ray.remote", "a table of settings"),
]


@pytest.mark.parametrize(("arguments", "key", "says"), MISTAKES)
def test_a_mistake_is_one_line(tmp_path, monkeypatch, capfd, arguments, key, says):
    monkeypatch.chdir(tmp_path)
    installed(monkeypatch)
    monkeypatch.setattr(slurm_launcher.shutil, "which", lambda name: None)
    assert run_command("-m", *TINY, "seed=1,2", *arguments) == 2
    out, err = capfd.readouterr()
    (line,) = (out + err).splitlines()
    assert line.startswith(f"mixbench: {key}: expected "), line
    assert says in line
    assert not (tmp_path / "outputs").exists()


def test_lists_and_tables_reach_the_libraries_as_such():
    folder = Path(cli.config_folder(), "hydra/launcher")
    node = OmegaConf.load(folder / "submitit_slurm.yaml")
    node.update(cpus_per_task=2, mem_gb=1.5, setup=["module load x"])
    node.additional_parameters = {"exclude": "node7"}
    parameters = instantiate(node).parameters
    assert parameters["setup"] == ["module load x"]
    assert type(parameters["setup"]) is list
    assert parameters["additional_parameters"] == {"exclude": "node7"}
    assert type(parameters["additional_parameters"]) is dict
    assert parameters["mem"] == "1536M"
    assert parameters["srun_args"] == ["--cpus-per-task=2"]
    node = OmegaConf.load(folder / "ray.yaml")
    node.ray.remote.num_cpus = 1
    node.ray.init.runtime_env = {"env_vars": {"PYTHONPATH": "/shared"}}
    environment = instantiate(node).options["init"]["runtime_env"]["env_vars"]
    assert type(environment) is dict


def test_a_machine_without_a_gpu_hands_runs_to_one_that_has_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    cfg = compose_config(["device=cuda"])
    assert check(cfg, cfg.hydra, elsewhere=True).device == "cuda"
    with pytest.raises(SettingError, match="sees no CUDA device"):
        check(cfg, cfg.hydra)
    cfg = compose_config([])
    assert check(cfg, cfg.hydra, elsewhere=True).device == "cpu"  # auto is decided here


@pytest.mark.parametrize(
    "error",
    [
        JobStopped("SIGTERM", signal.SIGTERM),
        JobRaised("ValueError: no", "Traceback ..."),
        WorkerLost("killed", "its output"),
        RunLockedByAnotherProcess("a run"),
        RunsFailed("the run diverged"),
        CannotWrite("a file", "no room"),
    ],
)
def test_what_jobs_raise_survives_the_way_back(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.args) == (type(error), str(error), error.args)


# ------------------------------------------------------------------------ for real, on this machine


@pytest.mark.parametrize(
    ("launcher", "package"),
    [("joblib", "joblib"), ("submitit_local", "submitit"), ("ray", "ray")],
)
def test_a_run_that_fails_leaves_the_others_alone(tmp_path, monkeypatch, capfd, launcher, package):
    """Its exception is of a class that cannot be pickled, which no launcher survives as it is."""
    pytest.importorskip(package, reason=f"hydra/launcher={launcher} needs it")
    fake_task.write_conf(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")  # so that no table breaks a reason
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
    assert run_command(*GRID, "mixer=first,failing", f"hydra/launcher={launcher}") == 1
    results = [json.loads(path.read_text()) for path in tmp_path.glob("outputs/runs/*/result.json")]
    status = {result["config"]["mixer"]["_target_"]: result["status"] for result in results}
    assert status == {
        "tests.support.fake_task.First": "completed",
        "tests.support.fake_task.Failing": "failed",
    }
    (failed,) = (result for result in results if result["status"] == "failed")
    assert failed["reason"] == "Unpicklable: no mixer of width 16"
    (log,) = tmp_path.glob(f"outputs/runs/*{failed['identity']}/run.log")
    assert log.read_text().count("Traceback (most recent call last)") == 1
    out, err = capfd.readouterr()
    assert "failed: Unpicklable: no mixer of width 16" in out
    assert err.endswith("(the first raised Unpicklable: no mixer of width 16)\n")
    said = [path.read_text() for path in tmp_path.glob("outputs/sweeps/*/.submitit/*.out")]
    assert sum("completed successfully" in text for text in said) == len(said) // 2
    assert not list(tmp_path.glob("outputs/sweeps/*/.submitit/*.answer"))


# ----------------------------------------------------------------------------- against a fake SLURM


class Slurm:
    """A queue that does what a test says.

    Args:
        folder: Of the sweep.
        squeue: For each time that it is asked, the jobs and their states; None if it is down.
    """

    def __init__(self, monkeypatch, folder: Path, *squeue: dict[str, str] | None, **changes):
        self.asked, self.cancelled, self.submitted = list(squeue), [], []
        self.answers: dict[str, list[JobReturn]] = {}
        node = OmegaConf.load(Path(cli.config_folder(), "hydra/launcher/submitit_slurm.yaml"))
        node.update({"cpus_per_task": 1, **changes})
        arguments = OmegaConf.to_container(node)
        del arguments["_target_"]
        self.launcher = SubmititSlurm(**arguments)
        self.launcher.setup(
            hydra_context=None,
            task_function=None,
            config=OmegaConf.create({"hydra": {"sweep": {"dir": str(folder)}}}),
        )
        self.stop = False
        monkeypatch.setattr(self.launcher, "stopping", lambda: self.stop)
        monkeypatch.setattr(self.launcher, "_executor", lambda: self)
        monkeypatch.setattr(slurm_launcher.subprocess, "run", self.run)
        monkeypatch.setattr(submitted, "POLL_SECONDS", 0.0)
        for name in ("_ASK", "_ASK_STOPPING"):
            monkeypatch.setattr(slurm_launcher, f"{name}_SECONDS", 0.0)
        self.folder = folder

    def run(self, command, **options):
        """The commands of SLURM."""
        name, *arguments = command
        if name == "scancel":
            self.cancelled += [text for text in arguments if not text.startswith("-")]
        if name == "scontrol":
            text = "JobId=7 JobState=OUT_OF_MEMORY Reason=OutOfMemory Requeue=1"
            return subprocess.CompletedProcess(command, 0, text)
        if name != "squeue":
            return subprocess.CompletedProcess(command, 0, "")
        queue = self.asked.pop(0) if len(self.asked) > 1 else self.asked[0]
        if queue is None:
            return subprocess.CompletedProcess(command, 1, "", "slurm_load_jobs error: no contact")
        lines = [f"{key} {state}" for key, state in queue.items()]
        for key in queue:
            self.answer(key)
        return subprocess.CompletedProcess(command, 0, "\n".join(lines))

    def answer(self, key: str) -> None:
        """A job that is in the queue gives its next answer."""
        for job in self.submitted:
            if job.job_id == key and self.answers.get(key):
                job.path.write_bytes(pickle.dumps(self.answers[key].pop(0)))

    def map_array(self, function, *arguments):
        """What submitit's executor does."""
        jobs = []
        for path in arguments[-1]:
            name = f"7_{len(self.submitted)}"
            output = self.folder / f"{name}.err"
            output.write_text("Killed by the kernel\n")
            paths = SimpleNamespace(
                stderr=output, submitted_pickle=output.with_suffix(".in"),
                result_pickle=output.with_suffix(".pkl"),
            )  # fmt: skip
            job = SimpleNamespace(job_id=name, path=path, paths=paths, stderr=output.read_text)
            self.submitted.append(job)
            jobs.append(job)
        return jobs


def done(error: RunsFailed | None = None) -> JobReturn:
    status = JobStatus.COMPLETED if error is None else JobStatus.FAILED
    return JobReturn(status=status, _return_value=error)


RUNNING, PENDING = "RUNNING None", "PENDING Resources"


def test_a_lost_job_costs_no_other(tmp_path, monkeypatch):
    """It is lost once the queue has twice not had it; a queue that is down has lost nothing."""
    both = {"7_0": RUNNING, "7_1": RUNNING}
    slurm = Slurm(
        monkeypatch, tmp_path, both, {"7_1": RUNNING}, None, both, {"7_1": RUNNING},
        {"7_1": RUNNING}, {},
    )  # fmt: skip
    slurm.answers["7_1"] = []
    ask = slurm.run
    looks = []

    def run(command, **options):
        looks.append(command[0])
        if looks.count("squeue") == 6:
            slurm.answers["7_1"] = [done()]
        return ask(command, **options)

    monkeypatch.setattr(slurm_launcher.subprocess, "run", run)
    first, second = slurm.launcher.launch([["seed=1"], ["seed=2"]], 3)
    assert second.status == JobStatus.COMPLETED
    assert isinstance(first._return_value, WorkerLost)
    assert str(first._return_value) == (
        "SLURM's job 7_0 ended (OUT_OF_MEMORY, OutOfMemory): exited without returning a "
        f"result; last stderr line 'Killed by the kernel': {tmp_path}/7_0.err"
    )
    assert looks.count("squeue") == 6
    assert not list(tmp_path.glob(".submitit/*"))


def test_a_job_slurm_puts_back_is_waited_for(tmp_path, monkeypatch):
    stopped = done(JobStopped("SIGTERM", signal.SIGTERM))
    slurm = Slurm(
        monkeypatch, tmp_path, {"7_0": RUNNING}, {"7_0": "COMPLETING None"}, {"7_0": PENDING},
        {"7_0": RUNNING},
    )  # fmt: skip
    answers = iter([stopped, None, None, done()])

    def answer(key):
        each = next(answers)
        if each is not None:
            slurm.submitted[0].path.write_bytes(pickle.dumps(each))

    monkeypatch.setattr(slurm, "answer", answer)
    (found,) = slurm.launcher.launch([["seed=1"]], 0)
    assert found.status == JobStatus.COMPLETED
    assert len(slurm.submitted) == 1


def test_a_job_that_somebody_cancelled_is_not_started_again(tmp_path, monkeypatch):
    slurm = Slurm(monkeypatch, tmp_path, {"7_0": RUNNING}, {})
    slurm.answers["7_0"] = [done(JobStopped("SIGTERM", signal.SIGTERM))]
    (found,) = slurm.launcher.launch([["seed=1"]], 0)
    assert isinstance(found._return_value, JobStopped)
    assert len(slurm.submitted) == 1


def test_a_run_longer_than_its_job_goes_on_in_another(tmp_path, monkeypatch):
    over = done(JobStopped("SIGUSR2", signal.SIGUSR2))
    queue = {f"7_{number}": RUNNING for number in range(4)}
    slurm = Slurm(monkeypatch, tmp_path, queue, max_num_timeout=2)
    slurm.answers = {"7_0": [over], "7_1": [over], "7_2": [done()]}
    (found,) = slurm.launcher.launch([["seed=1"]], 0)
    assert found.status == JobStatus.COMPLETED
    assert len(slurm.submitted) == 3
    slurm = Slurm(monkeypatch, tmp_path, queue, max_num_timeout=1)
    slurm.answers = {"7_0": [over], "7_1": [over]}
    (found,) = slurm.launcher.launch([["seed=1"]], 0)
    assert isinstance(found._return_value, JobStopped)
    assert len(slurm.submitted) == 2


def test_a_sweep_that_stops_takes_back_what_has_not_started(tmp_path, monkeypatch):
    slurm = Slurm(monkeypatch, tmp_path, {"7_0": RUNNING, "7_1": PENDING})
    slurm.stop = True
    monkeypatch.setattr(slurm_launcher, "_ARRAY", 2)
    submit = slurm.map_array

    def map_array(*arguments):  # told to stop while it submits
        slurm.answers["7_0"] = [done(JobStopped("SIGINT", signal.SIGINT))]
        slurm.stop = True
        return submit(*arguments)

    slurm.stop = False
    monkeypatch.setattr(slurm, "map_array", map_array)
    found = slurm.launcher.launch([["seed=1"], ["seed=2"], ["seed=3"]], 0)
    assert [str(each._return_value) for each in found] == [
        "told to stop: SIGINT",
        "told to stop: before it started",
        "told to stop: before it started",
    ]
    assert slurm.cancelled == ["7_1"]
    assert len(slurm.submitted) == 2


def test_why_jobs_wait_is_said_once(tmp_path, monkeypatch, capfd):
    waits = {"7_0": "PENDING PartitionTimeLimit"}
    slurm = Slurm(monkeypatch, tmp_path, waits, waits, {"7_0": PENDING}, None, {"7_0": RUNNING})
    ask = slurm.run

    def run(command, **options):
        if len(slurm.asked) == 1:
            slurm.answers["7_0"] = [done()]
        return ask(command, **options)

    monkeypatch.setattr(slurm_launcher.subprocess, "run", run)
    slurm.launcher.launch([["seed=1"]], 0)
    assert capfd.readouterr().out == (
        "jobs wait in SLURM's queue: PartitionTimeLimit\n"
        "SLURM does not answer: slurm_load_jobs error: no contact\n"
    )


# ---------------------------------------------------------------------------------- the sweep's end


@pytest.fixture
def sweeper():
    made = GridSweeper(None)
    made.setup(hydra_context=None, task_function=None, config=None)
    return made


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["hydra/launcher=submitit_slurm"], ["device=cpu", "cpu_capability=AVX2"]),
        (["hydra/launcher=submitit_slurm", "cpu_capability=AVX512", "device=cuda"], []),
        ([], []),
    ],
)
def test_jobs_elsewhere_are_told_what_was_decided_here(sweeper, monkeypatch, overrides, told):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    sweeper.base = compose_config(overrides)
    assert sweeper.decided_here() == told


def test_a_run_without_a_record_says_what_became_of_it(tmp_path, sweeper):
    names = ("raised", "lost", "stopped", "stray", "elsewhere")
    folders = {name: RunFolder(tmp_path / name, name) for name in names}
    sweeper._handle_return(
        folders["raised"], done(JobRaised("SettingError: device: no", "Traceback: it"))
    )
    sweeper._handle_return(folders["lost"], done(WorkerLost("killed", "killed\nits last words")))
    sweeper._handle_return(folders["stopped"], done(JobStopped("SIGTERM", signal.SIGTERM)))
    sweeper._handle_return(folders["stray"], done())
    sweeper._handle_return(folders["elsewhere"], done(RunLockedByAnotherProcess("another process")))
    assert {folder.identity: text[:14] for folder, text in sweeper.reasons.items()} == {
        "raised": "SettingError: ",
        "lost": "killed",
        "stopped": "told to stop: ",
        "stray": "its job ended,",
    }
    assert sweeper.elsewhere == {folders["elsewhere"]}
    assert folders["raised"].log.read_text().endswith(" ERROR Traceback: it\n")
    assert folders["lost"].log.read_text().endswith(" ERROR killed\nits last words\n")
    assert not folders["stopped"].log.exists()
    assert sweeper.first_error() == " (the first raised SettingError: device: no)"
    sweeper.job_errors.pop(0)
    assert sweeper.first_error() == " (the first was lost: killed)"
