"""What a check is given, and how it says what it found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mixbench.core import seeds
from mixbench.mixers.base import Mixer
from mixbench.models.init import init_parameters

MakeMixer = Callable[[], Mixer]


class Failed(AssertionError):
    """A check does not hold.

    Args:
        reason: What was seen, with numbers and positions.
        hint: What to look at.
    """

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason, hint)
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.reason}; look at: {self.hint}"


class Skipped(Exception):
    """A check does not apply to this mixer."""


@dataclass(frozen=True)
class MixerUnderTest:
    """A mixer on trial, made anew for every check.

    Attributes:
        make: Makes it, with the values that its constructor gives.
        seq_len: The longest sequence that it is made for, T.
    """

    make: MakeMixer
    seq_len: int

    def mixer(
        self,
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
        perturbed: bool = True,
        copy_inputs: bool = True,
    ) -> Mixer:
        """The mixer in evaluation mode, as mixbench initialises it.

        Args:
            dtype: Of its parameters.
            seed: Of the initial values.
            perturbed: Add N(0, 0.05) to every parameter. What starts at zero, a gate say, would
                otherwise hide whatever is behind it.
            copy_inputs: Give it copies of its inputs, so that one that changes them fails one check
                only.

        Raises:
            TypeError: `make` makes something else.
        """
        with seeds.torch_stream(seed, "checks", "make"):
            mixer = self.make()
        if not isinstance(mixer, Mixer):
            raise TypeError(
                f"expected a mixbench.mixers.base.Mixer, got {type(mixer).__qualname__}"
            )
        init_parameters(mixer, seed, "mixer")
        if perturbed:
            with torch.no_grad(), seeds.torch_stream(seed, "checks", "shake"):
                for parameter in mixer.parameters():
                    parameter.add_(torch.randn_like(parameter), alpha=0.05)
        if copy_inputs:
            mixer.register_forward_pre_hook(lambda _, given: (given[0].clone(), *given[1:]))
        return mixer.to(dtype).eval()

    def causal(self) -> Mixer:
        """The mixer, if it is causal.

        Raises:
            Skipped: It is not.
        """
        mixer = self.mixer()
        if not mixer.causal:
            raise Skipped("it is bidirectional")
        return mixer

    def length(self, wanted: int) -> int:
        """A length for a check: `wanted`, or as long as the mixer is made for."""
        return min(wanted, self.seq_len)


def inputs(
    mixer: Mixer, batch: int, seq_len: int, dtype: torch.dtype = torch.float64, seed: int = 0
) -> Tensor:
    """Standard normal inputs `[B, T, D]`."""
    with seeds.torch_stream(seed, "checks", "inputs"):
        return torch.randn(batch, seq_len, mixer.d_model, dtype=torch.float64).to(dtype)


def largest(x: Tensor) -> float:
    """The largest absolute value; 0 where there is none, NaN where one is NaN."""
    return float(x.detach().abs().max()) if x.numel() else 0.0


def distance(x: Tensor, y: Tensor) -> float:
    """The largest absolute difference over `max(1, |y|)`."""
    return largest(x - y) / max(1.0, largest(y))


def weights_like(y: Tensor) -> Tensor:
    """Fixed numbers of both signs that make a scalar of an output, for its gradient."""
    with seeds.torch_stream(0, "checks", "weights"):
        return torch.randn(y.shape, dtype=torch.float64).to(y)


def inherited_exceptions(mixer: Mixer) -> dict[str, str]:
    """The exceptions of the mixers inside a mixer, the parameters' names as the outer one has them.

    They may hold of the whole as well, and need not.
    """
    found: dict[str, str] = {}
    for path, inner in mixer.named_modules():
        if isinstance(inner, Mixer) and inner is not mixer:
            parameters = dict(inner.named_parameters())
            for name, reason in inner.exceptions().items():
                found[f"{path}.{name}" if name in parameters else name] = reason
    return found


def trained_parameters(mixer: Mixer) -> dict[str, Tensor]:
    """The parameters that ask for a gradient, by name."""
    return {name: p for name, p in mixer.named_parameters() if p.requires_grad}


def gradients_of(mixer: Mixer, x: Tensor) -> tuple[Tensor, dict[str, Tensor | None]]:
    """The output for `x`, and the gradients of a scalar of it: `the input`'s and the parameters'.

    Raises:
        Failed: The output has no gradient.
    """
    mixer.zero_grad(set_to_none=True)
    x = x.detach().clone().requires_grad_()
    y = mixer(x)
    refuse_without_gradient(y)
    (y * weights_like(y)).sum().backward()
    parameters = {name: p.grad for name, p in trained_parameters(mixer).items()}
    return y.detach(), {"the input": x.grad, **parameters}


def refuse_without_gradient(y: Tensor) -> None:
    """Raise `Failed` for an output that depends on nothing."""
    if not y.requires_grad:
        raise Failed(
            "the output has no gradient at all", "detach(), no_grad() and .data inside forward"
        )
