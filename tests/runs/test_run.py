"""Runs and their records: pairing, repetition, resuming, divergence, failure, identity."""

from __future__ import annotations

import json
import math
import threading
import time
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch
from filelock import FileLock

from mixbench.core.errors import CannotWrite, RunLockedByAnotherProcess
from mixbench.datasets import cache
from mixbench.datasets.base import SPLITS
from mixbench.datasets.mqar import MQAR
from mixbench.display.run_tables import run_table
from mixbench.mixers.attention import Attention
from mixbench.records.folder import RunFolder, read_history
from mixbench.records.identity import folder_of, identity_of
from mixbench.records.result import FAILED
from mixbench.runs import recorder
from mixbench.runs.build import Experiment
from mixbench.runs.run import run
from mixbench.train.trainer import Trainer

MIXERS = ["attention", "gated_deltanet", "lattice"]


class Listener:
    """A callback that keeps what it is told, and may act at an epoch."""

    def __init__(self, at_epoch=None, action=None, at_step=None):
        self.steps = []
        self.epochs = []
        self.at_epoch, self.at_step, self.action = at_epoch, at_step, action

    def on_step(self, step, trainer):
        self.steps.append(step)
        if step.step == self.at_step:
            self.action(trainer)

    def on_epoch(self, epoch, trainer):
        self.epochs.append(epoch)
        if epoch.epoch == self.at_epoch:
            self.action(trainer)


def interrupt(trainer):
    raise KeyboardInterrupt


def comparable(result):
    """A result without what the clock and the machine decide."""
    ignored = {"started", "seconds", "tokens_per_second", "machine", "history_sha256"}
    return {k: v for k, v in msgspec.to_builtins(result).items() if k not in ignored}


def flat(state, path=""):
    """A nested state as one dictionary of paths to plain values and bytes."""
    if isinstance(state, torch.Tensor):
        return {path: (state.dtype, state.shape, state.numpy().tobytes())}
    if path.endswith("seconds"):
        return {}
    if not isinstance(state, (dict, list)):
        return {path: state}
    items = state.items() if isinstance(state, dict) else enumerate(state)
    return {k: v for key, value in items for k, v in flat(value, f"{path}/{key}").items()}


# Records -----------------------------------------------------------------------------------------


def test_a_run_leaves_a_whole_record(settings):
    chosen = settings("mixer=lattice")
    listener = Listener()
    outcome = run(chosen, [listener], {"config.yaml": "seed: 0\n"})
    folder = outcome.folder
    assert not outcome.reused
    assert (folder.path / ".hydra" / "config.yaml").read_text() == "seed: 0\n"
    result = folder.read_result()
    assert result == outcome.result
    assert result.status == "completed"
    assert {"valid/accuracy", "test/accuracy", "test/sequence_accuracy", "train/loss"} <= set(
        result.metrics
    )
    assert result.steps == 12
    assert result.epochs == 3
    assert result.overlap == {"valid_in_train": 0, "test_in_train": 0, "test_in_valid": 0}
    assert result.trivial_baseline["accuracy"] == 1 / 32
    assert result.diagnostics["max_cells"] > 9
    assert result.config["mixer"]["addr_scale"] == 2.0
    parameters = Experiment(chosen).model.parameters()
    assert result.parameters.total == sum(p.numel() for p in parameters)
    assert 0 < result.parameters.mixer < result.parameters.total
    history = read_history(folder.history)
    assert [row["epoch"] for row in history] == [1, 2, 3]
    assert history[-1]["valid/accuracy"] == result.metrics["valid/accuracy"]
    state = torch.load(folder.checkpoint, weights_only=True)
    Experiment(chosen).model.load_state_dict(state["model"])
    assert state["step"] == 12
    assert "epoch 3" in folder.log.read_text()
    assert [step.step for step in listener.steps] == list(range(1, 13))
    assert not [path for path in folder.path.iterdir() if path.name.startswith(".result")]


def test_the_result_is_written_last(settings, monkeypatch):
    """Whatever is on disk when result.json appears is all there will be."""
    written = []
    monkeypatch.setattr(recorder, "write_bytes", lambda p, c: written.append(p.name))
    monkeypatch.setattr(recorder, "write_history", lambda p, rows: written.append(p.name))
    monkeypatch.setattr(RunFolder, "write_result", lambda self, _: written.append("result.json"))
    run(settings("epochs=2"), [])
    assert written == ["history.csv", "checkpoint.pt"] * 2 + ["result.json"]


