"""The command as users type it: what works as written, and one clear line for every mistake."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TINY, run_command


@pytest.fixture
def call(tmp_path, monkeypatch, capfd):
    """Runs the command in this process: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        return run_command(*arguments), *capfd.readouterr()

    return run


# arguments, the key that the line names, what it must say, and what it must suggest
MISTAKES = [
    (
        "mixer=latice",
        "mixer",
        r"attention, custom, gated_deltanet, gdn, lap",
        "did you mean 'lattice'",
    ),
    ("dataset=mqra", "dataset", r"one of forecasting, mqar", "did you mean 'mqar'"),
    ("dataset/preset=mqar_t64", "dataset/preset", r"mqar_t64_k4", "did you mean 'mqar_t64_k4'"),
    ("model=gpt", "model", r"language_model", ""),
    ("optimizer=sgd", "optimizer", r"adamw", ""),
    ("sweep=smok", "sweep", r"none, smoke", "did you mean 'smoke'"),
    ("mixr=lattice", "mixr", r"got an unknown one", "did you mean 'mixer'"),
    ("mixer=", "mixer", r"got an empty string", ""),
    ("mixer.num_head=3", "mixer.num_head", r"got an unknown one", "did you mean 'num_heads'"),
    ("+mixer.num_head=3", "mixer.num_head", r"got an unknown key", "did you mean 'num_heads'"),
    ("+seeed=3", "seeed", r"got an unknown one", "did you mean 'seed'"),
    ("dataset.growth=0.5", "dataset.growth", r"dataset.curriculum_end, as it is called now", ""),
    ("+dataset.power=1", "dataset.power", r"dataset.slot_exponent, .* got its earlier name", ""),
    ("dataset.vocab=64", "dataset.vocab", r"got an unknown one", "did you mean 'vocab_size'"),
    ("mixer.num_heads=3", "mixer.num_heads", r"divisor of d_model=64, got 3", "1, 2, 4, 8"),
    ("model.d_model=65", "mixer.num_heads", r"divisor of d_model=65, got 2", "model.d_model"),
    ("model.d_model=0", "model.d_model", r"at least 1, got 0", ""),
    ("mixer.num_heads=two", "mixer.num_heads", r"a whole number, got two", ""),
    (
        "dataset.num_pairs=9",
        "dataset.num_pairs",
        r"1 to 8 .*, got 9",
        "raise dataset.seq_len to 36",
    ),
    ("dataset.num_pairs=null", "dataset.num_pairs", r"a whole number, got null", ""),
    ("dataset.vocab_size=9", "dataset.vocab_size", r"at least 10 .*, got 9", ""),
    ("dataset.seq_len=33", "dataset.seq_len", r"an even number of at least 4, got 33", ""),
    ("dataset.filler=noise", "dataset.filler", r"zero, random, disjoint, got noise", ""),
    ("lr=-1", "lr", r"a positive number, got -1", ""),
    ("lr=0", "lr", r"a positive number, got 0", ""),
    ("lr=nan", "lr", r"a positive number, got nan", ""),
    ("lr=inf", "lr", r"a positive number, got inf", ""),
    ("lr=fast", "lr", r"a number, got fast", ""),
    ("lr=", "lr", r"a number, got an empty string", ""),
    ("lr==3", "override", r"key=value, got lr==3", ""),
    ("model=window_regressor", "model", r"one for tokens", ""),
    (
        "dataset=forecasting model=language_model",
        "model.vocab_size",
        r"'dataset.vocab_size' not",
        "",
    ),
    ("dataset=forecasting dataset.series=sunspot", "dataset.series", r"co2, got", "'sunspots'"),
    ("dataset=forecasting dataset.seq_len=0", "dataset.seq_len", r"at least 1, got 0", ""),
    ("dataset=forecasting dataset.num_test=0", "dataset.num_test", r"at least 1, got 0", ""),
    (
        "dataset=forecasting dataset.series=sunspots dataset.num_train=400",
        "dataset.num_train",
        r"at most 213 windows .*, got num_train=400, num_valid=200, num_test=200",
        "set all three, or none",
    ),
    (
        "dataset=forecasting dataset.series=sunspots dataset.seq_len=103",
        "dataset.seq_len",
        r"at most 102 ",
        "",
    ),
    ("mixer=laplacian mixer.sigma=0", "mixer.sigma", r"a positive number, got 0", ""),
    ("mixer=laplacian mixer.sigma=-1", "mixer.sigma", r"a positive number, got -1", ""),
    ("mixer=spiderweb mixer.radius=-1", "mixer.radius", r"at least 0, got -1", ""),
    ("mixer=spiderweb mixer.eta=1", "mixer.eta", r"at least 2, got 1", ""),
    ("mixer=spiderweb mixer.eta=2.5", "mixer.eta", r"a whole number, got 2.5", ""),
    ("mixer=spiderweb mixer.levels=-1", "mixer.levels", r"0 to 5 .*, got -1", ""),
    ("mixer=spiderweb mixer.levels=6", "mixer.levels", r"0 to 5 .*, got 6", ""),
    ("mixer=local mixer.window=0", "mixer.window", r"at least 1, got 0", ""),
    ("~lr", "optimizer.lr", r"Interpolation key 'lr' not found", ""),
    ("weight_decay=-0.1", "weight_decay", r"at least 0, got -0.1", ""),
    ("warmup=1.5", "warmup", r"0 to 1, got 1.5", ""),
    ("grad_clip=0", "grad_clip", r"a positive number, got 0", ""),
    ("seed=-1", "seed", r"at least 0, got -1", ""),
    ("epochs=0", "epochs", r"at least 1, got 0", ""),
    ("epochs=null", "epochs", r"got neither", ""),
    ("steps=1.5", "steps", r"a whole number, got 1.5", ""),
    ("steps=5 epochs=1", "steps", r"either epochs or steps, got both", ""),
    ("batch_size=12801", "batch_size", r"at most dataset.num_train=12800, got 12801", ""),
    ("threads=0", "threads", r"at least 1, got 0", ""),
    ("dtype=float16", "dtype", r"float32, float64, bfloat16, got float16", "did you mean"),
    ("schedule=cosine", "schedule", r"one_cycle, constant, got cosine", ""),
    ("rerun=yes", "rerun", r"none, failed, all", ""),
    ("device=tpu", "device", r"auto, cpu or cuda, got tpu", ""),
    ("mixer.causal=false mixer=lattice", "mixer.causal", r"true .*, got false", ""),
    ("mixer=lattice mixer.addr_scale=-1", "mixer.addr_scale", r"positive number, got -1", ""),
    ("mixer=lattice mixer.weights=sum", "mixer.weights", r"unit, partition, got sum", ""),
    ("mixer._target_=nowhere.Mixer", "mixer._target_", r"No module named 'nowhere'", ""),
    ("mixer._target_=torch.nn.Nope", "mixer._target_", r"torch.nn.Nope", ""),
    ("mixer._target_=torch.nn.functional.relu", "mixer._target_", r"a class, got", ""),
    ("mixer._target_=tests.cli.test_cli.NotAMixer", "mixer._target_", r"subclass of .*Mixer", ""),
    ("mixer._target_=null", "mixer._target_", r"dotted path of a class, got nothing", ""),
    ("~mixer.d_model", "mixer.d_model", r"a value, .*Attention needs it", ""),
    ("~model.d_model", "mixer.d_model", r"Interpolation key 'model.d_model' not found", ""),
    ("mixer.d_model=32", "mixer.d_model", r"no value of its own", "set model.d_model=32"),
    ("mixer.causal=false", "mixer.causal", r"always that of causal, got false", "set causal=false"),
    ("optimizer.lr=0.05", "optimizer.lr", r"always that of lr, got 0.05", "set lr=0.05"),
    ("-m optimizer.weight_decay=0,1", "optimizer.weight_decay", r"that of weight_decay, got 0", ""),
    ("mixer=gdn conv_width=2", "conv_width", r"no value, .* got 2", "mixer.conv_width"),
    ("mixer=gdn causal=false", "causal", r"no value, .* got false", "mixer.causal"),
    ("schedule=constant warmup=0.1", "warmup", r"no value with schedule=constant, got 0.1", ""),
    ("mixer.d_model=${nope}", "mixer.d_model", r"Interpolation key 'nope' not found", ""),
    ("optimizer.betas=[2,3]", "optimizer", r"Invalid beta", ""),
    ("optimizer.eps=fast", "optimizer.eps", r"a number, got fast", ""),
    ("optimizer.betas=fast", "optimizer.betas", r"a list, \[a,b\], got fast", ""),
    ("output_dir=/proc/nowhere", "output_dir", r"a folder that can be written", ""),
    ("hydra.run.dir=elsewhere", "hydra.run.dir", r"set output_dir instead", ""),
    ("-m lr=1e-3,-1", "lr", r"a positive number, got -1", ""),
    ("-m mixer=attention,latice", "mixer", r"got latice", "did you mean 'lattice'"),
    ("-m mixer.num_heads=1,3", "mixer.num_heads", r"divisor of d_model=64, got 3", ""),
    ("-m hydra.sweep.dir=elsewhere lr=1,2", "hydra.sweep.dir", r"set output_dir instead", ""),
    ("logger=tensorbord", "logger", r"mlflow, none, tensorboard", "did you mean 'tensorboard'"),
    ("logger=[none,wand]", "logger", r"mlflow, none, .*or one of your", "did you mean 'wandb'"),
    ("logger=mlflow,none", "logger", r"several in brackets, got mlflow,none", "[tensorboard,mlf"),
    ("-m logger=mlflow,none", "logger", r"several in brackets, got mlflow,n", "[tensorboard,mlf"),
    ("sweep=laplacian logger=mlflow,none", "logger", r"in brackets, got mlflow,none", ""),
    ("-m logger=wandb logger.wandb.project=a,b", "logger.wandb.project", r"one value: it", ""),
    ("logger.wandb.mode=online", "logger.wandb", r"a logger that is on", "add logger=wandb"),
    ("logger=wandb logger.wandb.mod=a", "logger.wandb.mod", r"an unknown one", "'mode'"),
    ("logger=wandb logger.wandb.mode=on", "logger.wandb.mode", r"offline, online, got on", ""),
    ("logger=wandb logger.wandb.timeout=0", "logger.wandb.timeout", r"a positive number", ""),
    ("+logger.x=3", "logger.x", r"a configuration with a _target_, got 3", ""),
    ("--config-dir nowhere", "--config-dir", r"a folder, got .*nowhere", ""),
    ("--nonsense", "arguments", r"got unrecognized arguments: --nonsense", ""),
    ("-sc install=tcsh", "-sc", r"bash, zsh or fish, got install=tcsh", ""),
    ("-sc", "-sc", r"got nothing", ""),
    ("mixer=null", "mixer", r"one of its choices, got null", "mixbench list"),
    ("seed=0,1", "seed", r"one value, got 0,1", "-m runs a grid of them"),
    ("-m lr=interval(1e-3,1)", "lr", r"choices, .*got interval\(1e-3,1\)", "optuna"),
    ("-m seed=0,0", "grid", r"runs that differ, got seed=0 and seed=0", ""),
    ("-m mixer=gdn,gated_deltanet", "grid", r"runs that differ", ""),
    ("threads=100000000000", "threads", r"at most 1024", ""),
    ("model.d_model=1000000000000", "model", r"fits into memory, got ", ""),
    ("output_dir=", "output_dir", r"a folder, got an empty string", ""),
    ("mixer._target_=", "mixer._target_", r"dotted path of a class, got an empty string", ""),
]


