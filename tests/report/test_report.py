"""`mixbench report`: what it writes, what it imports, and what it does not let through."""

from __future__ import annotations

import json
import os
import re

import pytest

from docs.results.spiderweb.analytic import analytic_table
from mixbench.report.format import number, observed
from mixbench.report.markdown import escape, table_lines
from tests.conftest import run_command
from tests.support.records import fabricate


@pytest.fixture
def report(capfd):
    """Runs `mixbench report` in this process: exit code, standard output, standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        return run_command("report", *arguments), *capfd.readouterr()

    return run


@pytest.fixture
def outputs(tmp_path):
    folder = tmp_path / "outputs"
    for seed in range(8):
        fabricate(folder, "attention", seed, 0.5, 0.5 + 0.001 * seed)
        fabricate(folder, "laplacian", seed, 0.5, 0.497)
    return folder


def test_everything_is_written_into_the_first_path(report, outputs):
    code, out, err = report(outputs)
    assert (code, err) == (0, "")
    assert "laplacian vs attention: mechanism not stated, baseline not beaten" in out
    assert {path.name for path in outputs.iterdir()} == {
        "runs",
        "report.html",
        "report.json",
        "report.md",
        "plots",
    }
    (study,) = json.loads((outputs / "report.json").read_text())["studies"]
    assert study["environment"]["runs"] == {"completed": 16}
    assert (outputs / "plots" / "runs-paired.png").read_bytes().startswith(b"\x89PNG")
    text = (outputs / "report.md").read_text()
    assert "16 completed runs; on Linux; CPUs 2" in text
    assert re.search(r"\| laplacian vs attention \| not beaten", text)


def test_equal_records_give_equal_bytes(report, outputs, tmp_path):
    for name in ("one", "two"):
        report(outputs / "runs", "--out", tmp_path / name)
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.*"))
    assert len(files) > 3
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_formats_and_out(report, outputs, tmp_path):
    code, out, _ = report(outputs, "--format", "json", "--out", tmp_path / "new")
    assert code == 0
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["report.json"]
    assert "mechanism" not in out
    code, out, _ = report(
        outputs, "--format=terminal", "--idea", "attention", "--baseline=laplacian"
    )
    assert "attention vs laplacian" in out
    assert not (outputs / "report.json").exists()


def test_missing_sides_exit_with_1_after_the_report(report, outputs):
    gone = next((outputs / "runs").glob("*laplacian-seed3*"))
    (gone / "result.json").unlink()
    code, out, err = report(outputs, "--format", "terminal")
    assert code == 1
    assert err == ("mixbench: 1 of 1 comparisons have no verdict: 1 runs are missing or failed\n")
    assert "no verdict" in out
    assert "mixbench mixer=laplacian lr=0.001 seed=3" in out


MISTAKES = [
    (["nowhere"], "report: expected a path that exists, got nowhere"),
    (
        ["{}", "--format", "pdf"],
        "--format: expected some of terminal, json, md, html, plots, got pdf",
    ),
    (["{}", "--idea", "laplacien"], "--idea: expected one of .* did you mean 'laplacian'"),
    (["{}", "--bogus"], "report: expected arguments as --help lists them, got unrecognized"),
    (["{}", "--out", "/proc/nowhere"], "--out: expected a folder that can be written"),
]


@pytest.mark.parametrize(("arguments", "says"), MISTAKES)
def test_a_mistake_is_one_line(report, outputs, arguments, says):
    code, _, err = report(*(text.format(outputs) for text in arguments))
    assert code == 2
    assert re.match(f"mixbench: {says}", err), err
    assert err.count("\n") == 1


def test_arms_on_different_tasks_are_drawn_all_the_same(report, tmp_path):
    for pairs, mixer in ((2, "attention"), (4, "local")):
        fabricate(tmp_path / "o", mixer, dataset={"num_pairs": pairs})
    code, _, err = report(tmp_path / "o", "--format", "plots")
    assert (code, err) == (0, "")
    assert (tmp_path / "o" / "plots" / "runs-by-num-pairs.png").exists()


def test_unfinished_runs_only_are_a_mistake(report, outputs):
    for path in (outputs / "runs").glob("*/result.json"):
        path.unlink()
        (path.parent / "run.log").write_text("")
    code, _, err = report(outputs)
    assert code == 2
    assert "at least one run with a result" in err


def test_neither_torch_nor_scipy_stats_is_imported(mixbench, outputs):
    env = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    done = mixbench("report", str(outputs), "--format", "terminal,json,md", env=env)
    assert done.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "mixbench.stats" in imported
    assert not imported & {"torch", "scipy.stats", "matplotlib", "jinja2"}


def test_strangers_text_means_nothing_to_markdown(report, outputs):
    fabricate(outputs, "spiderweb", status="diverged")
    report(outputs, "--format", "md", "--idea", "laplacian")
    text = (outputs / "report.md").read_text()
    assert r"step 3: &lt;b&gt;\|the loss\|&lt;/b&gt; is not finite" in text
    assert "<b>" not in text
    assert escape("a\n# b [x](y) `z`") == r"a \# b \[x\](y) \`z\`"


def test_numbers_for_reading():
    assert [number(x) for x in (0.99951, 0.0, 0.00123456, 12.5)] == [
        "0.9995", "0.0000", "0.00123", "12.5000",
    ]  # fmt: skip
    assert observed({"a": [1.0, 2.34567], "b": True}) == "a: 1, 2.346, b: true"
    assert observed(list(range(32))) == "0, 1, 2, ... 31 (32 values)"


def test_the_analytic_table_reproduces_what_was_published():
    for _, published, here in analytic_table().rows:
        assert published == here
    assert table_lines(analytic_table())[2].startswith("| prediction | published | here |")