def test_a_completed_run_is_found_again(settings):
    first = run(settings(), [])
    listener = Listener()
    again = run(settings(), [listener])
    assert again.reused
    assert again.result == first.result
    assert listener.steps == []
    redone = run(settings("rerun=all"), [listener])
    assert not redone.reused
    assert len(listener.steps) == 12
    assert redone.folder.path == first.folder.path


# Pairing and repetition --------------------------------------------------------------------------


def seen_by(chosen, monkeypatch):
    """The rows in the order in which a run's training steps see them."""
    seen = []
    step = Trainer._train_step

    def spy(self, inputs, targets):
        seen.append(inputs.numpy().tobytes() + targets.numpy().tobytes())
        return step(self, inputs, targets)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_train_step", spy)
        run(chosen, [])
    return seen


def test_every_mixer_sees_the_same_rows_in_the_same_order(settings, monkeypatch):
    seen = []
    for i, mixer in enumerate(MIXERS):
        torch.manual_seed(i)
        torch.rand(i)
        np.random.seed(i)
        seen.append(seen_by(settings(f"mixer={mixer}"), monkeypatch))
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) == 12
    assert seen[0][:4] != seen[0][4:8]  # another order in every epoch
    assert seen_by(settings("seed=1"), monkeypatch) != seen[0]


def test_every_mixer_gets_the_same_splits(settings):
    for split in SPLITS:
        rows = [Experiment(settings(f"mixer={m}")).dataset.generate(split, 0) for m in MIXERS]
        assert len({r.inputs.tobytes() for r in rows}) == 1
        assert len({r.targets.tobytes() for r in rows}) == 1


@pytest.mark.parametrize("mixer", MIXERS)
def test_running_twice_gives_equal_bytes(settings, tmp_path, mixer):
    first = run(settings(f"mixer={mixer}"), [])
    torch.rand(7)
    second = run(settings(f"mixer={mixer}", f"output_dir={tmp_path}/other"), [])
    assert first.folder.path != second.folder.path
    assert first.folder.identity == second.folder.identity
    assert comparable(first.result) == comparable(second.result)
    states = [flat(torch.load(each.folder.checkpoint)) for each in (first, second)]
    assert states[0] == states[1]


@pytest.mark.parametrize("mixer", ["attention", "lattice"])
def test_an_interrupted_run_goes_on_bit_for_bit(settings, tmp_path, mixer):
    whole = run(settings(f"mixer={mixer}", f"output_dir={tmp_path}/whole"), [])
    chosen = settings(f"mixer={mixer}")
    with pytest.raises(KeyboardInterrupt):
        run(chosen, [Listener(2, interrupt)])
    folder = folder_of(chosen)
    assert not folder.result.exists()
    listener = Listener()
    resumed = run(chosen, [listener])
    assert [epoch.epoch for epoch in listener.epochs] in ([3], [2, 3])
    assert comparable(resumed.result) == comparable(whole.result)
    # Equal in content: pickle's references to equal strings differ after loading.
    first, second = (flat(torch.load(f.checkpoint)) for f in (folder, whole.folder))
    assert first == second
    assert len(first) > 50
    columns = ["epoch", "step", "train/loss", "valid/accuracy", "lr"]
    rows = [[row[c] for c in columns] for row in read_history(folder.history)]
    assert rows == [[row[c] for c in columns] for row in read_history(whole.folder.history)]


@pytest.mark.parametrize("step", range(1, 13))
def test_a_run_goes_on_bit_for_bit_from_any_step(settings, tmp_path, step):
    """Killed after the step, before or after the checkpoint of an epoch's end."""
    whole = run(settings(f"output_dir={tmp_path}/whole"), [])
    chosen = settings("checkpoint_seconds=0")
    with pytest.raises(KeyboardInterrupt):
        run(chosen, [Listener(at_step=step, action=interrupt)])
    listener = Listener()
    resumed = run(chosen, [listener])
    assert [each.step for each in listener.steps] == list(range(step + 1, 13))
    assert comparable(resumed.result) == comparable(whole.result)
    first, second = (flat(torch.load(f.checkpoint)) for f in (resumed.folder, whole.folder))
    assert first == second