class NotAMixer:
    def __init__(self, d_model: int, causal: bool) -> None:
        pass


@pytest.mark.parametrize(("arguments", "key", "says", "suggests"), MISTAKES)
def test_a_mistake_is_one_line(call, tmp_path, arguments, key, says, suggests):
    code, out, err = call(*arguments.split())
    lines = [line for line in (out + err).splitlines() if line.strip()]
    assert len(lines) == 1, lines
    assert lines[0].startswith(f"mixbench: {key}: expected ")
    assert re.search(says, lines[0]), lines[0]
    assert suggests in lines[0]
    assert code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise RuntimeError('boom\\nat import')", "(RuntimeError: boom at import)"),
        ("import sys; sys.exit('bye')", "(SystemExit: bye)"),
        ("def f(:", "(SyntaxError: "),
        ("class X: pass", "expected a subclass of mixbench.mixers.base.Mixer"),
    ],
)
def test_a_module_that_does_not_import_is_one_line(call, tmp_path, source, says):
    (tmp_path / "own_broken.py").write_text(source)
    code, out, err = call("mixer._target_=own_broken.X")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("mixbench: mixer._target_: expected ")
    assert says in err
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    ("content", "key", "says"),
    [
        (b"sweep: [}\n", "conf/sweep/own.yaml", "expected YAML, got .* in line 1, column 9"),
        (b"sweep:\n\ta: 1\n", "conf/sweep/own.yaml", "expected YAML, got .* in line 2, column 1"),
        (b"\xf8\x00", "conf/sweep/own.yaml", "expected YAML in UTF-8"),
        (
            b"# @package _global_\ndefaults: [/sweep/laplacian]\nsweep: {selection_seds: 2}\n",
            "sweep.selection_seds",
            "did you mean 'selection_seeds'",
        ),
        (
            b"# @package _global_\ndefaults: [/sweep/laplacian]\n"
            b"sweep: {arms: {attention: {inherits: {lr: x}}}}\n",
            "sweep.arms.attention.inherits",
            "did you mean 'inherit'",
        ),
    ],
)
def test_a_yaml_that_does_not_compose_is_one_line(call, tmp_path, content, key, says):
    (tmp_path / "conf" / "sweep").mkdir(parents=True)
    (tmp_path / "conf" / "sweep" / "own.yaml").write_bytes(content)
    code, out, err = call("--config-dir", "conf", "sweep=own")
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("mixbench: ")
    assert line.removeprefix("mixbench: ").partition(": expected ")[0].endswith(key)
    assert re.search(says, line), line


