"""What mixers share that weigh tokens by a softmax."""

from __future__ import annotations

from torch import Tensor

from mixbench.mixers.claims import Claim


def weight_checks(weights: Tensor) -> list[Claim]:
    """Rows of attention weights `[..., T]` sum to one within 1e-5, and none is negative."""
    error = float((weights.sum(-1) - 1).abs().max())
    smallest = float(weights.min())
    return [
        Claim.close("rows sum to 1", 0.0, error, 1e-5),
        Claim("no negative weight", ">= 0", smallest, None, smallest >= 0),
    ]


def window_pairs(seq_len: int, left: int, right: int) -> int:
    """Pairs in a sliding window over a sequence; windows are cut off at its ends."""
    left, right = min(left, seq_len - 1), min(right, seq_len - 1)
    cut = left * (left + 1) // 2 + right * (right + 1) // 2
    return seq_len * (left + 1 + right) - cut
