"""Loggers: what they are told, that none disturbs a run, and what the real ones write."""

from __future__ import annotations

import importlib.util
import inspect
import json
import signal
import struct
import subprocess
import sys
import threading
import time

import pytest
import torch
from hydra.utils import get_object

from mixbench.core.errors import SettingError
from mixbench.loggers.base import LoggedRun, Unfinished, final_numbers, final_words
from mixbench.records.folder import read_history
from mixbench.records.identity import folder_of, identity_of
from mixbench.runs.build import Experiment
from mixbench.runs.run import run
from tests.config.test_conf import names
from tests.conftest import TINY, run_command
from tests.runs.test_run import Listener, comparable, flat, interrupt
from tests.support.fake_logger import Told
from tests.sweeps.test_comparison import call

LOGGERS = [name for name in names("logger") if name != "none"]


@pytest.fixture
def heard():
    Told.heard.clear()
    return Told.heard


def fake(name="told", cls="Told", **knobs):
    """Overrides that switch on a fake logger."""
    values = {"_target_": f"tests.support.fake_logger.{cls}", "name": name, **knobs}
    return [f"+logger.{name}.{key}={value}" for key, value in values.items()]


def methods(heard, name="told"):
    return [method for who, method, _ in heard if who == name]


def warnings_in(folder):
    return folder.log.read_text().count(" WARNING ")


# What is told ------------------------------------------------------------------------------------


def test_a_logger_hears_of_a_run_from_start_to_end(settings, heard):
    chosen = settings(*fake(), "seed=3")
    outcome = run(chosen, [])
    assert methods(heard) == ["started", "epoch", "epoch", "epoch", "finished"]
    about, *rows, result = [told for _, _, told in heard]
    assert about.folder == outcome.folder
    assert about.identity == outcome.result.identity
    assert about.name == outcome.folder.path.name
    assert about.labels()["seed"] == 3
    config = about.config()
    assert config["mixer.num_heads"] == 2
    assert config["output_dir"] == chosen.output_dir
    assert not [key for key in config if key.startswith("logger")]
    assert rows == read_history(outcome.folder.history)
    assert result == outcome.result


def test_several_loggers_hear_the_same(settings, heard):
    run(settings(*fake("one"), *fake("two")), [])
    one, two = ([(m, t) for who, m, t in heard if who == name] for name in ("one", "two"))
    assert one == two
    assert len(one) == 5
    assert [who for who, _, _ in heard] == ["one", "two"] * 1 + ["one", "two"] * 4


def test_a_result_is_told_as_numbers_and_words(settings):
    result = run(settings("mixer=lattice"), []).result
    numbers, words = final_numbers(result), final_words(result)
    assert numbers["final/valid/accuracy"] == result.metrics["valid/accuracy"]
    assert numbers["final/test/accuracy"] == result.metrics["test/accuracy"]
    assert numbers["trivial_baseline/accuracy"] == 1 / 32
    assert numbers["parameters/total"] == result.parameters.total
    assert numbers["diagnostics/max_cells"] == result.diagnostics["max_cells"]
    assert numbers["analysis/recalled bits"] == result.analysis.values["recalled bits"]
    assert numbers["seconds/train"] == result.seconds.train
    assert (numbers["signature/held"], numbers["signature/of"]) == (4, 4)
    assert {"state_size", "margin", "operations/per_token/multiplies"} <= set(numbers)
    assert (words["status"], words["metric"]) == ("completed", "accuracy")
    assert words["signature/holds"] == "True"
    assert "reason" not in words
    assert all(type(value) in (int, float) for value in numbers.values())
    assert all(type(value) is str for value in words.values())


def test_a_run_that_is_there_is_not_told_again(settings, heard):
    run(settings(*fake()), [])
    heard.clear()
    assert run(settings(*fake()), []).reused
    assert heard == []
    run(settings(*fake(), "rerun=all"), [])
    assert methods(heard) == ["started", "epoch", "epoch", "epoch", "finished"]


def test_diverged_and_failed_runs_are_told(settings, heard):
    def fail(trainer):
        raise ZeroDivisionError("on purpose")

    run(settings(*fake(), "lr=1e15", "schedule=constant"), [])
    assert methods(heard) == ["started", "finished"]
    assert heard[-1][2].status == "diverged"
    assert final_words(heard[-1][2])["reason"].startswith("step 2: ")
    heard.clear()
    with pytest.raises(ZeroDivisionError):
        run(settings(*fake()), [Listener(2, fail)])
    assert methods(heard)[-1] == "finished"
    assert heard[-1][2].reason == "ZeroDivisionError: on purpose"


