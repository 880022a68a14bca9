"""Mixers that are wrong in one way each, the checks that say so, and a right one beside them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from mixbench.mixers.base import Mixer
from mixbench.mixers.claims import Claim
from mixbench.mixers.cost import Operations, linear


class Decay(Mixer):
    """A right one: `h_t = sigmoid(r) h_{t-1} + W x_t`, `y_t = O h_t`."""

    def __init__(self, *, d_model: int = 8, causal: bool = True) -> None:
        super().__init__(d_model=d_model, causal=causal)
        self.in_proj = nn.Linear(d_model, d_model)
        self.rate = nn.Parameter(torch.empty(d_model))
        self.out_proj = nn.Linear(d_model, d_model)
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.ones_(self.rate)

    def forward(self, x):
        return self.out_proj(self.hidden(self.in_proj(x)))

    def hidden(self, u):
        h, states = torch.zeros_like(u[:, 0]), []
        for t in range(u.shape[1]):
            h = self.rate.sigmoid() * h + u[:, t]
            states.append(h)
        return torch.stack(states, dim=1)

    def state_size(self, seq_len):
        return self.d_model

    def operations(self, seq_len):
        D = self.d_model
        return linear(D, D) * 2 + Operations(multiplies=D, additions=D)

    def signature(self, x):
        return [Claim.close("rates below one", 0.5, float(self.rate.sigmoid().mean()), 0.5)]

    def init_state(self, batch):
        return self.rate.new_zeros(batch, self.d_model)

    def step(self, x, state):
        h = self.rate.sigmoid() * state + self.in_proj(x)
        return self.out_proj(h), h


class BothWays(Decay):
    """A right one that does not claim to be causal."""

    def __init__(self) -> None:
        super().__init__(causal=False)


class LeaksOneStep(Decay):
    def forward(self, x):
        return super().forward(x + 1e-6 * F.pad(x[:, 1:], (0, 0, 0, 1)))


class LeaksAcrossBlocks(Decay):
    """Only the first token of a block of 64 is seen early."""

    def forward(self, x):
        y = super().forward(x)
        if x.shape[1] > 64:
            y = torch.cat([y[:, :63], y[:, 63:64] + 1e-3 * x[:, 64:65], y[:, 64:]], dim=1)
        return y


class NormalisesOverTime(Decay):
    def forward(self, x):
        y = super().forward(x)
        return y - y.mean(dim=1, keepdim=True)


class DependsOnTheLength(Decay):
    def forward(self, x):
        return super().forward(x) / x.shape[1]


class MixesRows(BothWays):
    def forward(self, x):
        return super().forward(x) + 1e-6 * x.mean(dim=0)


class DeadParameter(Decay):
    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(self.d_model, 3)


class DeadBehindTwoZeros(Decay):
    """Each of two factors that start at zero waits for the other."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.scale = (nn.Parameter(torch.zeros(1)) for _ in range(2))

    def hidden(self, u):
        return super().hidden(u) + self.gate * self.scale * u

    def step(self, x, state):
        u = self.in_proj(x)
        h = self.rate.sigmoid() * state + u
        return self.out_proj(h + self.gate * self.scale * u), h


