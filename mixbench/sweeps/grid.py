"""The sweeper behind `-m`: Hydra's basic grid, checked as a whole first, and a table at the end."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser

from mixbench.config.hydra_private import grid_jobs
from mixbench.core.errors import RunsFailed, SettingError
from mixbench.display.console import make_console
from mixbench.display.run_tables import grid_table, losses_table
from mixbench.launch.base import check_launcher
from mixbench.records.folder import RunFolder, relative_record
from mixbench.records.identity import folder_of
from mixbench.records.sweep import Grid, GridRun, write_sweep
from mixbench.sweeps.base import CheckedSweeper, refuse_grid_of_loggers


class GridSweeper(CheckedSweeper):
    """Runs the Cartesian product of all choices and shows the records as one table.

    Args:
        params: Choices from the configuration, e.g. `{"lr": "1e-3,3e-3"}`; the command line's
            overrides replace them key by key.

    Raises:
        SettingError: Some job of the grid is misconfigured; nothing has been run or written.
        RunsFailed: Some runs did not complete; the others did.
    """

    def __init__(self, params: dict[str, str] | None) -> None:
        self.params = params or {}

    def sweep(self, arguments: list[str]) -> Any:
        check_launcher(self.base.hydra)
        texts = [f"{key}={value}" for key, value in self.params.items()] + arguments
        parser = OverridesParser.create(config_loader=self.context.config_loader)
        parsed = parser.parse_overrides(texts)
        refuse_grid_of_loggers(parsed)
        for override in parsed:
            if override.is_interval_sweep():
                raise SettingError(
                    override.get_key_element(),
                    expected="choices, a,b or range(0,3)",
                    got=str(override.input_line).partition("=")[2],
                    fix="hydra/sweeper=optuna searches an interval",
                )
        jobs = grid_jobs(parsed)
        of: dict[RunFolder, Sequence[str]] = {}
        for overrides in jobs:
            cfg = self.compose(overrides)
            if cfg.sweep is not None:
                raise SettingError(
                    "sweep", expected="a comparison by itself, without -m", got=" ".join(overrides)
                )
            folder = folder_of(self.build(cfg))
            if folder in of:
                raise SettingError(
                    "grid",
                    expected="runs that differ",
                    got=f"{' '.join(of[folder])} and {' '.join(overrides)}, which do not",
                )
            of[folder] = overrides

        folders = list(of)
        sweep_folder = self.new_folder("grid")
        returns = self.launch(list(zip(jobs, folders, strict=True)), 0, f"{len(jobs)} runs")

        results = [folder.read_result() for folder in folders]
        finished = list(zip(jobs, results, folders, strict=True))
        runs = [
            GridRun(
                overrides=list(overrides),
                record=relative_record(folder),
                status=None if result is None else result.status,
            )
            for overrides, result, folder in finished
        ]
        write_sweep(sweep_folder, Grid(runs=runs))
        console = make_console()
        console.print(grid_table(finished))
        console.print(
            f"records: {folders[0].path.parent}/*-IDENTITY, listed in {sweep_folder}/sweep.json",
            highlight=False,
            soft_wrap=True,
        )
        lost = losses_table(finished, self.reasons)
        if lost is not None:
            console.print(lost)
            command = shlex.join(["mixbench", "-m", *self.reproducing_arguments(arguments)])
            raise RunsFailed(
                f"{len(lost.rows)} of {len(jobs)} runs did not complete; `{command} rerun=failed` "
                f"retries those that failed{self.first_error()}"
            )
        return returns