@pytest.mark.parametrize(("held", "steps"), [(0, [4, 8, 12]), (4, [8, 12]), (12, [])])
def test_a_run_that_goes_on_tells_what_a_log_lacks(settings, heard, held, steps):
    chosen = settings(*fake())
    with pytest.raises(KeyboardInterrupt):
        run(chosen, [Listener(2, interrupt)])
    assert methods(heard)[-1] == "interrupted"
    heard.clear()
    run(settings(*fake(held=held)), [])
    assert [told["step"] for _, method, told in heard if method == "epoch"] == steps
    assert methods(heard)[-1] == "finished"


def test_a_damaged_checkpoint_doubles_nothing(settings, heard):
    chosen = settings(*fake())
    with pytest.raises(KeyboardInterrupt):
        run(chosen, [Listener(2, interrupt)])
    heard.clear()
    folder_of(chosen).checkpoint.write_bytes(b"no checkpoint")
    outcome = run(chosen, [])
    rows = [told for _, method, told in heard if method == "epoch"]
    assert [row["step"] for row in rows] == [4, 8, 12]
    assert rows[-1] == read_history(outcome.folder.history)[-1]
    assert methods(heard).count("started") == methods(heard).count("finished") == 1


def test_a_comparisons_runs_know_their_place(tmp_path, monkeypatch, heard):
    monkeypatch.setattr("mixbench.report.write.write_report", lambda *_, **__: None)
    assert call(tmp_path, "sweep=small", "sweep.selection_seeds=1", "epochs=1", *fake()) == 0
    places = [told.place for _, method, told in heard if method == "started"]
    assert {(p["study"], p["task"]) for p in places} == {("small", "first_token")}
    counted = [(p["arm"], p["stage"], p["trial"]) for p in places]
    for arm in ("plain", "first"):
        assert [c[2] for c in counted if c[:2] == (arm, "selection")] == [0, 1]
        assert len([c for c in counted if c[:2] == (arm, "evaluation")]) == 2
    assert {p["sweep"] for p in places} == {next((tmp_path / "outputs/sweeps").iterdir()).name}
    assert {told.group for _, method, told in heard if method == "started"} == {"small"}


def test_a_grids_runs_know_its_folder(tmp_path, monkeypatch, heard):
    monkeypatch.chdir(tmp_path)
    assert run_command("-m", *TINY, "epochs=1", "seed=1,2", *fake()) == 0
    (sweep,) = (tmp_path / "outputs" / "sweeps").iterdir()
    groups = [told.group for _, method, told in heard if method == "started"]
    assert groups == [sweep.name] * 2


# Doing no harm -----------------------------------------------------------------------------------


def test_loggers_are_no_part_of_the_identity(settings):
    assert identity_of(settings(*fake())) == identity_of(settings())


@pytest.mark.parametrize("mixer", ["attention", "lattice"])
def test_results_are_equal_bit_for_bit(settings, tmp_path, monkeypatch, heard, mixer):
    """Even with dropout, a logger that draws random numbers, and one that takes over Ctrl-C."""
    cls = get_object(settings(f"mixer={mixer}").mixer["_target_"])
    forward = cls.forward

    def noisy(self, x):
        return forward(self, x) + (0.1 * torch.randn_like(x) if self.training else 0)

    monkeypatch.setattr(cls, "forward", noisy)
    plain = run(settings(f"mixer={mixer}"), [])
    before = signal.getsignal(signal.SIGINT)
    outcome = run(settings(f"mixer={mixer}", f"output_dir={tmp_path}/x", *fake(meddles="true")), [])
    assert signal.getsignal(signal.SIGINT) == before
    assert len(heard) == 5
    assert comparable(outcome.result) == comparable(plain.result)
    states = [flat(torch.load(each.folder.checkpoint)) for each in (plain, outcome)]
    assert states[0] == states[1]


def test_what_loggers_take_is_no_part_of_a_runs_seconds(settings, monkeypatch, heard):
    """On a clock that a logger sets forward by a day an epoch."""
    ahead = [0]
    clock, epoch = time.perf_counter, Told.epoch

    def slow(self, row):
        ahead[0] += 86400
        epoch(self, row)

    monkeypatch.setattr(Told, "epoch", slow)
    monkeypatch.setattr(time, "perf_counter", lambda: clock() + ahead[0])
    result = run(settings(*fake()), []).result
    assert ahead == [3 * 86400]
    assert 0 < result.seconds.total < 86400


