"""A logger that keeps what it hears, for tests of what any logger is told."""

from __future__ import annotations

import signal

import torch

from mixbench.loggers.base import Logger


class Told(Logger):
    """Keeps what every instance was told in `heard`, raises where it is told to, and meddles.

    Args:
        name: Its name in `heard`.
        fails: The method that raises, or nothing.
        error: What is raised.
        held: The last step that its log holds already.
        meddles: Draw random numbers and take over Ctrl-C in every method.
    """

    heard: list = []  # noqa: RUF012

    def __init__(
        self,
        *,
        name: str = "told",
        fails: str = "",
        error: str = "OSError",
        held: int = 0,
        meddles: bool = False,
    ) -> None:
        self.name, self.fails, self.error = name, fails, error
        self.held, self.meddles = held, meddles
        if fails == "constructor":
            raise RuntimeError("cannot be made")

    def _hear(self, method, told=None):
        self.heard.append((self.name, method, told))
        if self.meddles:
            torch.manual_seed(7)
            torch.rand(3)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if self.fails == method:
            raise {"OSError": OSError, "SystemExit": SystemExit, "ctrl-c": KeyboardInterrupt}[
                self.error
            ](f"no {method}\nand more")

    def started(self, run):
        self._hear("started", run)
        return self.held

    def epoch(self, row):
        self._hear("epoch", dict(row))

    def finished(self, result):
        self._hear("finished", result)

    def interrupted(self):
        self._hear("interrupted")


class Needy(Told):
    """One whose package is nowhere."""

    package = "a_package_that_is_nowhere"
