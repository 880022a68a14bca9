"""`report.html` and its plots: what stands in them, and what strangers' records cannot do there."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections import Counter
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest

from mixbench.compare.collect import collect
from mixbench.compare.compare import compare
from mixbench.compare.content import StudyReport
from mixbench.compare.verdicts import mechanism_sentence, outcome_sentence, warnings
from mixbench.datasets.mqar import MQAR
from mixbench.records.folder import write_history
from mixbench.report.canvas import COLOURS, MARKERS, style
from mixbench.report.figures import study_plots
from mixbench.report.marks import BOUND, COLUMNS, Mark, Panel, Plot, as_csv
from mixbench.report.plots import panel_svg
from tests.compare.test_collect import planned
from tests.conftest import run_command
from tests.support.browser import Browser, find_browser
from tests.support.records import fabricate

RECALL = {"num_pairs": 4, "vocab_size": 64}
# Numbers that the state of every made-up run holds.
STATE = 6
VOID = {"meta", "br", "hr", "img", "input", "link"}
SECTIONS = [
    "Comparison", "Plots", "Signatures", "Seeds", "Failures", "Configuration",
    "Machine and versions", "Run it again",
]  # fmt: skip


class Page(HTMLParser):
    """A page taken apart; whatever is not well formed fails."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(set(names)) == len(names), (tag, names)
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.texts.append((self._open[-1] if self._open else "", " ".join(data.split())))

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def said(self, *tags):
        return [text for tag, text in self.texts if tag in tags]


def assert_inert(page: Page) -> None:
    """Nothing that runs, fetches or leads away; and the browser is told so."""
    allowed = {
        "html", "head", "meta", "title", "style", "body", "main", "header", "article", "section",
        "nav", "footer", "h1", "h2", "h3", "h4", "p", "a", "ul", "li", "span", "strong", "div",
        "table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary", "figure",
        "figcaption", "pre", "code", "svg", "g", "defs", "path", "use", "clippath", "rect", "text",
    }  # fmt: skip
    assert {tag for tag, _ in page.elements} <= allowed
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith(("on", "src", "xlink", "xmlns", "action")), (tag, name)
            assert "//" not in (value or "") or name in ("href", "aria-label"), (tag, name, value)
            if name == "href":
                assert value[0] == "#" or value.startswith("data:text/csv;charset=utf-8,"), value
                assert value[0] != "#" or value[1:] in ids, value
            for target in re.findall(r"url\(([^)]*)\)", value or ""):
                assert target[0] == "#"
                assert target[1:] in ids
    policy = next(meta for meta in page.all("meta") if "http-equiv" in meta)
    assert policy == {
        "http-equiv": "Content-Security-Policy",
        "content": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
    }
    (css,) = page.said("style")
    assert "url(" not in css
    assert "@import" not in css


def signature(holds=True):
    check = {"name": "rows sum to 1", "layer": 0, "predicted": 0, "observed": 0.5, "tolerance": 1}
    failing = [] if holds else ["rows sum to 1"]
    return {"holds": holds, "held": int(holds), "of": 1, "failing": failing,
            "checks": [{**check, "holds": holds}]}  # fmt: skip


def recall_analysis(data, accuracy):
    """What the real task writes into a record."""
    task = MQAR(seq_len=64, num_train=1, num_valid=1, num_test=1, **data)
    return asdict(task.analyse({"accuracy": accuracy}, STATE))


