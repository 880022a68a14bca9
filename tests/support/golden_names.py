"""The golden files' parameter names are the published ones; this maps them onto ours."""

from __future__ import annotations

from torch import Tensor

_RECALL = {
    "emb": "embedding",
    "n1": "norm1",
    "n2": "norm2",
    "w1": "gate",
    "w2": "up",
    "w3": "down",
    "Wq": "q_proj",
    "Wk": "k_proj",
    "Wv": "v_proj",
    "Wo": "o_proj",
    "Wg": "gates.proj",
}

_FORECASTING = {
    "q": "mixer.q_proj",
    "k": "mixer.k_proj",
    "v": "mixer.v_proj",
    "o": "mixer.o_proj",
    "theta": "mixer.theta",
    "n1": "norm1",
    "n2": "norm2",
    "pos": "positions",
    "inp": "embedding",
}


def from_golden_forecasting(golden: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The entries `prefix.*` of the forecasting block or model under our names."""
    return {
        ".".join(_FORECASTING.get(part, part) for part in name.split(".")[1:]): value
        for name, value in golden.items()
        if name.startswith(f"{prefix}.")
    }


def from_golden(golden: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The entries `prefix.*` of the recall mixers or model under our names, in our shapes."""
    renamed = {}
    for name, value in golden.items():
        if not name.startswith(f"{prefix}."):
            continue
        parts = [_RECALL.get(part, part) for part in name.split(".")[1:]]
        if parts[-3:-1] == ["conv", "conv"]:
            del parts[-2]
            value = value.squeeze(1) if parts[-1] == "weight" else value
        if "Wqkv" in parts:
            at = parts.index("Wqkv")
            for ours, piece in zip(("q_proj", "k_proj", "v_proj"), value.chunk(3), strict=True):
                renamed[".".join([*parts[:at], ours, *parts[at + 1 :]])] = piece
        else:
            renamed[".".join(parts)] = value
    return renamed
