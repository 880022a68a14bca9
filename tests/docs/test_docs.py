"""The pages: every command in them works, every link leads somewhere."""

from __future__ import annotations

import importlib
import io
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from markdown_it import MarkdownIt
from markdown_it.token import Token

from mixbench import stats
from mixbench.cli import main as cli
from mixbench.config.comparison_schema import FIRST_EVALUATION_SEED, ComparisonSchema
from mixbench.config.compose import composed_settings
from mixbench.config.settings import Settings
from mixbench.core.errors import SettingError
from mixbench.launch import slurm
from mixbench.runs.build import Experiment, build_dataset
from mixbench.runs.run import _EXAMINED_ROWS
from mixbench.sweeps.base import CheckedSweeper
from mixbench.sweeps.comparison import ComparisonSweeper
from tests.conftest import run_command
from tests.stress import calibration
from tests.support.records import fabricate

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TUTORIAL = ROOT / "docs" / "bring_your_own.md"  # test_bring_your_own.py runs all of it
QUICKSTART = ROOT / "docs" / "quickstart.md"

PROJECT = (ROOT / "pyproject.toml").read_text()

# Pages that others are still writing; the index names them already.
COMING: set[str] = set()

# A command of the quickstart is run whole if it trains on no more tokens than this, which is some
# 3 seconds at the default model's 100,000 a second (docs/performance.md); else up to its first run.
# A token that is only evaluated counts for a third.
MOST_TOKENS = 240_000

# What `mixbench check` takes that no configuration has.
NAMELESS = ("mixer=all", "mixer._target_=my_module.MyMixer")

