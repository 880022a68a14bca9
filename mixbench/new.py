"""`mixbench new mixer NAME`: a working skeleton in the user's folder."""

from __future__ import annotations

import argparse
import keyword
from collections.abc import Sequence
from pathlib import Path
from string import Template

from rich.text import Text

from mixbench.errors import Parser, SettingError, some_of
from mixbench.listing import choices
from mixbench.plugins import located
from mixbench.records import make_folder, write_bytes
from mixbench.summary import make_console

_MIXER = '''\
"""A mixer of one's own for mixbench."""

from __future__ import annotations

import torch
from mixbench.accounting import Operations, linear
from mixbench.errors import positive
from mixbench.mixers.mixer import Mixer
from mixbench.signatures import Check
from torch import Tensor, nn


class $cls(Mixer):
    """A decaying sum of the tokens around, `[B, T, D] -> [B, T, D]`. Put your idea here.

    Args:
        d_model: Model width D.
        causal: Whether an output may depend on earlier tokens only.
        half_life: Tokens after which a weight has halved, initially.
    """

    def __init__(self, *, d_model: int, causal: bool, half_life: float = 4.0) -> None:
        super().__init__(d_model=d_model, causal=causal)
        positive("half_life", half_life)  # a wrong knob is one clear line
        self.half_life = half_life
        self.v_proj = nn.Linear(d_model, d_model)
        self.o_proj = nn.Linear(d_model, d_model)
        self.rate = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Special initial values; mixbench calls this last."""
        keep = 0.5 ** (1 / self.half_life)
        nn.init.constant_(self.rate, torch.logit(torch.tensor(keep)).item())

    def forward(self, x: Tensor) -> Tensor:
        """No residual inside: the model adds it."""
        position = torch.arange(x.shape[1], device=x.device)
        distance = (position[:, None] - position).abs()
        weights = self.rate.sigmoid() ** distance
        if self.causal:
            weights = weights.tril()
        return self.o_proj(weights.to(x.dtype) @ self.v_proj(x))

    # All that follows is optional; what is not said is shown as unknown.

    def state_size(self, seq_len: int) -> int:
        """Numbers that the streaming form holds a sequence."""
        return self.d_model

    def operations(self, seq_len: int) -> Operations:
        """A token's share, by formula; a causal sum need not look at later tokens."""
        pairs = (seq_len + 1) / 2 if self.causal else seq_len
        weighted = Operations(multiplies=self.d_model, additions=self.d_model) * pairs
        return linear(self.d_model, self.d_model) * 2 + weighted

    def init_state(self, batch: int) -> Tensor:
        """The state before the first token."""
        if not self.causal:
            raise NotImplementedError("only the causal form streams")
        return self.v_proj.weight.new_zeros(batch, self.d_model)

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One token `[B, D]` after another; the given state stays as it is."""
        state = self.rate.sigmoid() * state + self.v_proj(x)
        return self.o_proj(state), state

    def signature(self, x: Tensor) -> list[Check]:
        """What the mechanism predicts about itself, checked on the trained layer."""
        keep = float(self.rate.sigmoid())
        holds = 0.1 < keep < 0.999
        return [Check("it forgets, but not at once", "0.1 to 0.999", keep, None, holds)]
'''

_YAML = """\
# @package _global_
# A decaying sum of the tokens around.
allowed_targets: [$name] # the module that the class is in
mixer:
  _target_: $name.$cls
  d_model: $${model.d_model}
  causal: $${causal}
  half_life: 4.0 # tokens after which a weight has halved, initially
"""

_TEST = '''\
"""The checks of `mixbench check`, one test each."""

from mixbench.checks import mixer_checks

from $name import $cls


@mixer_checks(
    lambda: $cls(d_model=16, causal=True),
    lambda: $cls(d_model=16, causal=False),
)
def test_$name(check):
    check()
'''

KINDS = ("mixer",)


def main(arguments: Sequence[str]) -> None:
    """Entry point of `mixbench new`.

    Raises:
        SettingError: Wrong arguments, or a file is there already.
        CannotWrite: The folder cannot be written to.
    """
    given = _parse(arguments)
    some_of("new", [given.kind], KINDS)
    files = skeleton(given.name)
    folder: Path = given.folder
    for path in files:
        if (folder / path).exists():
            raise SettingError("new", expected=f"no {path} in {folder} yet", got="one")
    for path, text in files.items():
        make_folder((folder / path).absolute().parent, key="--folder")
        write_bytes(folder / path, text.encode())
    name = given.name
    lines = [
        *(f"written: {folder / path}" for path in files),
        "from there:",
        f"  mixbench check --config-dir conf mixer={name}",
        f"  mixbench --config-dir conf mixer={name} dataset=mqar",
        f"  python -m pytest test_{name}.py",
    ]
    make_console().print(Text("\n".join(lines)), soft_wrap=True)


def skeleton(name: str) -> dict[str, str]:
    """The files of a new mixer, by their path in the user's folder.

    Raises:
        SettingError: The name cannot be a module's, or something else has it.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower():
        raise SettingError("new mixer", expected="a name in snake_case", got=name)
    if name in {choice.name for choice in choices("mixers")}:
        raise SettingError("new mixer", expected="a name that no mixer has", got=name)
    if located(name) is not None:
        raise SettingError("new mixer", expected="a name that no Python module has", got=name)
    cls = "".join(part.capitalize() for part in name.split("_"))
    templates = {f"{name}.py": _MIXER, f"conf/mixer/{name}.yaml": _YAML, f"test_{name}.py": _TEST}
    return {path: Template(text).substitute(name=name, cls=cls) for path, text in templates.items()}


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(prog="mixbench new", description="A working skeleton in your folder.")
    parser.add_argument("kind", help=", ".join(KINDS))
    parser.add_argument("name", help="in snake_case; the class is called after it")
    parser.add_argument("--folder", type=Path, default=Path(), help="where (default: here)")
    return parser.parse_args(list(arguments))