@pytest.mark.parametrize("error", ["OSError", "SystemExit"])
@pytest.mark.parametrize("method", ["started", "epoch", "finished"])
def test_a_failing_logger_is_switched_off_and_the_run_goes_on(
    settings, tmp_path, capsys, heard, method, error
):
    plain = run(settings(), [])
    capsys.readouterr()
    bad = fake("bad", fails=method, error=error)
    outcome = run(settings(*bad, *fake("good"), f"output_dir={tmp_path}/x"), [])
    assert comparable(outcome.result) == comparable(plain.result)
    assert methods(heard, "good") == ["started", "epoch", "epoch", "epoch", "finished"]
    assert methods(heard, "bad")[-1] == method
    assert methods(heard, "bad").count(method) == 1
    said = f"the logger bad is off for this run: {error}: no {method} (more in "
    assert capsys.readouterr().out.startswith(said)
    log = outcome.folder.log.read_text()
    assert warnings_in(outcome.folder) == 1
    assert "the logger bad is off:\nTraceback" in log
    assert f"{error}: no {method}" in log


def test_a_logger_that_fails_when_interrupted_keeps_the_interruption(settings, capsys, heard):
    chosen = settings(*fake(fails="interrupted"))
    with pytest.raises(KeyboardInterrupt):
        run(chosen, [Listener(2, interrupt)])
    assert "is off for this run" in capsys.readouterr().out
    assert folder_of(chosen).checkpoint.exists()


def test_ctrl_c_within_a_logger_stops_the_run(settings, tmp_path, heard):
    whole = run(settings(f"output_dir={tmp_path}/whole"), [])
    with pytest.raises(KeyboardInterrupt):
        run(settings(*fake(fails="epoch", error="ctrl-c")), [])
    assert methods(heard) == ["started", "epoch", "interrupted"]
    assert comparable(run(settings(), []).result) == comparable(whole.result)


# Mistakes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOGGERS)
def test_a_missing_package_is_one_line_that_says_what_to_install(
    name, tmp_path, monkeypatch, capfd
):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda package: None if package == name else find(package)
    )
    monkeypatch.chdir(tmp_path)
    for arguments in ((), ("-m", "seed=1,2")):
        assert run_command(*arguments, *TINY, f"logger={name}") == 2
        said = capfd.readouterr()
        assert said.out == ""
        assert said.err == (
            f"mixbench: logger: expected the package {name} to be installed, got no such package; "
            f"pip install 'mixbench[{name}]'\n"
        )
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_a_packages_name_is_not_the_package(settings, tmp_path, monkeypatch):
    """As W&B makes one called wandb where runs are started."""
    (tmp_path / "a_package_that_is_nowhere").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.util.find_spec("a_package_that_is_nowhere") is not None
    with pytest.raises(SettingError, match="pip install a_package_that_is_nowhere"):
        run(settings(*fake(cls="Needy")), [])
    assert not (tmp_path / "outputs").exists()


def test_a_logger_that_cannot_be_made_is_a_mistake(settings, tmp_path):
    with pytest.raises(SettingError, match=r"logger\.told: .*RuntimeError: cannot be made"):
        run(settings(*fake(fails="constructor")), [])
    with pytest.raises(SettingError, match=r"logger\.x\._target_: expected a subclass of .*Logger"):
        run(settings("+logger.x._target_=torch.nn.Flatten"), [])
    assert not (tmp_path / "outputs").exists()


def test_a_logger_of_ones_own_has_a_name(tmp_path, monkeypatch, capfd):
    (tmp_path / "conf" / "logger").mkdir(parents=True)
    path = tmp_path / "conf" / "logger" / "mine.yaml"
    path.write_text("_target_: tests.support.fake_logger.Told\n")
    monkeypatch.chdir(tmp_path)
    arguments = ("--config-dir", "conf", *TINY, "logger=mine")
    assert run_command(*arguments) == 2
    assert "begin its YAML with `# @package logger.NAME`" in capfd.readouterr().err
    path.write_text("# @package logger.mine\n_target_: tests.support.fake_logger.Told\n")
    assert run_command(*arguments) == 2
    err = capfd.readouterr().err
    assert err.startswith("mixbench: logger.mine._target_: expected a class of mixbench")
    assert run_command(*arguments, "allowed_targets=[tests.support.fake_logger]") == 0


