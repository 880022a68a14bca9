"""The names an author of a mixer or dataset imports: `from mixbench.api import Mixer`.

Each is imported when it is first asked for, so that a dataset does not load PyTorch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mixbench.core.errors import SettingError as SettingError
    from mixbench.core.errors import at_least as at_least
    from mixbench.core.errors import positive as positive
    from mixbench.core.seeds import stream as stream
    from mixbench.datasets.base import IGNORE as IGNORE
    from mixbench.datasets.base import SPLITS as SPLITS
    from mixbench.datasets.base import Analysis as Analysis
    from mixbench.datasets.base import Dataset as Dataset
    from mixbench.datasets.base import Examples as Examples
    from mixbench.datasets.base import SplitName as SplitName
    from mixbench.datasets.base import overlap as overlap
    from mixbench.mixers.base import Mixer as Mixer
    from mixbench.mixers.base import head_width as head_width
    from mixbench.mixers.base import inverse_softplus as inverse_softplus
    from mixbench.mixers.claims import Claim as Claim
    from mixbench.mixers.cost import Operations as Operations
    from mixbench.mixers.cost import dot as dot
    from mixbench.mixers.cost import linear as linear
    from mixbench.mixers.cost import sigmoid as sigmoid
    from mixbench.mixers.cost import softmax_entry as softmax_entry
    from mixbench.mixers.cost import weighted_sum as weighted_sum
    from mixbench.train.objective import Objective as Objective

_HOMES = {
    "mixbench.core.errors": (
        "SettingError",
        "at_least",
        "positive",
    ),
    "mixbench.core.seeds": ("stream",),
    "mixbench.datasets.base": (
        "IGNORE",
        "SPLITS",
        "Analysis",
        "Dataset",
        "Examples",
        "SplitName",
        "overlap",
    ),
    "mixbench.mixers.base": (
        "Mixer",
        "head_width",
        "inverse_softplus",
    ),
    "mixbench.mixers.claims": ("Claim",),
    "mixbench.mixers.cost": (
        "Operations",
        "dot",
        "linear",
        "sigmoid",
        "softmax_entry",
        "weighted_sum",
    ),
    "mixbench.train.objective": ("Objective",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")


def __dir__() -> list[str]:
    return sorted(name for names in _HOMES.values() for name in names)
