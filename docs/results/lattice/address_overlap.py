"""Do the lattice's read and write neighbourhoods of matching keys meet, and when in training?

    python docs/results/lattice/address_overlap.py mixer=lattice dataset=mqar epochs=8 lr=1e-2

trains as `mixbench` does, but always anew, and shows what the lattice layers
did at every epoch's end. Its records go to OUTPUT_DIR/meetings.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from omegaconf import OmegaConf
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F

from mixbench.cli.exit import exit_with_one_line
from mixbench.config.check import check, without_hydra
from mixbench.config.compose import compose_config
from mixbench.config.settings import Settings
from mixbench.config.targets import target
from mixbench.core.errors import RunsFailed, SettingError
from mixbench.datasets.mqar import MQAR
from mixbench.display.console import make_console
from mixbench.display.progress import display
from mixbench.mixers.lattice import Lattice
from mixbench.models.inspect import mixer_inputs
from mixbench.records.result import COMPLETED
from mixbench.runs.run import run
from mixbench.train.events import Callback, Epoch, Step, Training

# After the key: up to +3 a short convolution of width 4 still carries key and value.
_OFFSETS = (1, 2, 3)


_ROWS = 64


@dataclass(frozen=True)
class AddressOverlap:
    """How queries meet the tokens at one offset after the keys of their row's pairs.

    Attributes:
        offset: Positions after the key; +1 is the value.
        matching: Share of queries whose read cells overlap the write cells of that token of the
            pair with the query's key.
        other: The same for the row's other pairs, averaged over them.
        cosine_matching: Mean cosine of query and that token's key, at the head where the two
            means differ most.
        cosine_other: The same for the row's other pairs.
    """

    offset: int
    matching: float
    other: float
    cosine_matching: float
    cosine_other: float


@torch.no_grad()
def address_overlap(
    mixer: Lattice, x: Tensor, tokens: Tensor, num_pairs: int
) -> list[AddressOverlap]:
    """Whether queries find their own pair's cells rather than another pair's, at +1, +2 and +3.

    A query is a query slot that holds one of the row's keys (with `filler=random` also by chance).
    After the last pair an offset points past the pairs, and +3 at a token which the first query
    slot comes before; both count as the others do.

    Args:
        mixer: A trained lattice with addresses.
        x: The inputs it met `[B, T, D]`.
        tokens: Rows of MQAR `[B, T]`.
        num_pairs: Their pairs P, at least 2.
    """
    keys, queries = tokens[:, 0 : 2 * num_pairs : 2], tokens[:, 2 * num_pairs :: 2]
    own = queries[:, :, None] == keys[:, None]  # [B, S, P] of S query slots
    others = own.any(-1, keepdim=True) & ~own
    convolved = mixer.conv(x)
    write, read = (address.round() for address in mixer.addresses(convolved))
    q, k, _ = mixer.content(convolved)
    q, read = F.normalize(q[:, 2 * num_pairs :: 2], dim=-1), read[:, 2 * num_pairs :: 2]
    # 3 x 3 cells are written; read are as many or only the centre.
    reach = 2 if mixer.read_mode == "all" else 1
    meetings = []
    for offset in _OFFSETS:
        at = slice(offset, 2 * num_pairs + offset, 2)
        distance = (read[:, :, None] - write[:, None, at]).abs().amax(-1)  # [B, S, P]
        meets = (distance <= reach).double()
        cosine = torch.einsum("bshk,bphk->bsph", q, k[:, at])
        matching, other = cosine[own].mean(0), cosine[others].mean(0)  # [H]
        head = int((matching - other).abs().argmax())
        meetings.append(
            AddressOverlap(
                offset,
                float(meets[own].mean()),
                float(meets[others].mean()),
                float(matching[head]),
                float(other[head]),
            )
        )
    return meetings


@torch.no_grad()
def spread(mixer: Lattice, x: Tensor, num_pairs: int) -> float:
    """Standard deviation over tokens of the values' write addresses, in cells, mean of both axes.

    Near 0 all values are written to one place. Arguments as in `address_overlap`.
    """
    write, _ = mixer.addresses(mixer.conv(x))
    return float(write[:, 1 : 2 * num_pairs : 2].flatten(0, 1).std(0, correction=0).mean())


@dataclass(frozen=True)
class Row:
    """One lattice layer (counted from 1) after one epoch; `accuracy` is the model's, on valid."""

    step: int
    accuracy: float
    layer: int
    meetings: list[AddressOverlap]
    spread: float


