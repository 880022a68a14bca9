"""Errors that are the user's to mend, told apart from programming errors."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import NoReturn


class SettingError(ValueError):
    """A setting is wrong. The command line prints it as one line and exits with code 2.

    Args:
        key: The configuration key as the user would type it, e.g. `mixer.num_heads`.
        expected: What would have been accepted.
        got: What came.
        fix: How to mend it, where that is not plain from `expected`.
    """

    def __init__(self, key: str, *, expected: str, got: object, fix: str = "") -> None:
        self.key = key
        self.expected = expected
        self.got = got
        self.fix = fix
        super().__init__(key, expected, got, fix)

    def __str__(self) -> str:
        got = "an empty string" if self.got == "" else self.got
        got = str(got).lower() if isinstance(got, bool) else got
        line = f"{self.key}: expected {self.expected}, got {got}"
        if self.fix:
            line += f"; {self.fix}"
        return " ".join(line.split())

    def within(self, section: str) -> SettingError:
        """The same error, a bare key placed under `section` (`num_heads` -> `mixer.num_heads`)."""
        if "." in self.key:
            return self
        return SettingError(
            f"{section}.{self.key}", expected=self.expected, got=self.got, fix=self.fix
        )


def at_least(key: str, value: float, bound: float) -> None:
    """Refuse a setting below `bound`.

    Raises:
        SettingError: It is, or it is not a number.
    """
    if not value >= bound:
        raise SettingError(key, expected=f"at least {bound}", got=value)


def positive(key: str, value: float) -> None:
    """Refuse a setting that is not a positive finite number.

    Raises:
        SettingError: It is not.
    """
    if not 0 < value < math.inf:
        raise SettingError(key, expected="a positive number", got=value)


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?` for the known name closest to `name`, or an empty string."""
    found = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"did you mean {found[0]!r}?" if found else ""


def some_of(key: str, names: Iterable[str], known: Iterable[str]) -> list[str]:
    """The names, all of which have to be known ones.

    Raises:
        SettingError: One is not.
    """
    names, known = list(names), list(known)
    for name in names:
        if name not in known:
            raise SettingError(
                key, expected=f"some of {', '.join(known)}", got=name, fix=nearest(name, known)
            )
    return names


def unknown_key(
    key: str, known: Iterable[str], renamed: Mapping[str, str] = MappingProxyType({})
) -> SettingError:
    """The error for a key that is not one of the known ones, which are of the same section.

    Args:
        key: In full.
        known: Keys of its section.
        renamed: Earlier names in the section, and what they are now.
    """
    section, _, name = key.rpartition(".")
    if name in renamed:
        now = f"{section}.{renamed[name]}".strip(".")
        return SettingError(key, expected=f"{now}, as it is called now", got="its earlier name")
    known = list(known)
    return SettingError(
        key,
        expected=f"one of the keys {', '.join(known)}",
        got="an unknown one",
        fix=nearest(name, known),
    )


class Parser(argparse.ArgumentParser):
    """Arguments of a command `mixbench NAME`; wrong ones are a `SettingError` named after it."""

    def error(self, message: str) -> NoReturn:
        command = self.prog.rpartition(" ")[2]
        raise SettingError(command, expected="arguments as --help lists them", got=message)


class RunsFailed(Exception):
    """Runs ended without a result; their records say why. The command line exits with code 1."""


class CannotWrite(RunsFailed):
    """The disk is full or does not let us write; existing records are intact."""

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"cannot write {self.path}: {self.reason}; existing records are "
            "intact; free disk space and rerun to resume"
        )


class RunLockedByAnotherProcess(RunsFailed):
    """Another living process is at this run."""


class JobStopped(RunsFailed):
    """A job of a sweep was told to stop; its checkpoint is on disk.

    Args:
        why: Who told it.
        signum: The signal that stands for it.
    """

    def __init__(self, why: str, signum: int) -> None:
        super().__init__(why, signum)
        self.why = why
        self.signum = signum

    def __str__(self) -> str:
        return f"told to stop: {self.why}"


class JobRaised(RunsFailed):
    """What a job of a sweep raised, as text: the exception itself may not survive the way back.

    Args:
        reason: The exception, in one line.
        trace: Its traceback.
    """

    def __init__(self, reason: str, trace: str) -> None:
        super().__init__(reason, trace)
        self.reason = reason
        self.trace = trace

    def __str__(self) -> str:
        return self.reason


class WorkerLost(JobRaised):
    """A job's process ended without a word: killed, out of memory, or its machine failed."""