def judged(outputs: Path, mixer: str, seed: int, score: float, **more) -> Path:
    data = {**RECALL, **more.pop("dataset", {})}
    folder = fabricate(
        outputs, mixer, seed, score - 0.01, score, lr=1e-2, dataset=data,
        signature=signature(mixer != "lattice"), analysis=recall_analysis(data, score), **more,
    )  # fmt: skip
    rows = [{"epoch": e, "step": 5 * e, "valid/accuracy": score * e / 4} for e in (1, 2, 3)]
    write_history(folder / "history.csv", rows)
    return folder


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Two tasks, three arms; attention tried two rates, one lattice run failed."""
    folder = tmp_path_factory.mktemp("page") / "outputs"
    for pairs, lr in itertools.product((4, 8), (1e-3, 1e-2)):
        data = {**RECALL, "num_pairs": pairs}
        fabricate(folder, "attention", 0, 50 * lr, lr=lr, reads_test=False, dataset=data)
    for pairs, seed in itertools.product((4, 8), range(1000, 1006)):
        data = {"num_pairs": pairs}
        judged(folder, "attention", seed, 0.9 - 0.01 * pairs + 0.001 * (seed % 5), dataset=data)
        judged(folder, "local", seed, 0.5 + 0.002 * (seed % 4), dataset=data)
        lost = "failed" if (pairs, seed) == (8, 1003) else "completed"
        judged(folder, "lattice", seed, 0.95 - 0.01 * pairs, dataset=data, status=lost)
    return folder


@pytest.fixture(scope="module")
def report(outputs):
    """The folder with everything written: the JSON, the page, the plots."""
    assert run_command("report", outputs) == 1  # a run failed
    return outputs


@pytest.fixture(scope="module")
def study(report):
    content = json.loads((report / "report.json").read_text())
    return msgspec.convert(content["studies"][0], StudyReport)


@pytest.fixture(scope="module")
def page(report):
    return Page((report / "report.html").read_text())


def test_the_page_is_inert(page):
    assert_inert(page)


def test_every_section_is_there_and_the_verdict_comes_first(page, study):
    assert page.said("h1") == ["plain runs"]
    assert page.said("h2") == ["Warnings", *SECTIONS]
    targets = [link["href"] for link in page.all("a") if link["href"].startswith("#")]
    assert len(targets) == len(SECTIONS)
    texts = [text for _, text in page.texts]
    verdicts = [v for task in study.tasks for v in task.verdicts]
    assert len(verdicts) == 4
    for verdict in verdicts:
        assert texts.index(verdict.summary) < texts.index("Warnings")
        assert verdict.detail in texts


def test_the_pages_tables_hold_what_the_terminals_do(page, study):
    rows = page.said("th", "td")
    (task, _) = study.tasks
    (local,) = [arm for arm in task.arms if arm.name == "local"]
    assert f"{local.test.mean:.4f} " in " ".join(rows)
    assert {"parameters", "state held", "seconds a run", "p (Holm)", "recalled bits"} <= set(rows)
    assert "rows sum to 1" in rows
    assert "step 3: <b>|the loss|</b> is not finite" in rows  # the failure, with its reason
    assert {"lr", "mixer._target_", "mixbench.mixers.lattice.Mixer"} <= set(rows)
    assert {"CPUs", "torch", "mixbench's code"} <= set(rows)
    assert {str(seed) for seed in range(1000, 1006)} <= set(rows)
    failing = [t for t in page.all("tr") if t.get("class") == "flagged"]
    assert len(failing) == 2  # the lattice's claim, on both tasks


def test_commands_are_given_in_full(page, report):
    commands = page.said("code")
    assert "mixbench mixer=lattice lr=0.01 seed=1003 rerun=failed" in commands
    seeds = ",".join(map(str, range(1000, 1006)))
    assert f"mixbench mixer=local lr=0.01 seed={seeds} -m" in commands
    assert commands[-1] == f"mixbench report {report}"


def test_tables_and_drawings_tell_what_they_are(page):
    for table in ("caption", "thead", "tbody"):
        assert len(page.all(table)) == len(page.all("table")) > 10
    assert {cell.get("scope") for cell in page.all("th")} == {"col", "row"}
    drawings = [div for div in page.all("div") if div.get("role") == "img"]
    assert len(drawings) > 10
    names = ("attention", "local", "lattice")
    assert all(any(name in drawing["aria-label"] for name in names) for drawing in drawings)
    assert all(svg["aria-hidden"] == "true" for svg in page.all("svg"))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    assert page.all("html") == [{"lang": "en"}]


def read_csv(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_every_plot_is_a_png_an_svg_and_numbers(page, report):
    files = Counter(path.suffix for path in (report / "plots").iterdir())
    assert files == {".png": 7, ".svg": 7, ".csv": 7}
    links = {a["download"]: a["href"] for a in page.all("a") if "download" in a}
    assert links.keys() == {path.name for path in (report / "plots").glob("*.csv")}
    for path in (report / "plots").iterdir():
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
        elif path.suffix == ".svg":
            drawing = ElementTree.fromstring(path.read_bytes())
            assert any("attention" in (text.text or "") for text in drawing.iter()), path
            refers = [v for e in drawing.iter() for k, v in e.items() if k.endswith("href")]
            assert all(value.startswith("#") for value in refers)
        else:
            assert unquote(links[path.name].partition(",")[2]) == path.read_text()
            assert path.read_text().startswith(",".join(COLUMNS))


def test_the_csvs_numbers_are_the_reports(report, study):
    def rows(slug):
        return read_csv((report / "plots" / f"runs-{slug}.csv").read_text())

    differences = {
        (task.name, each.idea, str(pair.seed)): pair.difference
        for task in study.tasks
        for each in task.comparisons
        for pair in each.pairs
    }
    found = {
        (row["task"], row["arm"], row["seed"]): float(row["x"])
        for row in rows("paired")
        if row["kind"] == "seed"
    }
    assert found == differences
    arms = {(t.name, arm.name): arm for t in study.tasks for arm in t.arms}
    for row in rows("seeds") + rows("by-num-pairs"):
        arm = arms[row["task"], row["arm"]]
        runs = {str(run.seed): run.test for run in arm.evaluation}
        assert float(row["y"]) == (arm.test.mean if row["kind"] == "mean" else runs[row["seed"]])
        if row["kind"] == "mean":
            assert (float(row["low"]), float(row["high"])) == arm.test.interval
    curves = [(float(row["x"]), float(row["y"])) for row in rows("curves")]
    histories = [run.history for arm in arms.values() for run in arm.evaluation]
    assert sorted(curves) == sorted((x, y) for history in histories for x, y in history)
    first = study.tasks[0].name
    budget = [float(row["y"]) for row in rows("budget") if row["task"] == first]
    assert len(budget) == 2
    assert budget == arms[first, "attention"].budget


def test_the_state_plot_has_the_information_bound(report, study):
    task = study.tasks[0]
    bits = np.log2(32 * 31 * 30 * 29)
    assert f"4 pairs with 32 values take at least {bits:.1f} bits" in task.analysis.title
    rows = read_csv((report / "plots" / "runs-state.csv").read_text())
    bound = [r for r in rows if r["kind"] == BOUND and r["task"] == task.name]
    states = [float(row["x"]) for row in bound]
    assert states == sorted(states)
    assert float(bound[-1]["y"]) == 1
    assert states[-1] == pytest.approx(4 * 5 / 32)  # 4 pairs, each one of 32 values
    assert states[0] >= 1 / 32
    runs = [row for row in rows if row["kind"] == "run" and row["task"] == task.name]
    assert {float(row["x"]) for row in runs} == {6.0}  # measured_state_size of the made-up records
    (local,) = [arm for arm in task.arms if arm.name == "local"]
    recalled, state_bits, share = local.analysis.values()
    assert state_bits == 6 * 32
    assert share == pytest.approx(recalled / 192)
    assert 0 < recalled < 20


def test_a_task_that_says_nothing_has_no_bound(tmp_path):
    fabricate(tmp_path)
    study = compare(collect([tmp_path])[0])
    assert study.tasks[0].analysis is None
    (plot,) = [each for each in study_plots(study) if each.slug == "state"]
    assert {mark.kind for mark in plot.panels[0].marks} == {"run"}


@pytest.mark.parametrize(("tried", "kinds"), [(3, {"best trial", "trial"}), (10, {"trial"})])
def test_a_line_joins_the_best_of_a_grid_but_no_random_search(tmp_path, tried, kinds):
    for number, batch in itertools.product(range(tried), (8, 16)):
        valid = 0.1 * number / tried + 0.01 * batch
        fabricate(
            tmp_path, "attention", 0, valid, lr=1e-3 * 2**number, batch_size=batch, reads_test=False
        )
    (plot,) = [p for p in study_plots(compare(collect([tmp_path])[0])) if p.slug == "lr"]
    marks = plot.panels[0].marks
    assert len(marks) == 2 * tried
    assert {mark.kind for mark in marks} == kinds
    best = [mark.y for mark in marks if mark.kind == "best trial"]
    assert best == pytest.approx([0.1 * n / tried + 0.16 for n in range(tried)][: len(best)])


EVIL = "<script>pwned=1</script><img src=x onerror=pwned=1>"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Records and a sweep whose every text tries something."""
    folder = tmp_path_factory.mktemp("hostile")
    planned(folder)
    sweep = folder / "sweeps" / "s" / "sweep.json"
    content = json.loads(sweep.read_text())
    content["study"] |= {
        "title": f"</title>{EVIL}",
        "published": "javascript:pwned=1",
        "source": f'https://example.invalid/" onclick="pwned=1"{EVIL}',
    }
    content["command"] = f"mixbench '{EVIL}' \x1b[31m"
    sweep.write_text(json.dumps(content))
    targets = (f"m.{EVIL}.M", "m.]]>\"'{{7*7}}$\\frac{$.M", "m.=cmd|x!A1.M")
    for number, (seed, target) in enumerate(itertools.product(range(2), targets)):
        data = {"name": f"]]>--!>{EVIL}"}
        path = fabricate(folder, "attention", seed, dataset=data, lr=0.1 * number) / "result.json"
        result = json.loads(path.read_text())
        result["config"]["mixer"] = {
            "_target_": target,
            EVIL: f"'\"><a href=javascript:pwned=1>{EVIL}",
        }
        result["metric"] = "a<b>&\"'"
        result["metrics"] = {"valid/a<b>&\"'": 0.5, "test/a<b>&\"'": 0.5 + seed / 10}
        result["versions"] = {EVIL: EVIL}
        result["machine"] = {"system": f"\x00\x1b\ud800\u202e{EVIL}", "cpus": 2, "cpu": EVIL}
        result["signature"] = {
            "holds": False, "held": 0, "of": 1, "failing": [EVIL],
            "checks": [
                {"name": EVIL, "layer": 0, "predicted": EVIL, "observed": EVIL, "holds": False}
            ],
        }  # fmt: skip
        path.write_text(json.dumps(result))
        lost = fabricate(folder, "local", number, status="failed") / "result.json"
        result = json.loads(lost.read_text()) | {
            "reason": f"javascript:pwned=1 {EVIL} \x1b]0;x\x07"
        }
        lost.write_text(json.dumps(result))
    run_command("report", folder)
    return folder