# Commands without training in them, run whole on any page.
QUICK = ("data", "list", "report")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def tokens_of(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(text)


@dataclass
class Command:
    """A line of a page: its words behind `mixbench`, and what the page shows as its output."""

    words: list[str]
    shown: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return shlex.join(["mixbench", *self.words])


def commands_of(text: str) -> list[Command]:
    """Commands in a page's code blocks, and those with settings among its words."""
    found = []
    for token in tokens_of(text):
        if token.type in ("fence", "code_block"):
            found += _in_block(token.content.replace("\\\n", " "))
        for child in token.children or ():
            whole = "=" in child.content and not re.search(r"\.\.\.|\b[A-Z]{2,}\b", child.content)
            if child.type == "code_inline" and child.content.startswith("mixbench ") and whole:
                found += _in_block(child.content)
    return found


CALL = re.compile(r"\s*(?:\$ )?(?:\S*/)?mixbench((?: .*)?)$")


def _in_block(content: str) -> Iterator[Command]:
    command = None
    for line in content.splitlines():
        call = CALL.match(line)
        if call:
            command = Command(shlex.split(call.group(1), comments=True))
            yield command
        elif command is not None:
            command.shown.append(line)


def files_of(text: str) -> dict[str, str]:
    """Files that a page tells to write: blocks behind a paragraph that ends with a colon.

    The paragraph names the file as code: ``my_mixers.py``.
    """
    files = {}
    before = None
    for token in tokens_of(text):
        if token.type == "inline":
            before = token
        elif token.type in ("fence", "code_block") and before is not None:
            code = [each.content for each in before.children or () if each.type == "code_inline"]
            names = [name for name in code if re.fullmatch(r"[\w./-]+\.(?:py|ya?ml|toml)", name)]
            if names and before.content.endswith(":"):
                lines = token.content.splitlines()
                files[names[-1]] = "\n".join(line for line in lines if not CALL.match(line))
        elif token.type in ("heading_open", "bullet_list_open"):
            before = None
    return files


_tokens: dict[str, int] = {}


@pytest.fixture
def dry() -> Callable[[Command], int]:
    """Runs a command up to its first training, and gives the tokens it would train on."""

    def run(command: Command) -> int:
        if str(command) in _tokens:
            return _tokens[str(command)]
        built: list[Settings] = []
        number = []
        stopped = []
        build = CheckedSweeper.build

        def stop(*_: Any, **__: Any) -> None:
            stopped.append(True)
            raise SystemExit(0)

        def built_one(self: CheckedSweeper, cfg: Any) -> Settings:
            built.append(build(self, cfg))
            return built[-1]

        def one_an_arm(self: ComparisonSweeper) -> None:
            # All trials of all tasks would take many seconds; tests of the sweeper build them all.
            number.append(sum(self.study.numbers().values()))
            task = next(iter(self.study.tasks.values()))
            first: dict[str, Any] = {}
            for arm in (arm for wave in self.study.selection_stages() for arm in wave):
                planned = self.study.selection_runs(task, arm, first)[0]
                first[arm.name] = dict(planned.values)
                self._settings(planned)

        def single(settings: Settings, *_: Any, **__: Any) -> None:
            Experiment(settings)
            built.append(settings)
            stop()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mixbench.runs.run.run", single)
            patch.setattr(CheckedSweeper, "build", built_one)
            patch.setattr(CheckedSweeper, "launch", stop)
            patch.setattr(ComparisonSweeper, "_check_all", one_an_arm)
            patch.setattr(ComparisonSweeper, "_select", stop)
            with redirect_stderr(io.StringIO()) as told:
                code = run_command(*command.words)
        extra = re.search(r"pip install 'mixbench\[(\w+)\]'", told.getvalue())
        if code == 2 and extra and f"\n{extra.group(1)} = [" in PROJECT:
            return sys.maxsize  # of what is not installed, the command can say no more
        assert code == 0, f"{command}: {told.getvalue()}"
        if not stopped:
            return 0
        total = sum(map(trained_tokens, built))
        total = total * number[0] // len(built) if number else total
        _tokens[str(command)] = total
        return total

    return run


def trained_tokens(settings: Settings) -> int:
    """Tokens that a run trains on, those that it evaluates counted for a third."""
    dataset = build_dataset(settings)
    per_epoch = math.ceil(dataset.size("train") / settings.batch_size)
    steps = settings.steps or per_epoch * (settings.epochs or 0)
    evaluated = math.ceil(steps / per_epoch) * dataset.size("valid")
    evaluated += dataset.size("test") if settings.test else 0
    return (steps * settings.batch_size + evaluated // 3) * dataset.seq_len


def compose_all(overrides: list[str]) -> None:
    """Compose and check every combination of overrides with several values."""
    parsed = OverridesParser.create().parse_overrides(overrides)
    (jobs,) = BasicSweeper.split_arguments(parsed, None)
    for job in jobs:
        composed_settings(list(job))


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty folder to be in, the width of the terminal that the pages show, and a cluster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in slurm._COMMANDS:  # only looked for: nothing is launched
        (programs / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    return tmp_path


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in (QUICKSTART, TUTORIAL)], ids=name_of
)
def test_every_command_on_a_page_is_one(page, folder, dry, monkeypatch):
    text = page.read_text()
    for name, content in files_of(text).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    for seed in (0, 1):  # something for `mixbench report outputs`
        for mixer in ("attention", "lattice"):
            fabricate(folder / "outputs", mixer, seed)
    for command in commands_of(text):
        first = command.words[0] if command.words else ""
        if first in QUICK:
            monkeypatch.setattr("mixbench.report.plots.draw_plots", lambda *_: [])
            assert run_command(*command.words) == 0, str(command)
        elif first in cli._COMMANDS:
            module = importlib.import_module(cli._COMMANDS[first])
            given = module._parse(command.words[1:])
            overrides = getattr(given, "overrides", [])
            # `all` is every mixer there is, and a page's my_module is nobody's.
            compose_all([text for text in overrides if text not in NAMELESS])
        else:
            dry(command)


def test_the_quickstart_shows_what_its_commands_print(folder, dry, capfd):
    """All of its commands in one folder, in order: what is quick is run, and prints the same."""
    commands = commands_of(QUICKSTART.read_text())
    assert len(commands) > 10
    ran = 0
    for command in commands:
        capfd.readouterr()
        tokens = None if command.words[0] in QUICK else dry(command)
        if tokens is not None and tokens > MOST_TOKENS:
            continue
        if tokens != 0:  # else the whole command has been run
            capfd.readouterr()
            assert run_command(*command.words) == 0, str(command)
        ran += 1
        printed = shape(capfd.readouterr().out)
        for part in re.split(r"^\.\.\.$", "\n".join(command.shown), flags=re.M):
            assert shape(part) in printed, str(command)
    assert ran >= 5


def shape(text: str) -> str:
    """Output without what differs from run to run: numbers, hashes, frames and line breaks."""
    text = re.sub(r"[─-╿]", " ", text)  # box drawing
    text = re.sub(r"\b[0-9a-f]{12,16}\b", "#", text)
    text = re.sub(r"[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?", "0", text)
    return " ".join(text.split())


def test_a_missing_extra_is_no_mistake_of_a_page(folder, dry, monkeypatch):
    def lacking(extra: str) -> Callable[..., int]:
        def run(*_: str) -> int:
            print(f"mixbench: x: expected y; pip install 'mixbench[{extra}]'", file=sys.stderr)
            return 2

        return run

    monkeypatch.setattr("tests.docs.test_docs.run_command", lacking("parallel"))
    assert dry(Command(["x=y"])) > MOST_TOKENS
    monkeypatch.setattr("tests.docs.test_docs.run_command", lacking("paralel"))
    with pytest.raises(AssertionError, match="expected y"):
        dry(Command(["x=y"]))


def test_a_renamed_key_a_missing_file_and_a_wrong_value_fail(folder, dry):
    for words in (["mixer.num_head=2"], ["sweep=smok"], ["-m", "lr=1e-3,-1"], ["sweep.margin=1"]):
        with pytest.raises(AssertionError):
            dry(Command(words))
    with pytest.raises(SettingError):
        compose_all(["mixer=lattice,gdn", "lr=-1"])


def test_commands_and_files_of_a_page():
    text = (
        "Write `a/b.yaml`:\n\n    key: 1\n\n"
        "Now `mixbench seed=2`, but not `mixbench` or `mixbench lr=...`.\n\n"
        "```console\n$ mixbench seed=1 # one\nseen\n$ mixbench lr=1 \\\n  seed=2\n```\n"
        "    .venv/bin/mixbench mixer=mine\n"
    )
    assert files_of(text) == {"a/b.yaml": "key: 1"}
    assert [(each.words, each.shown) for each in commands_of(text)] == [
        (["seed=2"], []),
        (["seed=1"], ["seen"]),
        (["lr=1", "seed=2"], []),
        (["mixer=mine"], []),
    ]


def test_tokens_are_counted(settings):
    few = settings("epochs=null", "steps=5")  # of 4 steps an epoch: 2 epochs
    assert trained_tokens(few) == (5 * 8 + (2 * 10 + 10) // 3) * 32


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as a code host makes them."""
    found: dict[str, int] = {}
    names = set()
    tokens = tokens_of(page.read_text())
    for token, inline in pairwise(tokens):
        if token.type == "heading_open":
            text = "".join(each.content for each in inline.children or ())
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            count = found.setdefault(slug, 0)
            found[slug] += 1
            names.add(f"{slug}-{count}" if count else slug)
    return names


def links(page: Path) -> list[str]:
    """Targets of a page's links and images, those to elsewhere left out."""
    tokens = [each for token in tokens_of(page.read_text()) for each in token.children or ()]
    targets = [str(each.attrGet("href") or each.attrGet("src") or "") for each in tokens]
    return [target for target in targets if target and not re.match(r"[a-z]+:", target)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if target.parent == ROOT / "docs" and target.name in COMING:
            continue
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_that_a_page_names_exists(page):
    inside = [each for token in tokens_of(page.read_text()) for each in token.children or ()]
    names = {each.content for each in inside if each.type == "code_inline"}
    ours = [name for name in names if re.fullmatch(r"(mixbench|conf|docs|tests)/[\w./*-]+", name)]
    assert [name for name in ours if not list(ROOT.glob(name))] == []


def test_the_protocol_states_the_constants():
    page = " ".join((ROOT / "docs" / "protocol.md").read_text().split())
    selection, evaluation = ComparisonSchema.selection_seeds, ComparisonSchema.eval_seeds
    first = FIRST_EVALUATION_SEED
    for said in (
        f"default {selection}: seeds 0 to {selection - 1}",
        f"default {evaluation}: seeds {first} to {first + evaluation - 1}",
        f"{stats.LEVEL:.0%}, two-sided".replace("%", " %"),
        f"Exact up to n = {stats.EXACT_FLIPS}",
        f"{stats.FLIP_DRAWS:,} random choices",
        f"adjusted p <= {stats.ALPHA}",
        f"probability of improvement >= {stats.IMPROVEMENT}",
        f"at least {stats.SATURATED_SHARE:.0%} of the seeds".replace("%", " %"),
        f"N goes up to {stats.MAX_SEEDS}",
        f"on {_EXAMINED_ROWS} rows",
        f"studies of {calibration.SEEDS} paired seeds",
    ):
        assert said in page


def test_pages_that_were_coming_are_not_there():
    there = {name for name in COMING if (ROOT / "docs" / name).exists()}
    assert there == set(), "take them off COMING, so that links to them are checked"


def test_the_index_names_every_page():
    listed = {(ROOT / "docs" / link).resolve() for link in links(ROOT / "docs" / "README.md")}
    pages = set((ROOT / "docs").glob("*.md")) - {ROOT / "docs" / "README.md"}
    assert pages <= listed


def test_links_and_anchors_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b=c` (d)\n\n## Same\n\n## Same\n\n[x](y.md#z) ![i](p.png) [w](https://w)\n"
    )
    assert anchors(page) == {"a-bc-d", "same", "same-1"}
    assert links(page) == ["y.md#z", "p.png"]
