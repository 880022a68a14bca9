"""The training loop. It knows models, arrays and callbacks, but no files and no configuration."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from mixbench.core import seeds
from mixbench.datasets.base import IGNORE, Dataset, Examples, SplitName
from mixbench.train.diagnostics import Diagnostics
from mixbench.train.events import Callback, Diverged, Epoch, Step
from mixbench.train.objective import objective_of

log = logging.getLogger(__name__)


Schedule = Literal["one_cycle", "constant"]


Dtype = Literal["float32", "float64", "bfloat16"]


_EVALUATION_BATCH = 256


class Trainer:
    """Trains a model on a dataset and evaluates it.

    Every epoch visits all train rows once, or those that the dataset's curriculum names, in an
    order that depends on the seed and the epoch only.
    The optimizer step is preceded by clipping the gradient's norm; a loss or gradient that is not
    finite raises `Diverged`.

    Args:
        model: Called with tokens `[B, T]` and a mask of target positions it gives their logits;
            with windows `[B, T]`, one value each.
        dataset: The task.
        rows: Its splits.
        optimizer: Over the model's parameters; its learning rate is the schedule's peak.
        seed: Keys the order and the noise stream (dropout and the like).
        steps: Optimizer steps in all.
        batch_size: Rows a step; the last step of an epoch takes what is left.
        schedule: `one_cycle` (linear up over `warmup`, then cosine down) or `constant`.
        warmup: Share of the steps in which a one-cycle schedule rises.
        grad_clip: Largest gradient norm; None for no limit.
        compile: Train through `torch.compile`; where that fails, without, and `compiled` says so.
        dtype: `float32`, `float64`, or `bfloat16` (autocast over float32 parameters).
        device: Where the model lives.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        dataset: Dataset,
        rows: dict[SplitName, Examples],
        optimizer: torch.optim.Optimizer,
        seed: int,
        steps: int,
        batch_size: int,
        schedule: Schedule,
        warmup: float,
        grad_clip: float | None,
        dtype: Dtype,
        device: torch.device,
        compile: bool = False,
    ) -> None:
        self.model = model
        self.dataset = dataset
        self.objective = objective_of(dataset)
        self.rows = rows
        self.optimizer = optimizer
        self.seed = seed
        self.steps = steps
        self.batch_size = batch_size
        self.grad_clip = grad_clip
        self.dtype = dtype
        self.device = device
        self.steps_per_epoch = math.ceil(dataset.size("train") / batch_size)
        self.epochs = math.ceil(steps / self.steps_per_epoch)
        self.step = 0
        self.epoch = 0
        self.batch = 0  # of the epoch, the next one
        self.losses: list[float] = []  # of the epoch so far
        self.seconds = 0.0
        self._noise: Tensor | None = None  # the generator's state to go on from
        self.diagnostics: dict[str, float] = {}
        self.scheduler = _scheduler(optimizer, schedule, steps, warmup)
        # Evaluation stays as it is: its batches have other sizes, and it is a small part.
        self._compiled = torch.compile(model) if compile else None

    @property
    def compiled(self) -> bool:
        """Whether training runs through `torch.compile`."""
        return self._compiled is not None

    @property
    def rows_seen(self) -> int:
        """Train rows in all steps so far, repetitions counted."""
        epochs, steps = divmod(self.step, self.steps_per_epoch)
        n = self.dataset.size("train")
        return epochs * n + min(steps * self.batch_size, n)

    def train(self, callbacks: list[Callback]) -> None:
        """Train to the last step, from the first one or from where `load_state` put it.

        Raises:
            Diverged: A loss or gradient is not finite.
        """
        inputs, targets = self.tensors("train")
        with seeds.torch_stream(self.seed, "noise", self.epoch):
            if self._noise is not None:
                torch.set_rng_state(self._noise)
            while self.epoch < self.epochs:
                self.model.train()
                for index in self._batches():
                    started = time.perf_counter()
                    loss = self._train_step(inputs[index], targets[index])
                    self.losses.append(loss)
                    self.batch += 1
                    self.seconds += time.perf_counter() - started
                    place = Step(self.epoch + 1, self.epochs, self.step, self.steps, loss)
                    for callback in callbacks:
                        callback.on_step(place, self)
                metrics = {"train/loss": float(np.mean(self.losses)), **self.evaluate("valid")}
                lr = self.optimizer.param_groups[0]["lr"]
                self.epoch, self.batch, self.losses = self.epoch + 1, 0, []
                torch.manual_seed(seeds.stream_seed(self.seed, "noise", self.epoch))
                epoch = Epoch(self.epoch, self.step, metrics, self.diagnostics, lr, self.seconds)
                for callback in callbacks:
                    callback.on_epoch(epoch, self)

    def evaluate(self, split: SplitName) -> dict[str, float]:
        """Loss and metrics of a split, named `split/metric`.

        What the mixers tell about themselves on it is kept in `diagnostics`.

        Raises:
            Diverged: The loss is not finite.
        """
        metrics, self.diagnostics = self._evaluate(self.dataset, self.rows[split], split)
        return {f"{split}/{name}": value for name, value in metrics.items()}

    def probe(self, name: str, dataset: Dataset, rows: Examples) -> dict[str, float]:
        """Loss and metrics of a further test set, see `Dataset.probes`.

        Raises:
            Diverged: The loss is not finite.
        """
        return self._evaluate(dataset, rows, f"probe {name}")[0]

    def _evaluate(
        self, dataset: Dataset, rows: Examples, what: str
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Metrics and diagnostics on some rows."""
        inputs, targets = self._tensors(rows)
        predictions = torch.full_like(targets, IGNORE)
        scores, diagnostics = [], Diagnostics()
        total, count = 0.0, 0
        self.model.eval()
        with torch.no_grad():
            for start in range(0, len(inputs), _EVALUATION_BATCH):
                index = slice(start, start + _EVALUATION_BATCH)
                outputs, counts, labels = self._outputs(self.model, inputs[index], targets[index])
                if labels.is_floating_point():
                    labels = labels.double()
                total += float(self.objective.loss(outputs.double(), labels, "sum"))
                count += len(labels)
                predicted = self.objective.predictions(outputs)
                predictions[index][counts] = predicted.to(predictions.dtype)
                if dataset.needs_scores:
                    batch = Examples(rows.inputs[index], rows.targets[index])
                    scores.append(dataset.scores(outputs.cpu().numpy(), batch))
                diagnostics.add(self.model, len(inputs[index]))
        if not math.isfinite(total):
            raise Diverged(self.step, f"the {what} loss")
        metrics = dataset.metrics(predictions.cpu().numpy(), rows.targets)
        if scores:
            metrics |= dataset.score_metrics(np.concatenate(scores))
        return {"loss": total / count, **metrics}, diagnostics.numbers()

    def state(self) -> dict[str, Any]:
        """All that later steps and their metrics depend on; plain containers and tensors only.

        To be taken within a callback, between two steps.
        """
        return {
            "step": self.step,
            "epoch": self.epoch,
            "batch": self.batch,
            "losses": list(self.losses),
            "seconds": self.seconds,
            "noise": torch.get_rng_state(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a `state()`, bit for bit."""
        self.step = state["step"]
        self.epoch = state["epoch"]
        self.batch = state["batch"]
        self.losses = list(state["losses"])
        self.seconds = state["seconds"]
        self._noise = state["noise"].cpu()
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])

    def tensors(self, split: SplitName) -> tuple[Tensor, Tensor]:
        """Inputs and targets on the device; real numbers in the model's precision."""
        return self._tensors(self.rows[split])

    def _tensors(self, rows: Examples) -> tuple[Tensor, Tensor]:
        dtype = next(self.model.parameters()).dtype
        return self.objective.tensors(rows, self.device, dtype)

    def _batches(self) -> Iterator[Tensor]:
        """Row numbers of the epoch's batches, cut where the steps run out."""
        rows = self.dataset.epoch_rows(self.epoch / self.epochs)
        n = rows.stop - rows.start
        order = seeds.stream(self.seed, "order", self.epoch).permutation(n) + rows.start
        for start in range(self.batch * self.batch_size, n, self.batch_size):
            if self.step == self.steps:
                return
            yield torch.from_numpy(order[start : start + self.batch_size]).to(self.device)

    def _train_step(self, inputs: Tensor, targets: Tensor) -> float:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._backward(inputs, targets)
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if not math.isfinite(norm.item()):
            raise Diverged(self.step + 1, f"the gradient of {_not_finite(self.model)}")
        if self.grad_clip is not None:
            nn.utils.clip_grads_with_norm_(parameters, self.grad_clip, norm)
        self.optimizer.step()
        self.scheduler.step()
        self.step += 1
        return loss

    def _backward(self, inputs: Tensor, targets: Tensor) -> float:
        """Leave the gradients of the loss, and return it."""
        if self._compiled is None:
            return self._loss_and_gradients(self.model, inputs, targets)
        generators = torch.get_rng_state()
        try:
            return self._loss_and_gradients(self._compiled, inputs, targets)
        except (Diverged, KeyboardInterrupt):
            raise
        except Exception as error:
            # What is the model's own fault will show again; a missing compiler will not.
            reason = str(error).strip().partition("\n")[0]
            log.warning(
                "compile=true does not work here, training goes on without it: %s: %s",
                type(error).__name__,
                reason,
            )
            self._compiled = None
            torch.set_rng_state(generators)
            self.optimizer.zero_grad(set_to_none=True)
            return self._loss_and_gradients(self.model, inputs, targets)

    def _loss_and_gradients(
        self, model: Callable[..., Tensor], inputs: Tensor, targets: Tensor
    ) -> float:
        outputs, _, labels = self._outputs(model, inputs, targets)
        loss = self.objective.loss(outputs, labels)
        value = loss.item()
        if not math.isfinite(value):
            raise Diverged(self.step + 1, "the training loss")
        loss.backward()
        return value

    def _outputs(
        self, model: Callable[..., Tensor], inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs where targets count, `[M, ...]`, the mask of these, and the targets `[M]`."""
        autocast: AbstractContextManager[object] = nullcontext()
        if self.dtype == "bfloat16":
            autocast = torch.autocast(self.device.type, torch.bfloat16)
        counts = self.objective.counts(targets)
        with autocast:
            outputs = self.objective.outputs(model, inputs, counts)
        outputs = outputs if self.dtype == "float64" else outputs.float()
        return outputs, counts, targets[counts]


def _scheduler(
    optimizer: torch.optim.Optimizer, schedule: Schedule, steps: int, warmup: float
) -> torch.optim.lr_scheduler.LRScheduler:
    if schedule == "constant":
        return torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    # One step more than is taken: the scheduler moves past the last one after it.
    return torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        max_lr=[group["lr"] for group in optimizer.param_groups],
        total_steps=steps + 1,
        pct_start=warmup,
        cycle_momentum=False,
    )


def _not_finite(model: nn.Module) -> str:
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not bool(parameter.grad.isfinite().all()):
            return name
    return "the parameters together (its norm overflows)"