def test_a_hostile_record_stays_inert(hostile):
    text = (hostile / "report.html").read_text()
    page = Page(text)
    assert_inert(page)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e\ud800-\udfff]", text)
    shown = " ".join(text for _, text in page.texts)
    assert EVIL in shown  # told, as text
    assert "{{7*7}}" in shown
    assert "https://example.invalid/" in shown
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", (hostile / "report.md").read_text())
    for path in (hostile / "plots").glob("*.svg"):
        drawing = ElementTree.fromstring(path.read_bytes())
        assert not [e for e in drawing.iter() if e.tag.rpartition("}")[2] in ("script", "image")]


def test_no_spreadsheet_takes_a_name_for_a_formula():
    plot = Plot(
        "p", "t", "", ("=1+1",), (Panel("@x", "lines", "", "", [Mark("=1+1", "run", 1, -2)]),)
    )
    (row,) = read_csv(as_csv(plot))
    assert (row["task"], row["arm"], row["y"]) == ("'@x", "'=1+1", "-2")


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "1e200", "1" + "0" * 300])
def test_numbers_that_nothing_can_be_computed_with_are_no_result(tmp_path, number):
    fabricate(tmp_path)
    broken = fabricate(tmp_path, seed=1, test=0.123)
    path = broken / "result.json"
    path.write_text(path.read_text().replace("0.123", number))
    study = compare(collect([tmp_path])[0])
    assert study.environment.runs == {"completed": 1}
    assert f"results that cannot be read, left out: {broken.name}" in study.notes


