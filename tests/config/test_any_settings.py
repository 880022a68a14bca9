"""Whatever is typed ends in a completed run or in one clear line: never a traceback or a half."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import run_command

# What makes every run short; drawn settings come behind and may change any of it.
SHORT = (
    "steps=2", "batch_size=4", "model.d_model=8", "dataset.num_train=8", "dataset.num_valid=4",
    "dataset.num_test=4",
)  # fmt: skip

NUMBERS = st.one_of(
    st.integers(-3, 40).map(str),
    st.floats(allow_nan=True, allow_infinity=True, width=32).map(str),
    st.sampled_from(["1e6", "1e-30", "1e9", "0", "-0.0", "1e400", "999999999999999999999"]),
)
WORDS = st.one_of(
    st.sampled_from(
        ["null", "true", "false", "zero", "random", "disjoint", "constant", "one_cycle", "unit",
         "partition", "nearest", "float64", "bfloat16", "prenorm", "[]", "{}", "[1,2]", "''"]
    ),
    st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), max_size=8),
)  # fmt: skip
GROUPS = st.sampled_from(
    ["mixer=attention", "mixer=gdn", "mixer=lattice", "mixer=laplacian", "mixer=spiderweb",
     "mixer=local", "mixer=nothing", "dataset=mqar", "model=language_model", "optimizer=adamw"]
)  # fmt: skip
KEYS = st.sampled_from(
    ["lr", "weight_decay", "steps", "epochs", "batch_size", "schedule", "warmup", "grad_clip",
     "threads", "dtype", "seed", "test", "compile", "model.d_model", "model.num_layers",
     "model.residual", "mixer.num_heads", "mixer.addr_scale", "mixer.sigma", "mixer.window",
     "mixer.eta", "mixer.radius", "mixer.retention_init", "mixer.conv_width", "mixer.weights",
     "mixer.read_mode", "mixer.one_cell", "mixer.key_width", "dataset.num_pairs",
     "dataset.vocab_size", "dataset.seq_len", "dataset.filler", "dataset.curriculum_end",
     "dataset.curriculum_start_pairs", "optimizer.eps", "optimizer.betas", "nonsense",
     "mixer.nonsense", "rerun", "on_error", "checkpoint_seconds", "keep_checkpoint",
     "allowed_targets", "mixer._target_"]
)  # fmt: skip
SETTINGS = st.builds(lambda k, v: f"{k}={v}", KEYS, st.one_of(NUMBERS, WORDS))
STRINGS = st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=12)
# Sizes that make a run long are not what is tried here, nor is compilation.
TOO_LONG = re.compile(
    r"(steps|epochs|threads|batch_size|d_model|num_layers|seq_len|vocab_size|key_width|conv_width"
    r"|num_train|num_pairs|window|radius)=\D*\d{3,}|e[+]?\d|compile=[tT]"
)


@settings(
    max_examples=int(os.environ.get("EXAMPLES", 25)),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(st.one_of(GROUPS, SETTINGS, SETTINGS, SETTINGS, STRINGS), min_size=1, max_size=4))
def test_any_settings_end_in_a_record_or_in_one_line(tmp_path_factory, capfd_of, drawn):
    drawn = [
        text
        for text in drawn
        if not text.startswith(("-", "~hydra", "hydra", "+hydra", "output_dir", "sweep"))
        and not TOO_LONG.search(text)
    ]
    folder = tmp_path_factory.mktemp("any")
    code, out, err = capfd_of(lambda: run_command(*SHORT, *drawn, f"output_dir={folder}"))
    assert code in (0, 1, 2), (drawn, out, err)
    results = list(folder.glob("runs/*/result.json"))
    said = [line for line in err.splitlines() if not line.startswith(("  ", "/"))]
    if code == 2:
        assert len(said) == 1, (drawn, err)
        assert said[0].startswith("mixbench: "), (drawn, err)
        assert not results
    else:
        statuses = [json.loads(path.read_text())["status"] for path in results]
        assert statuses == ["completed" if code == 0 else "diverged"], (drawn, out, err)
    assert not list(Path(folder).rglob(".*.[0-9]*")), drawn
