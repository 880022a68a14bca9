"""What streams remember: it grows with the stream, is not copied at every step, and stays usable.

A state handed out earlier keeps its value, so that a stream can be continued from it again; only
the usual case, going on from the last one, is cheap.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import Tensor

_LEAST_ROOM = 16


K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class KVCache:
    """Rows `[B, H, n, K]` in a buffer with room for as many again: appending copies one row.

    Where gradients are recorded, appending copies everything: a buffer that is written to cannot
    also be an earlier step's saved tensor.
    """

    buffer: Tensor
    first: int = 0
    end: int = 0
    used: list[int] = field(default_factory=lambda: [0])
    """How much of the buffer any state uses; shared by all states that share the buffer."""

    @classmethod
    def empty(cls, like: Tensor, *shape: int) -> KVCache:
        """No rows; `shape` is B, H and K."""
        B, H, width = shape
        return cls(like.new_empty(B, H, 0, width))

    @property
    def rows(self) -> Tensor:
        """`[B, H, n, K]`, oldest first."""
        return self.buffer[:, :, self.first : self.end]

    def numel(self) -> int:
        """Numbers held; the buffer's room is not counted."""
        return self.rows.numel()

    def append(self, row: Tensor) -> KVCache:
        """These rows and one more, `[B, H, 1, K]`."""
        if torch.is_grad_enabled() and (row.requires_grad or self.buffer.requires_grad):
            rows = torch.cat([self.rows, row], dim=2)
            return KVCache(rows, 0, rows.shape[2], [rows.shape[2]])
        buffer, first, end, used = self.buffer, self.first, self.end, self.used
        if end == buffer.shape[2] or used[0] != end:
            B, H, _, width = buffer.shape
            first, end = 0, self.end - self.first
            buffer = row.new_empty(B, H, max(_LEAST_ROOM, 2 * end), width)
            buffer[:, :, :end] = self.rows
            used = [end]
        buffer[:, :, end] = row[:, :, 0]
        used[0] = end + 1
        return KVCache(buffer, first, end + 1, used)

    def truncate_left(self, n: int) -> KVCache:
        """The last `n` rows, or all if there are fewer."""
        return KVCache(self.buffer, max(self.first, self.end - n), self.end, self.used)


class PersistentCells(Generic[K]):
    """A mapping to tensors, of which every version stays readable (Baker's rerooting).

    The newest version holds the dictionary; an older one holds what it has different from the next,
    and takes the dictionary over when it is asked.
    """

    def __init__(self) -> None:
        self._cells: dict[K, Tensor] | None = {}
        self._next: PersistentCells[K] | None = None
        self._before: dict[K, Tensor | None] = {}

    @property
    def cells(self) -> Mapping[K, Tensor]:
        """This version; it holds until another one is read or written."""
        return self._dictionary()

    def _dictionary(self) -> dict[K, Tensor]:
        if self._cells is None:
            newer: list[PersistentCells[K]] = [self]
            while newer[-1]._cells is None:
                following = newer[-1]._next
                assert following is not None
                newer.append(following)
            for older, holder in zip(newer[-2::-1], newer[:0:-1], strict=True):
                cells = holder._cells
                assert cells is not None
                holder._before = {key: cells.get(key) for key in older._before}
                holder._next, holder._cells = older, None
                _write(cells, older._before)
                older._next, older._cells = None, cells
        assert self._cells is not None
        return self._cells

    def numel(self) -> int:
        """Numbers held."""
        return sum(cell.numel() for cell in self.cells.values())

    def with_written(self, changes: Mapping[K, Tensor]) -> PersistentCells[K]:
        """This version with some cells written anew."""
        cells = self._dictionary()
        newest: PersistentCells[K] = PersistentCells()
        self._before = {key: cells.get(key) for key in changes}
        self._next, self._cells, newest._cells = newest, None, cells
        cells.update(changes)
        return newest


def _write(cells: dict[K, Tensor], values: Mapping[K, Tensor | None]) -> None:
    for key, value in values.items():
        if value is None:
            cells.pop(key, None)
        else:
            cells[key] = value