@pytest.mark.parametrize(
    "changes",
    [
        {"metrics": {"test/accuracy": "0.9"}}, {"margin": "<b>"}, {"seed": "1"},
        {"signature": {"of": 1}}, {"trivial_baseline": []}, {"operations": {"per_token": "x"}},
        {"status": 3}, {"metric": None},
    ],
)  # fmt: skip
def test_a_result_of_other_kinds_of_values_is_no_result(tmp_path, changes):
    fabricate(tmp_path)
    path = fabricate(tmp_path, seed=1) / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    assert compare(collect([tmp_path])[0]).environment.runs == {"completed": 1}


def test_a_curve_without_finite_numbers_is_drawn_as_far_as_it_goes(tmp_path):
    folder = fabricate(tmp_path)
    (folder / "history.csv").write_text("step,valid/accuracy\n1,0.5\n2,nan\n3,inf\n")
    (task,) = compare(collect([tmp_path])[0]).tasks
    assert task.arms[0].evaluation[0].history == [(1, 0.5)]


def test_several_studies_share_a_page(tmp_path):
    planned(tmp_path)
    fabricate(tmp_path, "lattice", 5)
    assert run_command("report", tmp_path, "--format", "html") == 1
    assert not (tmp_path / "plots").exists()
    page = Page((tmp_path / "report.html").read_text())
    assert_inert(page)
    assert page.said("h1") == ["2 studies"]
    assert page.said("h2") == ["T", "plain runs"]
    assert "it wins" in page.said("p")
    assert page.said("h3").count("Comparison") == 2
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h\d", tag)]
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))