def test_a_finished_run_need_not_keep_its_checkpoint(settings, tmp_path):
    whole = run(settings(f"output_dir={tmp_path}/whole"), [])
    chosen = settings("checkpoint_seconds=0", "keep_checkpoint=false")
    with pytest.raises(KeyboardInterrupt):
        run(chosen, [Listener(at_step=6, action=interrupt)])
    assert folder_of(chosen).checkpoint.exists()  # to go on from
    listener = Listener()
    resumed = run(chosen, [listener])
    assert [each.step for each in listener.steps] == list(range(7, 13))
    assert comparable(resumed.result) == comparable(whole.result)
    assert whole.folder.checkpoint.exists()
    assert not resumed.folder.checkpoint.exists()
    assert run(chosen, []).reused


def test_noise_goes_on_bit_for_bit(settings, tmp_path, monkeypatch):
    """A mixer that draws at every step, as dropout does."""
    mix = Attention.mix

    def noisy(self, x):
        return mix(self, x) + (0.1 * torch.randn_like(x) if self.training else 0)

    monkeypatch.setattr(Attention, "mix", noisy)
    whole = run(settings(f"output_dir={tmp_path}/whole"), [])
    chosen = settings("checkpoint_seconds=0")
    with pytest.raises(KeyboardInterrupt):
        run(chosen, [Listener(at_step=6, action=interrupt)])
    assert comparable(run(chosen, []).result) == comparable(whole.result)


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def overwrite(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 3 : len(content) // 3 + 40] = b"garbage " * 5
    path.write_bytes(content)


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, overwrite, empty])
@pytest.mark.parametrize("name", ["result.json", "history.csv", "checkpoint.pt"])
def test_a_damaged_file_is_named_set_aside_and_made_anew(settings, capsys, name, damage):
    """Of a completed run the result or history; of an interrupted one the checkpoint."""
    chosen = settings()
    whole = run(chosen, [])
    folder = whole.folder
    if name == "checkpoint.pt":
        folder.result.unlink()
    damage(folder.path / name)
    capsys.readouterr()
    again = run(chosen, [])
    assert not again.reused
    assert comparable(again.result) == comparable(whole.result)
    assert folder.verified_result() == again.result
    assert [row["epoch"] for row in read_history(folder.history)] == [1, 2, 3]
    said = capsys.readouterr().out
    moved = f"corrupt file moved to {folder.path / name}.broken-1"
    assert f"{moved}; the run will be repeated (" in said
    assert (folder.path / f"{name}.broken-1").exists()
    assert f"{name}.broken-1" in folder.log.read_text()
    assert run(chosen, []).reused


def test_a_checkpoint_of_other_things_is_not_gone_on_from(settings):
    chosen = settings()
    whole = run(chosen, [])
    whole.folder.result.unlink()
    torch.save({"step": 3, "model": {"a": torch.zeros(2)}}, whole.folder.checkpoint)
    assert comparable(run(chosen, []).result) == comparable(whole.result)