class WakesAfterAStep(Decay):
    """A right one: a gate of zero silences what is behind it for one step only."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.gate * super().forward(x)

    def step(self, x, state):
        y, state = super().step(x, state)
        return self.gate * y, state


class HoldsMoreThanItSays(Decay):
    def state_size(self, seq_len):
        return self.d_model - 1


class HoldsLessThanItSays(Decay):
    def state_size(self, seq_len):
        return self.d_model * seq_len


class NanAtLengthOne(BothWays):
    def forward(self, x):
        y = super().forward(x)
        return y / y.std(dim=1, keepdim=True)


class LosesTheLastToken(BothWays):
    """Where a length is one short of a block of 32."""

    def forward(self, x):
        y = super().forward(x)
        if x.shape[1] % 32 == 31:
            y = torch.cat([y[:, :-1], y[:, -1:] / 0], dim=1)
        return y


class DrawsNumbers(Decay):
    def forward(self, x):
        return super().forward(x) + 1e-6 * torch.randn_like(x)


class RemembersCalls(Decay):
    def forward(self, x):
        self.last = getattr(self, "last", 0) + 1e-6
        return super().forward(x) + self.last


class ChangesItsInput(Decay):
    def forward(self, x):
        y = super().forward(x)
        x.data[:, 3:] += 1
        return y


class StreamingDrifts(Decay):
    def step(self, x, state):
        return super().step(x, state * (1 + 1e-7))


class WritesIntoItsState(Decay):
    def step(self, x, state):
        state.mul_(self.rate.sigmoid()).add_(self.in_proj(x))
        return self.out_proj(state), state


class _Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad / 2


class WrongBackward(Decay):
    def hidden(self, u):
        return _Halved.apply(super().hidden(u))


class Detaches(Decay):
    def hidden(self, u):
        return super().hidden(u) + (u - u.detach())


class KeepsATensorOfItsOwn(Decay):
    def __init__(self) -> None:
        super().__init__()
        self.mark = torch.randn(self.d_model)

    def hidden(self, u):
        return super().hidden(u) + self.mark

    def step(self, x, state):
        _, h = super().step(x, state)
        return self.out_proj(h + self.mark), h


class SqueezesTheBatch(BothWays):
    def forward(self, x):
        return super().forward(x).squeeze()


class GuessesTheBatch(BothWays):
    def forward(self, x):
        return super().forward(x).reshape(-1, x.shape[1] * x.shape[2]).reshape(len(x), -1, 8)


class NeedsContiguousInput(BothWays):
    def forward(self, x):
        return super().forward(x.view(-1).view(x.shape))


class Overflows(BothWays):
    def forward(self, x):
        return super().forward(x.exp().log1p())


class StaysInFloat32(BothWays):
    def forward(self, x):
        return super().forward(x).float()


class Cancels(BothWays):
    def forward(self, x):
        return (super().forward(x) + 1e5) - 1e5


class NoBfloat16(BothWays):
    def forward(self, x):
        return torch.zeros_like(x).index_add(1, torch.arange(x.shape[1]), super().forward(x))


class StartsTooLarge(BothWays):
    def forward(self, x):
        return 1e4 * super().forward(x)


class Grows(BothWays):
    """A product along time that is finite as far as it was made for."""

    def forward(self, x):
        return super().forward(x) * 1.5 ** torch.arange(x.shape[1], dtype=x.dtype)[:, None]


class TurnsTokensAround(BothWays):
    """Declares what does not hold."""

    def symmetries(self):
        return ("reversal",)


class SeesFurtherThanItSays(BothWays):
    def receptive_field(self):
        return 4


class ClaimsTooFewOperations(Decay):
    def operations(self, seq_len):
        return linear(self.d_model, self.d_model) * 0.5


class FreezesAParameter(Decay):
    def __init__(self) -> None:
        super().__init__()
        self.rate.requires_grad_(False)


class SignatureRaises(Decay):
    def signature(self, x):
        raise ZeroDivisionError("on purpose")


class SignatureTrains(Decay):
    def signature(self, x):
        self.rate += 1
        return super().signature(x)


class ExceptsInVain(Decay):
    def exceptions(self):
        return {"causality": "it is only almost causal", "rate": "it gets no gradient"}


class ExceptsWithReason(LeaksOneStep):
    """A right one in its own words."""

    def exceptions(self):
        return dict.fromkeys(
            ("causality", "causality_by_gradient", "prefix", "streaming",
             "streaming_from_every_split"),
            "a look at the next token is part of the idea",
        )  # fmt: skip


_LEAK = {
    "causality", "causality_by_gradient", "prefix", "streaming", "streaming_from_every_split"
}  # fmt: skip

RIGHT = (Decay, BothWays, WakesAfterAStep, ExceptsWithReason)

# The checks that fail, all of them, and words of the first one's reason.
BROKEN: dict[type[Mixer], tuple[set[str], str]] = {
    LeaksOneStep: (_LEAK, "the output at 0 moves by"),
    LeaksAcrossBlocks: (
        {"causality", "prefix", "streaming"}, "output at 63 moves by 1.3e-03 when the input at 64"
    ),
    NormalisesOverTime: ({*_LEAK, "gradients_arrive"}, "the output at 0 moves"),
    DependsOnTheLength: (
        {"prefix", "streaming", "streaming_from_every_split"}, "the first 1 of 66 tokens alone"
    ),
    MixesRows: ({"batch_independence"}, "row 0 alone has an output that differs"),
    DeadParameter: ({"gradients_arrive"}, "no gradient for unused.weight, unused.bias, before"),
    DeadBehindTwoZeros: ({"gradients_arrive"}, "no gradient for gate, scale, before and after"),
    HoldsMoreThanItSays: ({"state_size"}, "after 1 tokens state_size says 7 and 8 are held"),
    HoldsLessThanItSays: ({"state_size"}, "after 2 tokens state_size says 16 and 8 are held"),
    NanAtLengthOne: ({"length_one"}, "(2, 1, 8): nan at row 0, position 0"),
    LosesTheLastToken: ({"odd_lengths"}, "(2, 31, 8): "),
    DrawsNumbers: (
        {*_LEAK, "batch_independence", "determinism", "finite_differences", "strided_input",
         "save_and_load"} - {"causality_by_gradient"},
        "outputs differ by",
    ),
    RemembersCalls: (
        {*_LEAK, "batch_independence", "determinism", "strided_input", "finite_differences"}
        - {"causality_by_gradient"},
        "outputs differ by",
    ),
    # What backward needs is changed as well.
    ChangesItsInput: (
        {"input_untouched", "finite_differences"}, "changes its input, first at position 3"
    ),
    StreamingDrifts: ({"streaming", "streaming_from_every_split"}, "step 1 of a stream differs by"),
    WritesIntoItsState: ({"streaming_from_every_split"}, "of a stream that goes on from"),
    WrongBackward: ({"finite_differences"}, "the input: the gradient along a random direction"),
    Detaches: ({"finite_differences"}, "the input"),
    KeepsATensorOfItsOwn: ({"save_and_load"}, "after loading"),
    SqueezesTheBatch: (
        {"batch_of_one", "length_one", "receptive_field", "batch_independence"}, "becomes",
    ),
    GuessesTheBatch: ({"empty_batch"}, "RuntimeError: cannot reshape"),
    NeedsContiguousInput: ({"strided_input"}, "RuntimeError: view size is not compatible"),
    Overflows: ({"input_scales"}, "the output is not finite for inputs of size 100"),
    StaysInFloat32: ({"shape", "finite_differences"}, "an input of float64 becomes float32"),
    Cancels: ({"precision"}, "outputs differ by"),
    NoBfloat16: ({"bfloat16"}, "RuntimeError"),
    StartsTooLarge: ({"initial_scale"}, "times the input (root mean square)"),
    TurnsTokensAround: ({"symmetries"}, "reversal: outputs differ by"),
    SeesFurtherThanItSays: ({"receptive_field"}, "tokens away, declared are 4"),
    ClaimsTooFewOperations: ({"operations"}, "PyTorch counts 256 FLOPs"),
    FreezesAParameter: ({"parameters"}, "no gradient is asked for rate"),
    SignatureRaises: ({"signature"}, "signature() raises ZeroDivisionError: on purpose"),
    SignatureTrains: ({"signature"}, "signature() changes rate"),
    ExceptsInVain: ({"causality", "gradients_arrive"}, "yet it passes"),
}  # fmt: skip