# ------------------------------------------------------------------- sentences


def compared(tmp_path, idea, baseline=0.5, **more):
    for seed, score in enumerate(idea):
        fabricate(tmp_path, "attention", seed, 0.5, baseline + 0.0001 * (seed % 3))
        fabricate(tmp_path, "local", seed, 0.5, score, **more)
    study = compare(collect([tmp_path])[0])
    (task,) = study.tasks
    return study, task, task.comparisons[0]


@pytest.mark.parametrize(
    ("idea", "outcome", "says"),
    [
        ([0.6] * 8, "beats", r"local beats attention\. .*better at 8 of 8 seeds; .*p = 0\.0039"),
        ([0.3] * 8, "not beaten", r"local is worse than attention\. .*-0\.2"),
        ([0.5001] * 8, "not beaten", "local is as good as attention, and not better"),
        ([0.499] * 8, "not beaten", "local is worse than attention, but not by much"),
        ([0.4, 0.7] * 4, "inconclusive", "may or may not beat .* A difference of 0.01 would"),
        ([0.5], "inconclusive", "The variance cannot be estimated from one seed"),
        ([], "incomplete", ""),
    ],
)
def test_a_verdict_in_a_sentence(tmp_path, idea, outcome, says):
    if not idea:
        fabricate(tmp_path, "attention", 0)
        fabricate(tmp_path, "local", 1)
        says = r"No verdict: 2 runs are missing or failed"
        (task,) = compare(collect([tmp_path])[0]).tasks
        comparison = task.comparisons[0]
    else:
        _, task, comparison = compared(tmp_path, idea)
    assert comparison.outcome == outcome
    assert re.search(says, outcome_sentence(task, comparison))


def test_a_saturated_task_in_a_sentence(tmp_path):
    _, task, comparison = compared(tmp_path, [0.999] * 8, baseline=0.998)
    assert comparison.outcome == "saturated"
    assert "both reach the best possible accuracy of 1" in outcome_sentence(task, comparison)


def test_what_diverges_beats_nothing_in_a_sentence(tmp_path):
    compared(tmp_path, [0.9] * 7)
    fabricate(tmp_path, "attention", 7, 0.5, 0.13)
    fabricate(tmp_path, "local", 7, status="diverged")
    study = compare(collect([tmp_path])[0])
    (task,) = study.tasks
    said = outcome_sentence(task, task.comparisons[0])
    assert said.startswith("local diverged at 1 seed, and an arm with diverged runs cannot win.")
    assert "mqar, local: 1 run diverged" in warnings(study)


