"""Trained mixers' claims, evaluated and summarised over the layers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mixbench.mixers.claims import UNEVALUATED, Claim

if TYPE_CHECKING:
    from mixbench.mixers.base import Mixer


def evaluate(mixer: Mixer, x: Tensor | None) -> list[Claim]:
    """A mixer's claims on the inputs `[B, T, D]` it met; None for one that was never called.

    A signature that raises does not hold, and the exception is what was observed: a run's result
    must not be lost to a mixer's faulty claim about itself.
    """
    if x is None:
        return [Claim(UNEVALUATED, "yes", "the model does not call its forward", None, False)]
    try:
        with torch.no_grad():
            return mixer.signature(x)
    except Exception as error:
        observed = f"{type(error).__name__}: {error}"
        return [Claim(UNEVALUATED, "yes", observed, None, False)]


def summarise(layers: Iterable[list[Claim]]) -> dict[str, Any] | None:
    """The checks of all layers for the record; a check holds if it holds in every layer.

    Returns:
        `{"holds", "held", "of", "failing", "checks"}`, or None if no layer states anything.
    """
    checks = [
        {"layer": layer, **asdict(check)} for layer, stated in enumerate(layers) for check in stated
    ]
    if not checks:
        return None
    names = list(dict.fromkeys(check["name"] for check in checks))
    failing = [name for name in names if not all(c["holds"] for c in checks if c["name"] == name)]
    return {
        "holds": not failing,
        "held": len(names) - len(failing),
        "of": len(names),
        "failing": failing,
        "checks": checks,
    }