def test_a_checkpoint_never_executes_anything(settings, tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    chosen = settings()
    folder = folder_of(chosen)
    folder.create()
    torch.save({"step": Evil()}, folder.checkpoint)
    assert run(chosen, []).result.status == "completed"
    assert not (tmp_path / "executed").exists()
    assert (folder.path / "checkpoint.pt.broken-1").exists()


def test_a_result_of_another_run_is_not_taken(settings):
    first, second = settings("seed=1"), settings("seed=2")
    other = run(first, [])
    mine = folder_of(second)
    mine.create()
    mine.result.write_bytes(other.folder.result.read_bytes())
    mine.history.write_bytes(other.folder.history.read_bytes())
    outcome = run(second, [])
    assert not outcome.reused
    assert outcome.result.seed == 2


def test_leftovers_of_killed_processes_are_removed(settings):
    folder = folder_of(settings())
    folder.create()
    for name in (".result.json.123", ".checkpoint.pt.99", ".history.csv.7"):
        (folder.path / name).write_text("half")
    run(settings(), [])
    assert not [path.name for path in folder.path.iterdir() if path.name.startswith((".r", ".c"))]
    assert not (folder.path / ".history.csv.7").exists()


def test_a_full_disk_leaves_everything_whole(settings, monkeypatch):
    import mixbench.records.folder as records

    chosen = settings("checkpoint_seconds=0")
    room = [3]
    replace_file = records.os.replace

    def full(source, target):
        if room[0] == 0:
            raise OSError(28, "No space left on device")
        room[0] -= 1
        replace_file(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(records.os, "replace", full)
        with pytest.raises(CannotWrite, match="No space left on device; existing records"):
            run(chosen, [])
    folder = folder_of(chosen)
    assert not folder.result.exists()
    assert torch.load(folder.checkpoint, weights_only=True)["step"] == 3
    listener = Listener()
    resumed = run(chosen, [listener])
    assert listener.steps[0].step == 4
    whole = run(settings("rerun=all"), [])
    assert comparable(resumed.result) == comparable(whole.result)


def test_a_run_that_another_process_is_at_is_left_to_it(settings):
    chosen = settings()
    folder = folder_of(chosen)
    folder.create()
    with FileLock(folder.lock):
        assert folder.is_locked()
        with pytest.raises(RunLockedByAnotherProcess):
            run(chosen, [], wait=False)
    assert not folder.is_locked()
    assert run(chosen, [], wait=False).result.status == "completed"


def test_a_second_process_waits_for_the_first(settings):
    """Here a thread, whose lock object is another one, as a process's would be."""
    chosen = settings()
    first_is_in, go_on = threading.Event(), threading.Event()

    def pause(trainer):
        first_is_in.set()
        assert go_on.wait(20)

    results = []
    first = threading.Thread(target=lambda: results.append(run(chosen, [Listener(1, pause)])))
    first.start()
    assert first_is_in.wait(20)
    second = threading.Thread(target=lambda: results.append(run(chosen, [])))
    second.start()
    time.sleep(0.3)
    assert results == []
    go_on.set()
    first.join(20)
    second.join(20)
    assert sorted(outcome.reused for outcome in results) == [False, True]
    assert results[0].result == results[1].result


# Divergence and failure --------------------------------------------------------------------------


def test_a_diverging_run_says_where_and_leaves_a_record(settings):
    outcome = run(settings("mixer=lattice", "lr=1e12", "schedule=constant"), [])
    assert outcome.result.status == "diverged"
    assert outcome.result.reason.startswith("step 2: the ")
    assert outcome.result.reason.endswith(" is not finite")
    assert outcome.result.metrics == {}
    assert outcome.folder.read_result() == outcome.result
    assert "step 2" in outcome.folder.log.read_text()


def test_a_gradient_that_is_not_finite_names_its_parameter(settings, monkeypatch):
    def poison(trainer):
        weight = trainer.model.blocks[1].mixer.v_proj.weight
        weight.register_hook(lambda grad: grad * math.nan)

    outcome = run(settings(), [Listener(1, poison)])
    assert outcome.result.status == "diverged"
    reason = "step 5: the gradient of blocks.1.mixer.v_proj.weight is not finite"
    assert outcome.result.reason == reason
    assert len(read_history(outcome.folder.history)) == 1


def test_a_model_that_breaks_in_the_last_step_is_not_completed(settings):
    def poison(trainer):
        with torch.no_grad():
            trainer.model.head.weight.fill_(math.inf)

    outcome = run(settings(), [Listener(3, poison)])
    assert outcome.result.status == "diverged"
    assert outcome.result.reason == "step 12: the test loss is not finite"


def test_a_failing_run_keeps_its_traceback_and_can_be_retried(settings):
    def fail(trainer):
        raise ZeroDivisionError("on purpose")

    chosen = settings()
    with pytest.raises(ZeroDivisionError):
        run(chosen, [Listener(2, fail)])
    folder = folder_of(chosen)
    result = folder.read_result()
    assert result.status == FAILED
    assert result.reason == "ZeroDivisionError: on purpose"
    log = folder.log.read_text()
    assert "Traceback" in log
    assert "ZeroDivisionError: on purpose" in log
    kept = run(chosen, [])
    assert kept.reused
    assert kept.result.status == FAILED
    retried = run(replace(chosen, rerun="failed"), [])
    assert retried.result.status == "completed"
    assert run(replace(chosen, rerun="failed"), []).reused


def test_a_mixer_that_cannot_run_leaves_a_failed_record(settings, monkeypatch):
    def fail(self, x):
        raise RuntimeError("no forward")

    monkeypatch.setattr("mixbench.mixers.attention.Attention.mix", fail)
    chosen = settings()
    with pytest.raises(RuntimeError):
        run(chosen, [])
    result = folder_of(chosen).read_result()
    assert result.status == FAILED
    assert result.reason == "RuntimeError: no forward"
    assert "no forward" in folder_of(chosen).log.read_text()
    run_table(result, folder_of(chosen).path)


def test_a_faulty_streaming_form_does_not_cost_the_result(settings, monkeypatch):
    def fail(self, x, state):
        raise RuntimeError("no step")

    monkeypatch.setattr("mixbench.mixers.attention.Attention.mix_step", fail)
    outcome = run(settings(), [])
    assert outcome.result.status == "completed"
    assert outcome.result.measured_state_size is None
    assert "no step" in outcome.folder.log.read_text()


def test_costs_are_in_the_record(settings):
    result = run(settings("mixer=gated_deltanet"), []).result
    conv = 3 * 16
    assert result.state_size == result.measured_state_size == 2 * (2 * 8 * 8 + conv)
    assert result.conv_state_size == 2 * conv
    assert result.operations.per_token["multiplies"] > 0
    assert result.operations.per_pair is None
    assert result.operations.measured_flops_per_token > 0
    assert result.signature.holds
    assert {check.layer for check in result.signature.checks} == {0, 1}


# Speed -----------------------------------------------------------------------------------------


def test_splits_are_made_once_a_process_for_a_dataset_and_seed(settings, monkeypatch):
    made = []
    generate = MQAR.generate

    def counted(self, split, seed):
        made.append((split, seed))
        return generate(self, split, seed)

    monkeypatch.setattr(MQAR, "generate", counted)
    for override in ("mixer=attention", "mixer=gdn", "lr=1e-4", "seed=12345", "mixer=lattice"):
        assert run(settings(override, "dataset.num_valid=17"), []).result.status == "completed"
    assert sorted(made) == sorted((split, seed) for split in SPLITS for seed in (0, 12345))
    run(settings("dataset.num_valid=18"), [])
    assert len(made) == 9


def test_kept_splits_stay_within_their_bytes(monkeypatch):
    task = MQAR(vocab_size=64, seq_len=32, num_pairs=4, num_train=100, num_valid=10, num_test=10)
    one = cache.generated({"a": 1}, task, "train", 0)
    monkeypatch.setattr(cache, "MOST_BYTES", 2 * (one.inputs.nbytes + one.targets.nbytes))
    for seed in range(1, 5):
        cache.generated({"a": 1}, task, "train", seed)
    assert [json.loads(key)[2] for key in cache._splits] == [3, 4]
    assert cache.generated({"a": 1}, task, "train", 4) is cache.generated(
        {"a": 1}, task, "train", 4
    )


def test_training_goes_on_where_compilation_fails(settings, monkeypatch, caplog):
    """As on a machine without a C++ compiler; the result is that of compile=false."""

    def no_compiler(*_):
        raise RuntimeError("no C++ compiler\nand more lines")

    def compiled(model):
        return no_compiler

    plain = run(settings(), []).result
    monkeypatch.setattr(torch, "compile", compiled)
    result = run(settings("compile=true"), []).result
    assert (result.status, result.compiled) == ("completed", False)
    assert result.metrics == plain.metrics
    (message,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert "compile=true does not work here" in message
    assert message.endswith("RuntimeError: no C++ compiler")


def test_a_fault_of_the_model_is_not_taken_for_one_of_the_compiler(settings, monkeypatch):
    def broken(self, x):
        raise ZeroDivisionError("the mixer's own")

    monkeypatch.setattr(torch, "compile", lambda model: model)
    monkeypatch.setattr(Attention, "mix", broken)
    with pytest.raises(ZeroDivisionError):
        run(settings("compile=true"), [])


# Identity --------------------------------------------------------------------------------------


CHANGES = [
    "seed=1",
    "lr=1e-4",
    "weight_decay=0.1",
    "epochs=4",
    "steps=5",
    "batch_size=4",
    "schedule=constant",
    "warmup=0.1",
    "grad_clip=null",
    "compile=true",
    "threads=2",
    "dtype=float64",
    "model.d_model=32",
    "model.residual=prenorm",
    "mixer.num_heads=4",
    "dataset.filler=random",
    "dataset.num_test=11",
    "optimizer.eps=1e-6",
    "mixer=lattice",
]


def test_every_setting_changes_the_identity(settings):
    identities = [identity_of(settings(*change)) for change in ([], *([c] for c in CHANGES))]
    assert len(set(identities)) == len(identities)


def test_what_does_not_matter_keeps_the_identity(settings):
    plain = identity_of(settings())
    assert identity_of(settings("output_dir=elsewhere")) == plain
    assert identity_of(settings("rerun=all")) == plain
    assert identity_of(settings("device=cpu")) == plain or torch.cuda.is_available()
    assert identity_of(settings("mixer.num_heads=2")) == plain
    # Whole numbers and floats of the same value are the same setting.
    scale = [identity_of(settings("mixer=lattice", f"mixer.addr_scale={s}")) for s in ("4", "4.0")]
    assert scale[0] == scale[1]
    assert identity_of(settings("mixer=gdn")) == identity_of(settings("mixer=gated_deltanet"))


def test_the_users_source_is_part_of_the_identity(settings, tmp_path, monkeypatch):
    source = tmp_path / "mine.py"
    source.write_text("from mixbench.mixers.attention import Attention as Mine\n")
    monkeypatch.syspath_prepend(tmp_path)
    first = identity_of(settings("mixer._target_=mine.Mine"))
    source.write_text("from mixbench.mixers.attention import Attention as Mine\n# changed\n")
    assert identity_of(settings("mixer._target_=mine.Mine")) != first


# Training --------------------------------------------------------------------------------------


def test_steps_end_training_within_an_epoch(settings):
    listener = Listener()
    outcome = run(settings("steps=6"), [listener])
    assert outcome.result.steps == 6
    assert [(epoch.epoch, epoch.step) for epoch in listener.epochs] == [(1, 4), (2, 6)]


def test_an_epoch_shows_every_row_once(settings):
    trainer_rows = []

    def look(trainer):
        trainer_rows.append(trainer.rows_seen)

    run(settings("epochs=1"), [Listener(1, look)])
    assert trainer_rows == [30]


def test_a_curriculum_grows_and_survives_an_interruption(settings, tmp_path):
    grow = ("dataset.curriculum_start_pairs=1", "dataset.curriculum_end=0.6")
    whole = run(settings(*grow, f"output_dir={tmp_path}/whole"), [])
    chosen = settings(*grow)
    with pytest.raises(KeyboardInterrupt):
        run(chosen, [Listener(2, interrupt)])
    resumed = run(chosen, [])
    assert comparable(resumed.result) == comparable(whole.result)
    assert resumed.result.steps == 12


def test_a_curriculum_is_seen_by_the_model(settings, monkeypatch):
    counts = []
    step = Trainer._train_step

    def spy(self, inputs, targets):
        counts.append(set((targets >= 0).sum(1).tolist()))
        return step(self, inputs, targets)

    monkeypatch.setattr(Trainer, "_train_step", spy)
    run(settings("dataset.curriculum_start_pairs=1", "dataset.curriculum_end=0.6"), [])
    assert counts == [{1}] * 4 + [{2}] * 4 + [{4}] * 4


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize("mixer", MIXERS)
def test_other_dtypes_train(settings, mixer, dtype):
    outcome = run(settings(f"mixer={mixer}", f"dtype={dtype}", "epochs=1"), [])
    assert outcome.result.status == "completed"


def test_one_cycle_rises_to_the_rate_and_ends_near_zero(settings):
    outcome = run(settings("steps=40", "lr=1e-2"), [])
    rates = [row["lr"] for row in read_history(outcome.folder.history)]
    assert max(rates) == pytest.approx(1e-2, rel=0.02)
    assert rates[-1] < 1e-5
    constant = run(settings("steps=8", "lr=1e-2", "schedule=constant"), [])
    assert [row["lr"] for row in read_history(constant.folder.history)] == [1e-2, 1e-2]


def test_a_small_task_is_learned(settings):
    """The loop, the labels and the loss fit together: recall of one pair becomes perfect."""
    outcome = run(
        settings(
            "dataset.num_pairs=1",
            "dataset.seq_len=4",
            "dataset.vocab_size=16",
            "dataset.num_train=512",
            "batch_size=32",
            "epochs=20",
            "lr=1e-2",
            "model.d_model=32",
            "dataset.num_test=200",
        ),
        [],
    )
    assert outcome.result.metrics["test/accuracy"] > 0.95
