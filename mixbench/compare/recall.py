"""Recall against the state's size, bounded by information theory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mixbench.stats.recall import STATE_BITS, bits_to_recall, recalled_bits

_RECALL = "mixbench.datasets.mqar.MQAR"


# A record from elsewhere must not make us sum for ever, or count beyond what a float tells apart.
_MOST_PAIRS, _MOST_VALUES = 2**16, 2**31


def recall_of(dataset: Mapping[str, Any]) -> dict[str, Any] | None:
    """Of associative recall: pairs K, values W, and the bits that K pairs take at least."""
    pairs, vocabulary = dataset.get("num_pairs"), dataset.get("vocab_size")
    if dataset.get("_target_") != _RECALL or type(pairs) is not int or type(vocabulary) is not int:
        return None
    values = vocabulary - vocabulary // 2
    if not (1 <= pairs <= values and 2 <= values <= _MOST_VALUES and pairs <= _MOST_PAIRS):
        return None
    return {"pairs": pairs, "values": values, "bits": bits_to_recall(pairs, values)}


def recalled_by_runs(
    evaluation: Sequence[Mapping[str, Any]], recall: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Bits that an arm's trained models recall and hold, means over those that completed."""
    known = [
        (run["test"], run["state"] * STATE_BITS)
        for run in evaluation
        if run["test"] is not None and 0 <= run["test"] <= 1 and run["state"]
    ]
    if not known:
        return None
    scores, held = np.array(known, dtype=np.float64).T
    bits = recalled_bits(recall["pairs"], recall["values"], 1 - scores)
    return {
        "bits": float(bits.mean()),
        "state_bits": float(held.mean()),
        "efficiency": float((bits / held).mean()),
    }