@pytest.mark.parametrize("arguments", ["list", "data dataset=mqar", "steps=2 mixer=attention"])
def test_a_reader_that_has_seen_enough_ends_it_quietly(tmp_path, arguments):
    command = f"{sys.executable} -m mixbench {arguments} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_behind_the_output_is_one_line(tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mixbench", "list"],
            cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert re.fullmatch(r"mixbench: cannot write the output: No space left .*\n", done.stderr)


def test_cuda_without_cuda_is_a_mistake(call, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, _, err = call("device=cuda")
    assert code == 2
    assert err.startswith("mixbench: device: expected auto or cpu")
    assert list(tmp_path.iterdir()) == []


def test_output_below_a_file_is_a_mistake(call, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = call("output_dir=file")
    assert code == 2
    assert err.startswith("mixbench: output_dir: expected a folder that can be written")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_a_mistake(call, tmp_path):
    tmp_path.chmod(0o500)
    code, _, err = call()
    assert code == 2
    assert "output_dir" in err


def test_one_run(call, tmp_path):
    code, out, err = call("mixer=lattice", "dataset=mqar", *TINY)
    assert code == 0, err
    assert err == ""
    lines = out.splitlines()
    for i, line in enumerate(lines[:3], start=1):
        assert re.match(
            rf"epoch {i}/3  step {4 * i}/12  loss [\d.]+  valid accuracy [\d.]+"
            r"  [\d.]+ steps/s  \d+ s left$",
            line,
        ), line
    assert lines[-1] == "signature: 4/4 hold"
    (folder,) = (tmp_path / "outputs" / "runs").iterdir()
    for name, value in {
        "accuracy": "chance 0.0312",
        "sequence accuracy": "test",
        "parameters": "mixers",
        "state size": "at most",
        "max cells": r"\d",
        "steps": "12 in 3 epochs",
        "seconds": "training",
        "tokens/s": "in training",
        "record": folder.name,
    }.items():
        assert re.search(rf"{name} .*{value}", out), name
    hydra = folder / ".hydra"
    assert sorted(path.name for path in hydra.iterdir()) == [
        "config.yaml",
        "hydra.yaml",
        "overrides.yaml",
    ]
    assert "mixer=lattice" in (hydra / "overrides.yaml").read_text()
    code, out, err = call("mixer=lattice", "dataset=mqar", *TINY)
    assert code == 0
    assert out.startswith("this run has a record from ")


def test_a_grid_with_the_flag_in_the_middle(call, tmp_path):
    code, out, err = call("mixer=lattice", "dataset=mqar", "-m", "lr=1e-3,3e-3", *TINY)
    assert code == 0, err
    records = list((tmp_path / "outputs" / "runs").iterdir())
    assert len(records) == 2
    table = out[out.index("2 runs") :]
    for rate in ("0.001", "0.003"):
        assert re.search(rf"{rate} .*completed .*\d\.\d+", table)
    assert all(record.name.rpartition("-")[2] in table for record in records)
    (sweep,) = (tmp_path / "outputs" / "sweeps").iterdir()
    listed = json.loads((sweep / "sweep.json").read_text())["runs"]
    assert {(sweep / run["record"]).resolve() for run in listed} == set(records)
    assert {run["status"] for run in listed} == {"completed"}
    assert (sweep / "multirun.yaml").exists()


def test_sweeps_of_the_same_second_have_folders_of_their_own(call, tmp_path):
    for _ in range(3):
        assert call("-m", "seed=0", *TINY, "steps=1", "epochs=null")[0] == 0
    assert len(list((tmp_path / "outputs" / "sweeps").iterdir())) == 3
    assert len(list((tmp_path / "outputs" / "runs").iterdir())) == 1


def test_the_smoke_sweep_needs_no_flag(call, tmp_path):
    code, out, err = call("sweep=smoke", *TINY[1:], "steps=2")
    assert code == 0, err
    assert "4 runs" in out
    assert len(list((tmp_path / "outputs" / "runs").iterdir())) == 4


def test_a_diverging_run_exits_with_1_and_a_grid_goes_on(call, tmp_path):
    code, out, err = call(*TINY, "lr=1e15", "schedule=constant")
    assert code == 1
    assert re.fullmatch(r"mixbench: the run diverged: step \d+: .* is not finite\n", err)
    assert "diverged" in out
    code, out, err = call("-m", *TINY, "schedule=constant", "lr=1e15,1e-3")
    assert code == 1
    assert "mixbench: 1 of 2 runs did not complete; `mixbench -m " in err
    assert "lr=1e15,1e-3 rerun=failed` retries those that failed\n" in err
    assert re.search(r"│ +diverged │", out)
    assert "runs that did not complete" in out
    assert re.search(r"0.001 .*completed", out)


def test_a_failing_run_keeps_its_traceback(call, tmp_path, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr("mixbench.train.trainer.Trainer.evaluate", fail)
    with pytest.raises(ZeroDivisionError):
        call(*TINY)
    code, out, err = call("-m", *TINY, "seed=1,2")
    assert code == 1
    assert "mixbench: 2 of 2 runs did not complete; " in err
    assert " ".join(out.split()).count("ZeroDivisionError") >= 2
    for log in (tmp_path / "outputs" / "runs").glob("*/run.log"):
        assert log.read_text().count("ZeroDivisionError: on purpose") == 1
        assert "Traceback" in log.read_text()


def test_a_mixer_of_ones_own(call, tmp_path, monkeypatch):
    """A folder with a YAML, a module on the Python path, and nothing of ours touched."""
    (tmp_path / "my_conf" / "mixer").mkdir(parents=True)
    (tmp_path / "my_conf" / "mixer" / "mine.yaml").write_text(
        "_target_: my_mixers.Mean\nd_model: ${model.d_model}\ncausal: ${causal}\ngain: 2\n"
    )
    (tmp_path / "my_mixers.py").write_text(
        "from mixbench.mixers.base import Mixer\n"
        "class Mean(Mixer):\n"
        "    def __init__(self, *, d_model: int, causal: bool, gain: float):\n"
        "        super().__init__(d_model=d_model, causal=causal)\n"
        "        self.gain = gain\n"
        "    def forward(self, x):\n"
        "        return self.gain * x.cumsum(1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    code, _, err = call("mixer=mine", "--config-dir", "my_conf", *TINY)
    assert code == 2
    assert "got my_mixers.Mean; if you trust it: allowed_targets=[my_mixers]" in err
    assert "my_mixers" not in sys.modules
    allowed = "allowed_targets=[my_mixers]"
    code, out, err = call("mixer=mine", "--config-dir", "my_conf", allowed, *TINY)
    assert code == 0, err
    assert "completed" in out
    (folder,) = (tmp_path / "outputs" / "runs").iterdir()
    result = json.loads((folder / "result.json").read_text())
    assert result["config"]["mixer"]["gain"] == 2.0
    assert result["state_size"] is None
    code, _, err = call("mixer=mien", "--config-dir", "my_conf", *TINY)
    assert code == 2
    assert "mine" in err


def test_a_failing_signature_is_named(call, monkeypatch):
    from mixbench.mixers.attention import Attention
    from mixbench.mixers.claims import Claim

    checks = [Claim("fine", 1, 1, None, True), Claim("moon is cheese", 1, 0, 0.5, False)]
    monkeypatch.setattr(Attention, "signature", lambda self, x: checks)
    code, out, _ = call(*TINY)
    assert code == 0
    assert out.splitlines()[-1] == "signature: 1/2 hold; fails: moon is cheese"


def test_a_mixer_of_the_wrong_shape_is_named(call, tmp_path, monkeypatch):
    (tmp_path / "bad_mixer.py").write_text(
        "from mixbench.mixers.base import Mixer\n"
        "class Bad(Mixer):\n"
        "    def __init__(self, *, d_model: int, causal: bool):\n"
        "        super().__init__(d_model=d_model, causal=causal)\n"
        "    def forward(self, x):\n"
        "        return x[:, :1]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"Bad returned \(8, 1, 16\) for \(8, 32, 16\)"):
        call("mixer._target_=bad_mixer.Bad", *TINY)


def test_the_command_in_its_own_process(mixbench, tmp_path):
    done = mixbench("mixer=gdn", *TINY)
    assert done.returncode == 0, done.stderr
    assert "completed" in done.stdout
    done = mixbench("mixer=latice")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1


def test_help_names_the_groups_and_imports_no_torch(mixbench):
    done = mixbench("--help", env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == 0
    assert re.search(
        r"mixer: attention, custom, gated_deltanet, gdn, laplacian, lattice, local", done.stdout
    )
    assert "mixbench mixer=lattice dataset=mqar" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "hydra" in imported
    assert "torch" not in imported
