"""Checks of how a mixer gets on with PyTorch's tools, and with mixbench's signatures."""

from __future__ import annotations

import copy
import io
import json
import logging
import warnings
from collections.abc import Callable
from dataclasses import asdict

import torch
from torch import Tensor
from torch.func import functional_call, grad, jvp, vmap

from mixbench.checks.subject import Failed, MixerUnderTest, Skipped, distance, inputs
from mixbench.mixers.claims import UNEVALUATED
from mixbench.models.signature import evaluate, summarise


def save_and_load(mixer_under_test: MixerUnderTest) -> str:
    """A new mixer that loads another one's `state_dict` gives its outputs, to the bit."""
    mixer = mixer_under_test.mixer(torch.float32)
    other = mixer_under_test.mixer(torch.float32, seed=1)
    file = io.BytesIO()
    torch.save(mixer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    x = inputs(mixer, 2, mixer_under_test.length(33), torch.float32)
    with torch.no_grad():
        expected, found = mixer(x), other(x)
    if not torch.equal(found, expected):
        raise Failed(
            f"outputs differ by {distance(found, expected):.1e} after loading",
            "tensors that are neither parameters nor registered buffers",
        )
    return "equal to the bit"


def signature(mixer_under_test: MixerUnderTest) -> str:
    """The signature can be evaluated, fits a record, and leaves the mixer as it is."""
    mixer = mixer_under_test.mixer(torch.float32, perturbed=False)
    before = copy.deepcopy(mixer.state_dict())
    x = inputs(mixer, 4, mixer_under_test.length(33), torch.float32)
    checks = evaluate(mixer, x)
    if not checks:
        raise Skipped("it states nothing about itself")
    raised = [check.observed for check in checks if check.name == UNEVALUATED]
    if raised:
        raise Failed(f"signature() raises {raised[0]}", "signature()")
    try:
        json.dumps([asdict(check) for check in checks], allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Failed(
            f"its values do not fit into JSON: {error}",
            "signature(): finite numbers, strings, lists",
        ) from error
    after = mixer.state_dict()
    changed = [name for name, value in before.items() if not torch.equal(value, after[name])]
    if changed:
        raise Failed(f"signature() changes {', '.join(changed)}", "work on a deepcopy there")
    summary = summarise([checks])
    assert summary is not None
    failing = f"; not: {', '.join(summary['failing'])}" if summary["failing"] else ""
    return f"{summary['held']} of {summary['of']} hold, untrained{failing}"


def torch_compile(mixer_under_test: MixerUnderTest) -> str:
    """torch.compile traces it, forward and backward, and gives the same outputs."""
    from torch._dynamo.backends.registry import lookup_backend  # seconds to import

    mixer = mixer_under_test.mixer(torch.float32, copy_inputs=False)
    x = inputs(mixer, 2, mixer_under_test.length(32), torch.float32)
    with torch.no_grad():
        expected = mixer(x)
    graphs = 0

    def counting(module: torch.fx.GraphModule, examples: list[Tensor]) -> Callable[..., object]:
        nonlocal graphs
        graphs += 1
        return lookup_backend("aot_eager")(module, examples)

    torch._dynamo.reset()
    try:
        with _silence(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = torch.compile(mixer, backend=counting, dynamic=False)(x.requires_grad_())
            y.square().sum().backward()
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
        raise Failed(
            f"{type(error).__name__}: {said}", "compile=true falls back to the plain form"
        ) from error
    finally:
        torch._dynamo.reset()
    difference = distance(y, expected)
    if not difference <= 1e-4:
        raise Failed(f"compiled outputs differ by {difference:.1e}", "side effects of forward")
    if graphs == 0:
        raise Failed("nothing of it is traced", "compile=true gains nothing then")
    return "in one graph" if graphs == 1 else f"in {graphs} graphs, with breaks between"


def torch_func(mixer_under_test: MixerUnderTest) -> str:
    """torch.func's grad, vmap and jvp work on it."""
    mixer = mixer_under_test.mixer(torch.float32, copy_inputs=False)
    values = {name: p.detach() for name, p in mixer.named_parameters()}
    x = inputs(mixer, 2, mixer_under_test.length(9), torch.float32)

    def apply(values: dict[str, Tensor], row: Tensor) -> Tensor:
        return functional_call(mixer, values, (row[None],))[0]

    def scalar(values: dict[str, Tensor], row: Tensor) -> Tensor:
        return apply(values, row).square().sum()

    attempts: dict[str, Callable[[], object]] = {
        "grad": lambda: grad(scalar)(values, x[0]),
        "vmap": lambda: vmap(apply, in_dims=(None, 0))(values, x),
        "jvp": lambda: jvp(lambda row: apply(values, row), (x[0],), (x[1],)),
    }
    works, fails = [], []
    for name, attempt in attempts.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                attempt()
            works.append(name)
        except Exception as error:
            fails.append(f"{name} ({type(error).__name__})")
    if fails:
        raise Failed(
            f"without {', '.join(fails)}" + (f"; with {', '.join(works)}" if works else ""),
            "operators of your own that lack these rules; training needs none of them",
        )
    return ", ".join(works)


class _silence:
    """Keep PyTorch's compiler from writing about what it cannot trace."""

    def __enter__(self) -> None:
        self.before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)

    def __exit__(self, *_: object) -> None:
        logging.disable(self.before)
