"""What streams remember: versions stay as they were, and appending copies no more than it must."""

from __future__ import annotations

import torch

from mixbench.mixers.parts.caches import KVCache, PersistentCells


def row(value: float) -> torch.Tensor:
    return torch.full((2, 1, 1, 3), value)


def values(rows: KVCache) -> list[float]:
    return rows.rows[0, 0, :, 0].tolist()


def test_rows_grow_in_place_and_every_version_stays():
    versions = [KVCache.empty(torch.zeros(()), 2, 1, 3)]
    for n in range(100):
        versions.append(versions[-1].append(row(n)))
    assert all(values(version) == list(range(n)) for n, version in enumerate(versions))
    assert len({version.buffer.data_ptr() for version in versions[1:]}) == 4  # room 16, 32, 64, 128
    assert versions[-1].numel() == 100 * 6


def test_a_second_continuation_does_not_change_the_first():
    start = KVCache.empty(torch.zeros(()), 2, 1, 3).append(row(1))
    one, other = start.append(row(2)), start.append(row(3))
    assert (values(start), values(one), values(other)) == ([1], [1, 2], [1, 3])
    assert values(one.append(row(4))) == [1, 2, 4]


def test_a_window_stays_in_a_buffer_of_its_size():
    rows = KVCache.empty(torch.zeros(()), 2, 1, 3)
    for n in range(1000):
        rows = rows.append(row(n)).truncate_left(5)
        assert rows.buffer.shape[2] <= 16
    assert values(rows) == [995, 996, 997, 998, 999]
    assert values(rows.truncate_left(50)) == values(rows)


def test_rows_pass_gradients_on():
    x = row(2.0).requires_grad_()
    rows = KVCache.empty(torch.zeros(()), 2, 1, 3).append(x).append(3 * x).truncate_left(1)
    (grad,) = torch.autograd.grad(rows.rows.sum(), x)
    assert torch.equal(grad, torch.full_like(x, 3.0))


def test_every_version_of_the_cells_can_be_read_and_continued():
    versions: list[PersistentCells[int]] = [PersistentCells()]
    expected: list[dict[int, float]] = [{}]
    for n in range(60):
        changes = {n % 7: float(n), n // 2: float(-n)}
        versions.append(versions[-1].with_written({k: torch.tensor(v) for k, v in changes.items()}))
        expected.append(expected[-1] | changes)
    for n in [60, 0, 33, 12, 59, 1, 60]:
        assert {key: float(cell) for key, cell in versions[n].cells.items()} == expected[n]
        assert versions[n].numel() == len(expected[n])
    branch = versions[10].with_written({99: torch.tensor(5.0)})
    assert {key: float(cell) for key, cell in branch.cells.items()} == expected[10] | {99: 5.0}
    for n in [11, 60]:
        assert {key: float(cell) for key, cell in versions[n].cells.items()} == expected[n]


def test_going_far_back_needs_no_recursion():
    first: PersistentCells[int] = PersistentCells()
    last = first
    for n in range(5000):
        last = last.with_written({n: torch.zeros(())})
    assert len(first.cells) == 0
    assert len(last.cells) == 5000