def test_mechanisms_in_a_sentence(tmp_path):
    for mixer, holds in (("attention", True), ("local", False)):
        for seed in range(2):
            fabricate(tmp_path, mixer, seed, signature=signature(holds))
    fabricate(tmp_path, "spiderweb")
    (task,) = compare(collect([tmp_path])[0]).tasks
    said = {arm.name: mechanism_sentence(arm) for arm in task.arms}
    assert said == {
        "attention": "The one prediction that attention makes about its own mechanism holds on "
        "each of 2 trained models.",
        "local": "What local claims about its own mechanism does not hold: “rows sum to 1” fails "
        "on 2 of 2 trained models.",
        "spiderweb": "spiderweb predicts nothing about its own mechanism.",
    }


def test_missing_seeds_unequal_budgets_and_edges_come_first(report, study):
    found = warnings(study)
    assert "unequal budgets on mqar, num_pairs=4: trials attention 2, lattice 1, local 1" in found
    assert "mqar, num_pairs=8, lattice vs attention: missing seeds 1003" in found
    assert "mqar, num_pairs=8, lattice: 1 run failed" in found
    assert found[-1].startswith("chosen at the edge of what was tried")
    assert "attention's lr on mqar, num_pairs=4" in found[-1]


# --------------------------------------------------------------------- colours

# Machado, Oliveira and Fernandes 2009: linear RGB as it is seen with one kind of cone missing.
BLINDNESS = {
    "none": [1, 0, 0, 0, 1, 0, 0, 0, 1],
    "protanopia": [
        0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216,
        -0.003882, -0.048116, 1.051998,
    ],
    "deuteranopia": [
        0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413,
        -0.011820, 0.042940, 0.968881,
    ],
    "tritanopia": [
        1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602,
        0.004733, 0.691367, 0.303900,
    ],
}  # fmt: skip
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)


