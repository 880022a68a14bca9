"""Trackio, in local SQLite files."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from mixbench.loggers.base import LoggedRun, Logger, Unfinished, final_numbers, final_words, numbers
from mixbench.records.result import Result

# With these set, Trackio sends elsewhere.
_REMOTE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")


class Trackio(Logger):
    """One Trackio run a run, on this machine only; `trackio sync` sends a project elsewhere.

    The result is logged at the last step. An interrupted run's log is written anew when it goes on.

    Args:
        project: The project, one SQLite file.
        folder: Where Trackio keeps its projects. A process keeps to the first one that it used.
    """

    package = "trackio"
    extra = "trackio"

    def __init__(self, *, project: str, folder: str) -> None:
        self.project = project
        self.folder = folder

    def started(self, run: LoggedRun) -> int:
        with self._set_apart():
            import trackio

            self._unfinished = Unfinished(run, "trackio")
            left = self._unfinished.read()
            if left is not None:
                self._delete(left)
            self._run = trackio.init(
                self.project,
                name=run.name,
                group=run.group,
                config={**run.labels(), **run.config()},
                resume="never",
                embed=False,
                auto_log_cpu=False,
                auto_log_gpu=False,
            )
            self._unfinished.write(self._run.id)
        return 0

    def epoch(self, row: Mapping[str, float]) -> None:
        with self._set_apart():
            self._run.log({"epoch": row["epoch"], **numbers(row)}, step=int(row["step"]))

    def finished(self, result: Result) -> None:
        final = {**final_numbers(result), **final_words(result)}
        with self._set_apart():
            self._run.log(final, step=result.steps or 0)
        self.interrupted()
        self._unfinished.remove()

    def interrupted(self) -> None:
        import trackio

        with self._set_apart():
            trackio.finish()

    def _delete(self, number: str) -> None:
        import trackio

        try:
            runs = trackio.Api().runs(self.project)
        except ValueError:  # another folder than the one it was begun in
            return
        for earlier in runs:
            if earlier.id == number:
                earlier.delete()

    @contextmanager
    def _set_apart(self) -> Iterator[None]:
        """Trackio on this machine alone, without its lines; what it merely warns of is raised.

        Raises:
            RuntimeError: It warned that something could not be written, or uses another folder.
        """
        folder = Path(self.folder).absolute()
        before = {name: os.environ.pop(name, None) for name in (*_REMOTE, "TRACKIO_DIR")}
        os.environ["TRACKIO_DIR"] = str(folder)
        try:
            with (
                redirect_stdout(io.StringIO()),
                warnings.catch_warnings(record=True) as warned,
            ):
                warnings.simplefilter("always")
                from huggingface_hub import constants
                from trackio import utils

                if folder != utils.TRACKIO_DIR:
                    raise RuntimeError(f"this process writes to {utils.TRACKIO_DIR} already")
                # It asks the Hub for the user's name where there is a token.
                online, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
                try:
                    yield
                finally:
                    constants.HF_HUB_OFFLINE = online
        finally:
            del os.environ["TRACKIO_DIR"]
            os.environ.update({name: text for name, text in before.items() if text is not None})
        said = [str(each.message) for each in warned if "rackio" in str(each.message)]
        if said:
            raise RuntimeError(said[0])