@pytest.mark.parametrize("name", LOGGERS)
def test_a_yaml_names_every_knob_of_its_class(settings, name):
    node = settings(f"logger={name}").logger[name]
    cls = get_object(node["_target_"])
    signature = inspect.signature(cls)
    assert set(node) - {"_target_"} == set(signature.parameters)
    assert all(p.kind is p.KEYWORD_ONLY for p in signature.parameters.values())
    assert cls.package == cls.extra == name


def test_a_sweep_may_choose_loggers(tmp_path, monkeypatch, heard):
    for kind, name, text in (
        (
            "logger",
            "one",
            "# @package logger.one\n_target_: tests.support.fake_logger.Told\nname: one\n",
        ),
        (
            "logger",
            "two",
            "# @package logger.two\n_target_: tests.support.fake_logger.Told\nname: two\n",
        ),
        ("sweep", "both", "# @package _global_\ndefaults: [override /logger: [one, two]]\n"),
    ):
        path = tmp_path / "conf" / kind / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    arguments = ("--config-dir", "conf", *TINY, "allowed_targets=[tests.support.fake_logger]")
    assert run_command(*arguments, "sweep=both") == 0
    assert methods(heard, "one") == methods(heard, "two") != []
    heard.clear()
    assert run_command(*arguments, "rerun=all", "logger=[two,none]", "logger.two.name=three") == 0
    assert {who for who, _, _ in heard} == {"three"}


@pytest.mark.parametrize("text", ["", "*", "../../x", "a b", "é", "x\n"])
def test_an_unfinished_log_has_a_plain_name(settings, text):
    """It may be of a record from elsewhere, and what bears the name is removed."""
    folder = folder_of(settings())
    folder.create()
    unfinished = Unfinished(LoggedRun(settings(), folder, {}), "wandb")
    assert unfinished.read() is None
    unfinished.write("a1")
    assert unfinished.read() == "a1"
    unfinished.write(text)
    assert unfinished.read() is None
    unfinished.remove()
    unfinished.remove()
    assert list(folder.path.iterdir()) == []


def test_loggers_import_neither_torch_nor_their_packages():
    code = (
        "import importlib, sys\n"
        f"for name in {LOGGERS}:\n"
        "    importlib.import_module(f'mixbench.loggers.{name}')\n"
        "import mixbench.loggers.dispatch\n"
        f"print(sorted({{'torch', 'huggingface_hub', *{LOGGERS}}} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# What the real ones write ------------------------------------------------------------------------


@pytest.fixture
def logged(settings):
    """Runs with a logger, is interrupted after the second of three epochs, and goes on."""

    def make(name):
        chosen = settings(f"logger={name}")
        with pytest.raises(KeyboardInterrupt):
            run(chosen, [Listener(2, interrupt)])
        outcome = run(chosen, [])
        assert warnings_in(outcome.folder) == 0, outcome.folder.log.read_text()
        assert not (outcome.folder.path / f".{name}").exists()
        return outcome, read_history(outcome.folder.history)

    return make


def points(rows, name):
    return [(row["step"], row[name]) for row in rows]


def test_tensorboard(logged, tmp_path):
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    outcome, rows = logged("tensorboard")
    folder = tmp_path / "outputs" / "tensorboard" / outcome.folder.path.name
    read = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    read.Reload()
    for name in ("train/loss", "valid/accuracy", "lr", "seconds"):
        found = [(each.step, each.value) for each in read.Scalars(name)]
        assert [step for step, _ in found] == [4, 8, 12]
        expected = [value for _, value in points(rows, name)]
        assert [value for _, value in found] == pytest.approx(expected, rel=1e-6)
    for name, value in final_numbers(outcome.result).items():
        assert read.Scalars(name)[-1].value == pytest.approx(value, rel=1e-6), name
    (text,) = read.Tensors("configuration/text_summary")
    config = json.loads(text.tensor_proto.string_val[0])
    assert config["mixer.num_heads"] == 2
    assert config["identity"] == outcome.folder.identity
    (text,) = read.Tensors("result/text_summary")
    assert json.loads(text.tensor_proto.string_val[0])["status"] == "completed"


def wandb_records(path):
    """The records of an offline run's file: LevelDB's log format, after seven bytes of its own."""
    from wandb.proto import wandb_internal_pb2

    content, at, whole = path.read_bytes(), 7, b""
    while at < len(content):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + 7])
        whole += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""