def linear(colour):
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    xyz = TO_XYZ @ np.clip(rgb, 0, 1) / np.array([0.95047, 1, 1.08883])
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one, other):
    low, high = sorted(float(linear(c) @ TO_XYZ[1]) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


def themes():
    """The page's colour variables, light and dark."""
    css = (Path(__file__).parents[2] / "mixbench" / "report" / "page.css").read_text()
    light, dark = re.findall(r":root \{(.*?)\}", css, re.S)[:2]
    first = dict(re.findall(r"--([\w-]+): (#\w{6})", light))
    return {"light": first, "dark": first | dict(re.findall(r"--([\w-]+): (#\w{6})", dark))}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("blindness", BLINDNESS)
def test_the_colour_blind_tell_the_arms_apart(theme, blindness):
    """CIE76 distances; a just noticeable one is 2.3."""
    seen = [
        lab(np.reshape(BLINDNESS[blindness], (3, 3)) @ linear(themes()[theme][f"a{i}"]))
        for i in range(len(COLOURS))
    ]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 12


def test_the_page_and_the_files_have_the_same_colours():
    assert tuple(themes()["light"][f"a{i}"].upper() for i in range(len(COLOURS))) == COLOURS


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out(theme):
    """WCAG AA asks for 4.5 for text, for 3 for what is drawn."""
    colours = themes()[theme]
    pairs = [("ink", "page"), ("ink", "card"), ("soft", "page"), ("soft", "card"), ("ink", "code"),
             ("soft", "band"), ("ink", "band"), ("link", "page"), ("link", "card"),
             ("lost", "card"), ("ink", "bad-back")]  # fmt: skip
    pairs += [(name, f"{name}-back") for name in ("good", "bad", "open", "lost")]
    for text, back in pairs:
        assert contrast(colours[text], colours[back]) >= 4.5, (text, back)
    for drawn in ("muted", *(f"a{i}" for i in range(5))):
        assert contrast(colours[drawn], colours["card"]) >= 3, drawn


def test_arms_differ_in_their_markers_too():
    names = [f"arm{i}" for i in range(49)]
    looks = [style(name, names) for name in names]
    assert len(set(looks)) == 49
    assert len(set(looks[: len(MARKERS)])) == len({marker for _, marker in looks[: len(MARKERS)]})


def test_a_panel_for_the_page_has_text_titles_and_the_pages_colours(study):
    plots = {plot.slug: plot for plot in study_plots(study)}
    plot = plots["state"]
    svg = panel_svg(plot, plot.panels[0], "x1")
    drawing = ElementTree.fromstring(svg)
    assert drawing.get("viewBox")
    assert drawing.get("width") is None
    assert "test accuracy" in [text.text for text in drawing.iter("text")]
    titles = [title.text for title in drawing.iter("title")]
    assert "attention, seed 1001: 0.861 at 6" in titles
    assert len(titles) == sum(mark.kind == "run" for mark in plot.panels[0].marks)
    assert "var(--a0)" in svg
    assert "var(--band)" in svg
    assert not re.search("#[0-9a-f]{6}", svg)
    assert all(e.get("id", "x1-").startswith("x1-") for e in drawing.iter())
    assert panel_svg(plot, plot.panels[0], "x1") == svg


# ------------------------------------------------------------------- a browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium is installed (or named by MIXBENCH_BROWSER)")
    browser = Browser(program, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


# Elements that reach beyond the window, and are in no container that scrolls.
BEYOND = """
[...document.querySelectorAll('body *')].filter(e => {
  if (e.closest('.scroll, nav, pre, svg')) return false;
  const box = e.getBoundingClientRect();
  return box.width > 1 && (box.right > innerWidth + 1 || box.left < -1);
}).map(e => e.tagName + ' ' + e.className)
"""
# Texts that do not stand out from what is behind them.
FAINT = """
(() => {
  const parse = c => c.match(/[\\d.]+/g).map(Number);
  const part = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = c => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
  const back = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll('p, li, th, td, a, span, summary, code, h1, h2, text')]
    .filter(e => e.textContent.trim() && e.getClientRects().length)
    .filter(e => {
      const own = getComputedStyle(e);
      const a = light(parse(e.closest('svg') ? own.fill : own.color)), b = light(back(e));
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5;
    }).map(e => e.tagName + ' ' + e.textContent.trim().slice(0, 40));
})()
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844), (360, 740)])
def test_a_browser_shows_the_page(browser, report, width, height, scheme):
    path = report / "report.html"
    assert browser.open(path, width, height, scheme) == []
    assert browser.requests() == [path.absolute().as_uri()]
    assert browser.run("innerWidth") == width
    assert browser.run("document.documentElement.scrollWidth") == width
    assert browser.run("(scrollTo(500, 0), scrollX)") == 0
    assert browser.run(BEYOND) == []
    assert browser.run(FAINT) == []
    back = browser.run("getComputedStyle(document.body).backgroundColor")
    assert back == ("rgb(251, 251, 250)" if scheme == "light" else "rgb(17, 19, 22)")
    for details in (True, False):  # folded parts are there, and do not widen the page
        browser.run(
            f"document.querySelectorAll('details').forEach(d => d.open = {str(details).lower()})"
        )
        assert browser.run("document.documentElement.scrollWidth") == width
    assert browser.run("document.querySelectorAll('figure svg').length") > 10
    drawn = browser.run(
        "[...document.querySelectorAll('.panel svg')].map(s => s.getBoundingClientRect().width)"
    )
    assert min(drawn) > 250


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_runs_nothing_of_a_hostile_record(browser, hostile, scheme):
    path = hostile / "report.html"
    assert browser.open(path, 390, 844, scheme) == []
    assert browser.requests() == [path.absolute().as_uri()]
    assert browser.run("typeof pwned") == "undefined"
    assert browser.run("document.scripts.length + document.images.length") == 0
    assert browser.run("document.documentElement.scrollWidth") == 390
    assert browser.run(BEYOND) == []
