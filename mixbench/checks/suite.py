"""The checks in order, and how they are run: all at once, or one by one under pytest."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mixbench.checks import compatibility, costs, dependence, gradients, numerics, shapes, streaming
from mixbench.checks.subject import (
    Failed,
    MakeMixer,
    MixerUnderTest,
    Skipped,
    inherited_exceptions,
)
from mixbench.mixers.base import Mixer

PASSED, FAILED, SKIPPED, EXCEPTED = "passed", "failed", "skipped", "excepted"


SEQ_LEN = 130
"""The usual length that mixers are made for: odd blocks, and one token beyond two of 64."""


Function = Callable[[MixerUnderTest], str]


_REQUIRED: tuple[Function, ...] = (
    shapes.shape,
    shapes.input_untouched,
    shapes.length_one,
    shapes.odd_lengths,
    shapes.batch_of_one,
    shapes.empty_batch,
    shapes.strided_input,
    dependence.causality,
    dependence.causality_by_gradient,
    dependence.prefix,
    dependence.batch_independence,
    dependence.determinism,
    dependence.receptive_field,
    dependence.symmetries,
    gradients.gradients_arrive,
    gradients.finite_differences,
    streaming.streaming,
    streaming.streaming_from_every_split,
    streaming.state_size,
    numerics.precision,
    numerics.bfloat16,
    numerics.input_scales,
    numerics.initial_scale,
    costs.parameters,
    costs.operations,
    compatibility.save_and_load,
    compatibility.signature,
)


_REPORTED: tuple[Function, ...] = (
    numerics.extrapolation,
    costs.growth,
    compatibility.torch_compile,
    compatibility.torch_func,
)


@dataclass(frozen=True)
class MixerCheck:
    """One check.

    Attributes:
        name: In the table, on the command line and in `Mixer.exceptions`.
        what: What holds when it passes.
        required: Whether a failure is one of the mixer; else it is only reported.
    """

    name: str
    what: str
    required: bool
    function: Function


CHECKS: tuple[MixerCheck, ...] = tuple(
    MixerCheck(
        function.__name__, (function.__doc__ or "").rstrip("."), function in _REQUIRED, function
    )
    for function in (*_REQUIRED, *_REPORTED)
)


@dataclass(frozen=True)
class Outcome:
    """What a check found.

    Attributes:
        check: The check's name.
        what: What holds when it passes.
        required: Whether a failure counts.
        status: `passed`, `failed`, `skipped` (does not apply) or `excepted` (fails by design).
        observed: What was seen, in a line.
        hint: Where it failed, what to look at.
        seconds: How long it took.
    """

    check: str
    what: str
    required: bool
    status: str
    observed: str
    hint: str
    seconds: float


class ChecksFailed(AssertionError):
    """Required checks of a mixer do not hold; `outcomes` has all of them."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes = tuple(outcomes)
        lines = [
            f"{each.check}: {each.observed}; look at: {each.hint}" for each in failures(outcomes)
        ]
        super().__init__("\n".join([f"{len(lines)} required checks failed", *lines]))


def check_mixer(
    make: MakeMixer, *, seq_len: int = SEQ_LEN, skip: Collection[str] = ()
) -> list[Outcome]:
    """Run all checks of a mixer; see `docs/checks.md` for what they are.

    Args:
        make: Makes the mixer anew, e.g. `lambda: MyMixer(d_model=16, causal=True)`.
        seq_len: The longest sequence that it is made for.
        skip: Names of checks to leave out.

    Returns:
        What each check found.

    Raises:
        ChecksFailed: A required check failed; an `AssertionError` that names all of them.
        ValueError: `skip` names a check that there is not.
    """
    outcomes = run_checks(make, seq_len=seq_len, skip=skip)
    if failures(outcomes):
        raise ChecksFailed(outcomes)
    return outcomes


def run_checks(
    make: MakeMixer,
    *,
    seq_len: int = SEQ_LEN,
    skip: Collection[str] = (),
    told: Callable[[str], object] = lambda name: None,
) -> list[Outcome]:
    """Like `check_mixer`, without raising; `told` hears each check's name before it starts."""
    subject = MixerUnderTest(make, seq_len)
    mixer = subject.mixer()
    outcomes = []
    for check in _chosen(skip):
        told(check.name)
        outcomes.append(_run(check, subject, mixer))
    return outcomes


def mixer_checks(*makes: MakeMixer, seq_len: int = SEQ_LEN, skip: Collection[str] = ()) -> Any:
    """A pytest decorator: one test for each required check of each mixer.

        @mixer_checks(lambda: MyMixer(d_model=16, causal=True))
        def test_my_mixer(check):
            check()

    Args:
        makes: Each makes a mixer anew.
        seq_len: The longest sequence that they are made for.
        skip: Names of checks to leave out.
    """
    import pytest

    parameters = []
    for make in makes:
        subject = MixerUnderTest(make, seq_len)
        mixer = subject.mixer()
        for check in _chosen(skip):
            if check.required:
                parameters.append(
                    pytest.param(
                        _as_test(check, subject, mixer), id=f"{type(mixer).__name__}-{check.name}"
                    )
                )
    return pytest.mark.parametrize("check", parameters)


def failures(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The required checks that failed."""
    return [each for each in outcomes if each.required and each.status == FAILED]


def _as_test(check: MixerCheck, subject: MixerUnderTest, mixer: Mixer) -> Callable[[], None]:
    def test() -> None:
        import pytest

        outcome = _run(check, subject, mixer)
        if outcome.status in (SKIPPED, EXCEPTED):
            pytest.skip(outcome.observed)
        if outcome.status == FAILED:
            raise Failed(outcome.observed, outcome.hint)

    return test


def _chosen(skip: Collection[str]) -> list[MixerCheck]:
    unknown = sorted(set(skip) - {check.name for check in CHECKS})
    if unknown:
        raise ValueError(f"no check is called {', '.join(unknown)}")
    return [check for check in CHECKS if check.name not in skip]


def _run(check: MixerCheck, subject: MixerUnderTest, mixer: Mixer) -> Outcome:
    clock = time.perf_counter()
    hint = ""
    try:
        status, observed = PASSED, check.function(subject)
    except Skipped as reason:
        status, observed = SKIPPED, str(reason)
    except Failed as error:
        status, observed, hint = FAILED, error.reason, error.hint
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
        status, observed, hint = FAILED, f"{type(error).__name__}: {said}", _place(error)
    declared = mixer.exceptions().get(check.name)
    excepted = declared or inherited_exceptions(mixer).get(check.name)
    if excepted is not None and status == FAILED:
        status, observed, hint = EXCEPTED, f"{excepted} ({observed})", ""
    elif declared is not None and status == PASSED:
        status, observed = FAILED, f"it is excepted ({declared}), yet it passes: {observed}"
        hint = "exceptions()"
    seconds = time.perf_counter() - clock
    return Outcome(check.name, check.what, check.required, status, observed, hint, seconds)


def _place(error: Exception) -> str:
    """The innermost line that is not of PyTorch or of the checks."""
    ours = Path(__file__).parent
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(ours):
            break
        if not {"torch", "numba"} & set(path.parts) and path.is_file():
            return f"{path.name}, line {frame.lineno}, in {frame.name}"
    return "what the exception says"