def test_wandb(logged, tmp_path):
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    outcome, rows = logged("wandb")
    (path,) = (tmp_path / "outputs" / "wandb").glob("offline-run-*/run-*.wandb")
    records = list(wandb_records(path))

    def items(of):
        return {each.key or "/".join(each.nested_key): json.loads(each.value_json) for each in of}

    history = [items(each.history.item) for each in records if each.HasField("history")]
    for name in ("train/loss", "valid/accuracy", "lr", "seconds", "epoch"):
        found = [(row["_step"], row[name]) for row in history]
        assert found == [(step, pytest.approx(v, rel=1e-12)) for step, v in points(rows, name)]
    (begun,) = [each.run for each in records if each.HasField("run")]
    assert begun.project == "mixbench"
    assert begun.display_name == outcome.folder.path.name
    config = items(begun.config.update)
    assert config["mixer.num_heads"] == 2
    assert config["identity"] == outcome.folder.identity
    summary = {}
    for each in records:
        if each.HasField("summary"):
            summary.update(items(each.summary.update))
    for name, value in {**final_numbers(outcome.result), **final_words(outcome.result)}.items():
        assert summary[name] == value
    assert [each.exit.exit_code for each in records if each.HasField("exit")] == [0]


def test_mlflow(logged, settings, tmp_path):
    """Two at once find no database, make it once, and write to it."""
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    from mlflow import MlflowClient

    begun, raised = [], []

    def begin(chosen):
        folder = folder_of(chosen)
        folder.create()
        logger = Experiment(chosen).loggers["mlflow"]
        try:
            begun.append(logger.started(LoggedRun(chosen, folder, {})))
            logger.interrupted()
        except BaseException as error:
            raised.append(error)

    both = [settings("logger=mlflow", f"seed={seed}") for seed in (8, 9)]
    threads = [threading.Thread(target=begin, args=(each,)) for each in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (begun, raised) == ([0, 0], [])

    outcome, rows = logged("mlflow")
    client = MlflowClient(f"sqlite:///{tmp_path}/outputs/mlflow.db")
    experiment = client.get_experiment_by_name("mixbench").experiment_id
    assert len(client.search_runs([experiment], "attributes.status = 'KILLED'")) == 2
    (found,) = client.search_runs([experiment], f"tags.identity = '{outcome.folder.identity}'")
    assert found.info.status == "FINISHED"
    assert found.info.run_name == outcome.folder.path.name
    for name in ("train/loss", "valid/accuracy", "lr", "seconds", "epoch"):
        history = client.get_metric_history(found.info.run_id, name)
        assert [(each.step, each.value) for each in history] == points(rows, name)
    for name, value in final_numbers(outcome.result).items():
        assert found.data.metrics[name] == value
    for name, text in final_words(outcome.result).items():
        assert found.data.tags[name] == text
    assert found.data.params["mixer.num_heads"] == "2"
    again = run(settings("logger=mlflow", "rerun=all"), []).folder
    finished = client.search_runs([experiment], f"tags.identity = '{again.identity}'")
    assert [each.info.status for each in finished] == ["FINISHED"] * 2


def test_trackio(logged, tmp_path, capfd):
    if importlib.util.find_spec("trackio") is None:  # it has to be imported by the logger first
        pytest.skip("the extra trackio is not installed")
    outcome, rows = logged("trackio")
    assert "rackio" not in capfd.readouterr().out
    from trackio import Api
    from trackio.sqlite_storage import SQLiteStorage

    (found,) = Api().runs("mixbench")
    assert (tmp_path / "outputs" / "trackio" / "mixbench.db").exists()
    assert found.name == outcome.folder.path.name
    *history, final = SQLiteStorage.get_logs("mixbench", run_id=found.id)
    for name in ("train/loss", "valid/accuracy", "lr", "seconds", "epoch"):
        assert points(history, name) == points(rows, name)
    expected = {**final_numbers(outcome.result), **final_words(outcome.result)}
    assert {name: final[name] for name in expected} == expected
    assert found.config["mixer.num_heads"] == 2
    assert found.config["identity"] == outcome.folder.identity
