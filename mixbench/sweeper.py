"""The sweeper behind `-m`: Hydra's basic grid, checked as a whole first, and a table at the end."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from mixbench.config import check, typed_overrides
from mixbench.errors import RunsFailed
from mixbench.records import RunFolder, folder_of, make_folder, write_json
from mixbench.summary import grid_table, losses, make_console


class GridSweeper(Sweeper):
    """Runs the Cartesian product of all choices and shows the records as one table.

    Each run leaves its record where a single run would, so that a grid takes up what exists. The
    sweep's own folder, `OUTPUT_DIR/sweeps/<time>-<random>`, lists them in `sweep.json`.

    Args:
        params: Choices from the configuration, e.g. `{"lr": "1e-3,3e-3"}`; the command line's
            overrides replace them key by key.

    Raises:
        SettingError: Some job of the grid is misconfigured; nothing has been run or written.
        RunsFailed: Some runs did not complete; the others did.
    """

    def __init__(self, params: dict[str, str] | None) -> None:
        self.params = params or {}

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        self.context = hydra_context
        self.task_function = task_function
        self.base = config

    def sweep(self, arguments: list[str]) -> Any:
        from hydra.core.plugins import Plugins

        texts = [f"{key}={value}" for key, value in self.params.items()] + arguments
        parser = OverridesParser.create(config_loader=self.context.config_loader)
        (jobs,) = BasicSweeper.split_arguments(parser.parse_overrides(texts), None)
        folders = self._check(jobs)

        sweep_folder = self._new_folder()
        OmegaConf.save(self.base, sweep_folder / "multirun.yaml")
        with open_dict(self.base):
            self.base.hydra.sweep.dir = str(sweep_folder)
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=self.context,
            task_function=self.task_function,
            config=self.base,
        )
        returns = launcher.launch(jobs, initial_job_idx=0)

        results = [folder.read_result() for folder in folders]
        finished = list(zip(jobs, results, folders, strict=True))
        runs = [
            {
                "overrides": list(overrides),
                "record": str(folder.path),
                "status": result["status"] if result is not None else None,
            }
            for overrides, result, folder in finished
        ]
        write_json(sweep_folder / "sweep.json", {"runs": runs})
        console = make_console()
        console.print(grid_table(finished))
        console.print(
            f"records: {folders[0].path.parent}/*-IDENTITY, listed in {sweep_folder}/sweep.json",
            highlight=False,
            soft_wrap=True,
        )
        lost = losses(finished)
        for line in lost:
            console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
        if lost:
            raise RunsFailed(f"{len(lost)} of {len(jobs)} runs did not complete")
        return returns

    def _check(self, jobs: Sequence[Sequence[str]]) -> list[RunFolder]:
        """Compose and build every job without running it."""
        from mixbench.experiment import Experiment

        folders = []
        for overrides in jobs:
            cfg = self.context.config_loader.load_sweep_config(self.base, list(overrides))
            typed = typed_overrides(cfg.hydra)
            with open_dict(cfg):
                del cfg["hydra"]
            settings = check(cfg, typed)
            Experiment(settings)
            folders.append(folder_of(settings))
        return folders

    def _new_folder(self) -> Path:
        # Two sweeps of the same second get different random parts, and `new` would refuse a third.
        name = f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        folder = Path(self.base.output_dir).absolute() / "sweeps" / name
        make_folder(folder, new=True)
        return folder
