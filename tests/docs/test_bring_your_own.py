"""The tutorial `docs/bring_your_own.md`, run from its first line to its last."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.documented import ROOT, Command, steps, take

STEPS = steps(ROOT / "docs" / "bring_your_own.md")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("research")


@pytest.mark.parametrize("number", range(len(STEPS)))
def test_step(folder, number):
    """Each builds on those before it; pip installs offline, into a folder of the test's."""
    site = folder.parent / "site"
    offline = {
        "PYTHONPATH": f"{ROOT}:{site}",
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this one the wrong way round
        "PIP_TARGET": str(site),
    }
    take(STEPS[number], folder, **offline)
    if isinstance(STEPS[number], Command) and STEPS[number].line == "pip install .":
        assert (site / "my_lab" / "conf" / "mixer" / "recency.yaml").exists()


def test_the_tutorial_has_all_its_parts():
    lines = [step.line for step in STEPS if isinstance(step, Command)]
    assert len([line for line in lines if line.startswith("mixbench")]) >= 8
    for word in ("check", "sweep=recency", "dataset=needle", "pip install ."):
        assert any(word in line for line in lines)
    mixer = next(step for step in STEPS if not isinstance(step, Command))
    assert len(mixer.text.splitlines()) <= 30