class OverlapLogger(Callback):
    """Looks at all lattice layers on the first validation rows at every epoch's end."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def on_step(self, step: Step, trainer: Training) -> None:
        pass

    def on_epoch(self, epoch: Epoch, trainer: Training) -> None:
        assert isinstance(trainer.dataset, MQAR)
        num_pairs = trainer.dataset.num_pairs
        tokens = trainer.tensors("valid")[0][:_ROWS]
        trainer.model.eval()
        layers = mixer_inputs(trainer.model, tokens).items()
        for layer, (mixer, x) in enumerate(layers, start=1):
            if isinstance(mixer, Lattice):
                self.rows.append(
                    Row(
                        epoch.step,
                        epoch.metrics["valid/accuracy"],
                        layer,
                        address_overlap(mixer, x, tokens, num_pairs),
                        spread(mixer, x, num_pairs),
                    )
                )


def meeting_table(rows: Sequence[Row]) -> Table:
    """One line a layer and epoch; matching pair / another pair of the row."""
    table = Table(title="matching / another pair of the row", title_justify="left")
    offsets = [f"+{offset}" for offset in _OFFSETS]
    for name in [
        "step",
        "valid accuracy",
        "layer",
        *(f"meets {offset}" for offset in offsets),
        *(f"cosine {offset}" for offset in offsets),
        "spread",
    ]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            str(row.step),
            f"{row.accuracy:.4f}",
            str(row.layer),
            *(f"{m.matching:.2f}/{m.other:.2f}" for m in row.meetings),
            *(f"{m.cosine_matching:.2f}/{m.cosine_other:.2f}" for m in row.meetings),
            f"{row.spread:.2f}",
        )
    return table


def command(overrides: Sequence[str]) -> None:
    """Train what the overrides name and show how its lattice layers met.

    Also a run that ends early shows the epochs that it completed.

    Raises:
        SettingError: A wrong setting, or a mixer or dataset without meetings.
        RunsFailed: The run diverged.
    """
    cfg = compose_config(overrides)
    settings = check(cfg, cfg.hydra)
    # A record that is there already does not say what the layers did on the way; it is left alone.
    folder = Path(settings.output_dir) / "meetings"
    settings = replace(settings, rerun="all", output_dir=str(folder))
    _check_meets(settings)
    files = {
        "config.yaml": OmegaConf.to_yaml(without_hydra(cfg)),
        "overrides.yaml": OmegaConf.to_yaml(list(overrides)),
    }
    console, log = make_console(), OverlapLogger()
    try:
        with display(console) as progress:
            result = run(settings, [progress, log], files).result
    finally:
        if log.rows:
            console.print(meeting_table(log.rows))
    if result.status != COMPLETED:
        raise RunsFailed(f"the run {result.status}: {result.reason}")


def main() -> None:
    """Entry point: mistakes are told, and exit codes are, as by `mixbench`."""
    with exit_with_one_line():
        command(sys.argv[1:])


def _check_meets(settings: Settings) -> None:
    """Refuse what has no addresses, or no two pairs to tell apart."""
    if not issubclass(target("mixer", settings.mixer), Lattice):
        raise SettingError("mixer", expected="lattice", got=settings.names["mixer"])
    if settings.mixer.get("one_cell"):
        raise SettingError("mixer.one_cell", expected="false: one cell has no addresses", got=True)
    if not issubclass(target("dataset", settings.dataset), MQAR):
        raise SettingError("dataset", expected="mqar", got=settings.names["dataset"])
    if settings.dataset.get("num_pairs") == 1:
        raise SettingError(
            "dataset.num_pairs", expected="at least 2: a matching and another pair", got=1
        )
