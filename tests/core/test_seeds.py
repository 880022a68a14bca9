"""Streams: keyed by seed and purpose, and by nothing else."""

from __future__ import annotations

import torch

from mixbench.core import seeds


def test_a_stream_is_its_seed_and_purpose():
    first = seeds.stream(0, "data", "train").random(8)
    assert (seeds.stream(0, "data", "train").random(8) == first).all()
    for other in (
        seeds.stream(1, "data", "train"),
        seeds.stream(0, "data", "test"),
        seeds.stream(0, "data"),
        seeds.stream(0, "datatrain"),
    ):
        assert not (other.random(8) == first).any()
    assert seeds.stream_seed(0, "order", 1) != seeds.stream_seed(0, "order", "1")
    assert 0 <= seeds.stream_seed(0, "order", 1) < 2**63


def test_a_torch_stream_puts_the_global_generator_back():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with seeds.torch_stream(0, "init"):
        first = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    with seeds.torch_stream(0, "init"):
        assert torch.equal(torch.rand(3), first)
