"""Run records made up for tests, written through the real writer."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from mixbench.core.files import write_bytes, write_json
from mixbench.records.folder import write_history


def fabricate(
    outputs: Path,
    mixer: str = "attention",
    seed: int = 0,
    valid: float | None = 0.5,
    test: float | None = 0.5,
    *,
    status: str = "completed",
    started: str = "2026-01-01T00:00:00+00:00",
    dataset: dict[str, Any] | None = None,
    knobs: dict[str, Any] | None = None,
    signature: dict[str, Any] | None = None,
    analysis: dict[str, Any] | None = None,
    reads_test: bool = True,
    own_conf: bool = False,
    **settings: Any,
) -> Path:
    """One run's record below `outputs/runs`; its folder."""
    config = {
        "dataset": {"_target_": "mixbench.datasets.mqar.MQAR", **(dataset or {})},
        "mixer": {"_target_": f"mixbench.mixers.{mixer}.Mixer", **(knobs or {})},
        "seed": seed,
        "test": reads_test,
        "lr": 0.001,
        **settings,
    }
    identity = hashlib.sha256(json.dumps([config, started]).encode()).hexdigest()[:12]
    folder = outputs / "runs" / f"mqar-{mixer}-seed{seed}-{identity}"
    (folder / ".hydra").mkdir(parents=True)
    metrics = {}
    if status == "completed":
        metrics["valid/accuracy"] = valid
        if reads_test:
            metrics["test/accuracy"] = test
    texts = [f"mixer={mixer}", f"lr={config['lr']}", f"seed={seed}"]
    write_bytes(folder / ".hydra" / "overrides.yaml", json.dumps(texts).encode())
    sources = [
        {"path": "/home/me/my conf", "provider": "command-line"},
        {"path": "conf", "provider": "main"},
    ]
    hydra = {"hydra": {"runtime": {"config_sources": sources if own_conf else sources[1:]}}}
    write_bytes(folder / ".hydra" / "hydra.yaml", json.dumps(hydra).encode())
    write_history(folder / "history.csv", [{"epoch": 1, "step": 5, "valid/accuracy": 0.1}])
    write_json(
        folder / "result.json",
        {
            "status": status,
            "reason": None if status == "completed" else "step 3: <b>|the loss|</b> is not finite",
            "identity": identity,
            "code_version": "c0de",
            "started": started,
            "seed": seed,
            "device": "cpu",
            "threads": 1,
            "machine": {"system": "Linux", "cpus": 2},
            "versions": {"torch": "2", "python": "3", "mixbench": "0"},
            "names": {"dataset": "mqar", "mixer": mixer},
            "config": config,
            "metric": "accuracy",
            "higher_is_better": True,
            "margin": 0.01,
            "ceiling": 1.0,
            "parameters": {"total": 10, "mixer": 5},
            "state_size": 7,
            "measured_state_size": 6,
            "state_size_is_bound": False,
            "diagnostics": {},
            "probes": {},
            "analysis": analysis,
            "operations": {"per_token": {"multiplies": 3.0}, "per_pair": None},
            "metrics": metrics,
            "trivial_baseline": {"accuracy": 0.125},
            "signature": signature,
            "seconds": {"total": 1.5},
        },
    )
    return folder
