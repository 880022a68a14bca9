"""Splits that this process has made already: the runs of a sweep share them."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from mixbench.datasets.base import Dataset, Examples, SplitName

MOST_BYTES = 512 * 2**20
"""Of all splits kept; the ones longest unused go first."""


_splits: OrderedDict[str, Examples] = OrderedDict()


def generated(node: Mapping[str, Any], dataset: Dataset, split: SplitName, seed: int) -> Examples:
    """`dataset.generate(split, seed)`, made once for equal arguments; not to be written to.

    Args:
        node: The configuration that `dataset` was built from, which stands for it.
        dataset: The dataset.
        split: The split.
        seed: The run's seed.
    """
    key = json.dumps([node, split, seed], sort_keys=True)
    if key not in _splits:
        _splits[key] = dataset.generate(split, seed)
        while len(_splits) > 1 and sum(map(_bytes, _splits.values())) > MOST_BYTES:
            _splits.popitem(last=False)
    _splits.move_to_end(key)
    return _splits[key]


def _bytes(rows: Examples) -> int:
    return rows.inputs.nbytes + rows.targets.nbytes
