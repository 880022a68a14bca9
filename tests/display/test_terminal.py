"""What the command is like at a terminal: help, completion, colours, progress, pipes."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr

import pytest
from rich.console import Console

from mixbench.cli import main as cli
from mixbench.display import progress
from tests.config.test_conf import names
from tests.conftest import run_command

SCRIPT = """
set -e
eval "$(mixbench -sc install=bash)"
COMP_LINE={line!r}
COMP_POINT=${{#COMP_LINE}}
COMP_CWORD=$(( $(wc -w <<< "$COMP_LINE") - 1 ))
hydra_bash_completion
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def test_help_shows_our_commands_and_every_group_with_its_choices(mixbench):
    done = mixbench("--help")
    assert done.returncode == 0
    for command in cli._COMMANDS:
        assert re.search(rf"^  mixbench {command} ", done.stdout, re.MULTILINE), command
    for group in ("mixer", "dataset", "dataset/preset", "model", "optimizer", "sweep"):
        assert f"\n{group}: {', '.join(names(group))}\n" in done.stdout
    assert 'eval "$(mixbench -sc install=bash)"' in done.stdout


@pytest.mark.parametrize("command", cli._COMMANDS)
def test_every_command_has_help(mixbench, command):
    done = mixbench(command, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: mixbench {command} ")


@pytest.mark.parametrize(
    ("word", "meant"), [("chek", "check"), ("lst", "list"), ("reprot", "report")]
)
def test_a_mistyped_command_suggests_the_nearest(capfd, word, meant):
    assert run_command(word, "mixer=lattice") == 2
    err = capfd.readouterr().err
    assert "command: expected key=value or one of the commands report, bench, check" in err
    assert f"did you mean '{meant}'?" in err
    assert err.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="needs bash")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mixbench mixer=la", ["mixer=laplacian", "mixer=lattice"]),
        ("mixbench dataset=m", ["dataset=mqar"]),
        ("mixbench mixer=lattice mixer.addr", ["mixer.addr_scale="]),
        ("mixbench che", ["check", "checkpoint_seconds="]),
        ("mixbench check mixer=la", ["mixer=laplacian", "mixer=lattice"]),
        ("mixbench list mi", ["mixers"]),
        ("mixbench report no_such_fi", []),
    ],
)
def test_bash_completes(tmp_path, line, expected):
    """As a shell does it: install the function, give it a line, read what it would offer."""
    path = tmp_path / "bin"
    path.mkdir()
    (path / "mixbench").write_text(f'#!/bin/sh\nexec {sys.executable} -m mixbench "$@"\n')
    (path / "mixbench").chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", SCRIPT.format(line=line)], cwd=tmp_path, capture_output=True, text=True,
        timeout=60, check=False, env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.stdout.split() == expected, done.stderr


def test_completing_imports_no_torch(mixbench):
    code = (
        "import sys, os; sys.argv = ['mixbench', '-sc', 'query=bash'];"
        "os.environ['COMP_LINE'] = 'mixbench mixer=la'; from mixbench.cli.main import main; main();"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["mixer=laplacian", "mixer=lattice", "False"]


@pytest.mark.parametrize("extra", [{}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}])
def test_no_colour_in_a_pipe_or_where_it_is_not_wanted(mixbench, extra):
    done = mixbench("data", "dataset=mqar", "--rows", "1", env={**os.environ, **extra})
    assert done.returncode == 0
    assert not re.search(r"\x1b\[[0-9;]*3\dm", done.stdout)


def test_colours_where_they_are_wanted(mixbench):
    done = mixbench("data", "dataset=mqar", "--rows", "1", env={**os.environ, "FORCE_COLOR": "1"})
    assert re.search(r"\x1b\[[0-9;]*3\dm", done.stdout)


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    line = f"{sys.executable} -m mixbench list | head -n 1"
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "mixers"
    assert done.stderr == ""


def test_steps_are_counted_on_a_terminal_and_silent_elsewhere(monkeypatch):
    for terminal in (True, False):
        file = io.StringIO()
        monkeypatch.setattr(
            progress,
            "Console",
            lambda stderr, file=file, terminal=terminal: Console(
                file=file, force_terminal=terminal, width=100
            ),
        )
        with redirect_stderr(file), progress.steps_display(2) as begin:
            begin("one")
            begin("two")
        said = file.getvalue()
        assert ("two" in said and "1/2" in said) == terminal
