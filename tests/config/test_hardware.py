"""What a run depends on of the machine: in its identity, or on its record."""

from __future__ import annotations

import json

import pytest
import torch

from mixbench.config.check import check
from mixbench.config.compose import compose_config, composed_settings
from mixbench.core.errors import SettingError
from mixbench.records.identity import identity_of
from mixbench.runs.environment import machine, steering_variables, versions
from mixbench.runs.run import run


def set_capability(monkeypatch, name: str) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: name)


def test_other_instructions_are_another_run(monkeypatch):
    found = set()
    for name in ("AVX2", "AVX512", "AVX2"):
        set_capability(monkeypatch, name)
        settings = composed_settings([])
        assert settings.cpu_capability == name
        found.add(identity_of(settings))
    assert len(found) == 2


def test_a_capability_that_this_machine_lacks_is_refused(monkeypatch):
    set_capability(monkeypatch, "AVX2")
    with pytest.raises(SettingError, match="cpu_capability: expected auto or AVX2") as told:
        composed_settings(["cpu_capability=AVX512"])
    assert "ATEN_CPU_CAPABILITY=avx512" in str(told.value)
    cfg = compose_config(["cpu_capability=AVX512"])
    assert check(cfg, cfg.hydra, elsewhere=True).cpu_capability == "AVX512"


def test_a_gpu_computes_the_same_whatever_cpu_is_beside_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    identities = set()
    for name in ("AVX2", "AVX512"):
        set_capability(monkeypatch, name)
        settings = composed_settings(["device=cuda", "cpu_capability=AVX2"])
        assert "cpu_capability" not in settings.recorded_settings()
        identities.add(identity_of(settings))
    assert len(identities) == 1


def test_the_record_says_what_it_was_computed_with(settings, monkeypatch):
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    monkeypatch.setenv("SOME_SECRET", "x")
    outcome = run(settings("steps=1"), [])
    result = json.loads(outcome.folder.result.read_text())
    assert result["machine"] == machine()
    assert result["machine"]["cpu"]
    assert result["machine"]["cpu_capability"] == torch.backends.cpu.get_cpu_capability()
    assert result["versions"] == versions()
    assert result["versions"]["onednn"].split(".")[0].isdecimal()
    assert result["environment"]["MKL_CBWR"] == "COMPATIBLE"
    assert "SOME_SECRET" not in result["environment"]


def test_variables_that_steer_nothing_are_not_recorded(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("HOME_OMP", "1")
    found = steering_variables()
    assert found["OMP_NUM_THREADS"] == "1"
    assert "HOME_OMP" not in found
