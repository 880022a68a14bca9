"""Where the cells' chunks lie in memory, planned once a call."""

from __future__ import annotations

import numpy as np

from mixbench.ops.cpu.compiling import compile_once


@compile_once
def plan_cells(write_cells, read_cells, starts, tokens, slots, first_cell, n_cells):
    """Sort all writes and reads into the lists that the kernel takes.

    From the whole coordinates of the cells that tokens write and read, `[B, T, W, 2]` and
    `[B, T, R, 2]` (int64), into `starts` `[B T (W + R) + 1]`, `tokens` and `slots` `[B T (W + R)]`,
    the number of each sequence's first cell `[B + 1]`, and how many cells it wrote to `[B]`.
    """
    B, T, W, _ = write_cells.shape
    S = W + read_cells.shape[2]
    events = T * S
    # Cells are told apart by a hash table with linear probing, new for every sequence.
    room = 64
    while room < 2 * events:
        room *= 2
    x_of, y_of = np.empty(room, np.int64), np.empty(room, np.int64)
    cell_of, written = np.empty(events, np.int64), np.empty(events, np.bool_)
    cells = 0
    for b in range(B):
        first_cell[b] = cells
        number = np.full(room, -1, np.int64)
        found = 0
        for t in range(T):
            for s in range(S):
                if s < W:
                    x, y = write_cells[b, t, s, 0], write_cells[b, t, s, 1]
                else:
                    x, y = read_cells[b, t, s - W, 0], read_cells[b, t, s - W, 1]
                at = ((x * 73856093) ^ (y * 19349663)) & (room - 1)
                while number[at] >= 0 and (x_of[at] != x or y_of[at] != y):
                    at = (at + 1) & (room - 1)
                if number[at] < 0:
                    number[at], x_of[at], y_of[at], written[found] = found, x, y, False
                    found += 1
                cell = number[at]
                if s < W and not written[cell]:
                    written[cell] = True
                    n_cells[b] += 1
                cell_of[t * S + s] = cell
        # A counting sort keeps the order of time.
        count = np.zeros(found + 1, np.int64)
        for e in range(events):
            count[cell_of[e] + 1] += 1
        for c in range(found):
            count[c + 1] += count[c]
            starts[cells + c] = b * events + count[c]
        for e in range(events):
            place = b * events + count[cell_of[e]]
            tokens[place], slots[place] = b * T + e // S, e % S
            count[cell_of[e]] += 1
        cells += found
    first_cell[B] = cells
    starts[cells:] = B * events
