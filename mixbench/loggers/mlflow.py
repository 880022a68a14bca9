"""MLflow, in a SQLite file or on a tracking server."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from filelock import FileLock

from mixbench.core.errors import positive
from mixbench.loggers.base import LoggedRun, Logger, Unfinished, final_numbers, final_words, numbers
from mixbench.records.result import COMPLETED, Result

# What MLflow takes at once.
_MOST_PARAMS = 100


# Making the database takes ten seconds; whoever comes meanwhile waits.
_DATABASE_SECONDS = 120


class Mlflow(Logger):
    """One MLflow run a run: configuration as parameters, history as metrics, the rest as tags.

    Processes take turns at a SQLite file. An interrupted run goes on in its MLflow run, after the
    last step there.

    Args:
        tracking_uri: A SQLite file, `sqlite:///PATH`, or a server's address.
        experiment: The experiment, made if need be.
        timeout: Seconds that a request to a server may take; it is tried twice.
    """

    package = "mlflow"
    extra = "mlflow"

    def __init__(self, *, tracking_uri: str, experiment: str, timeout: float) -> None:
        self.tracking_uri = tracking_uri
        self.experiment = experiment
        positive("timeout", timeout)
        self.timeout = timeout

    def started(self, run: LoggedRun) -> int:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(max(1, round(self.timeout))))
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
        from mlflow import MlflowClient

        for name in ("mlflow", "alembic"):  # they tell how a database is made
            logging.getLogger(name).setLevel(logging.WARNING)
        self._lock: AbstractContextManager[Any] = nullcontext()
        scheme, _, path = self.tracking_uri.partition(":///")
        if scheme == "sqlite":
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(f"{path}.lock", timeout=_DATABASE_SECONDS)
        self._unfinished = Unfinished(run, "mlflow")
        with self._lock:
            self._client = MlflowClient(self.tracking_uri)
            earlier = self._unfinished.read()
            if earlier is not None and self._is_there(earlier):
                self._id = earlier
                self._client.update_run(self._id, status="RUNNING")
                told = self._client.get_metric_history(self._id, "train/loss")
                return max((metric.step for metric in told), default=0)
            tags = {name: str(value) for name, value in run.labels().items()}
            made = self._client.create_run(self._experiment_id(), run_name=run.name, tags=tags)
            self._id = made.info.run_id
            self._unfinished.write(self._id)
            self._log_params(run.config())
        return 0

    def epoch(self, row: Mapping[str, float]) -> None:
        self._log({"epoch": row["epoch"], **numbers(row)}, int(row["step"]), {})

    def finished(self, result: Result) -> None:
        self._log(final_numbers(result), result.steps or 0, final_words(result))
        status = "FINISHED" if result.status == COMPLETED else "FAILED"
        with self._lock:
            self._client.set_terminated(self._id, status)
        self._unfinished.remove()

    def interrupted(self) -> None:
        with self._lock:
            self._client.set_terminated(self._id, "KILLED")

    def _is_there(self, number: str) -> bool:
        from mlflow.exceptions import MlflowException

        try:
            return self._client.get_run(number).info.lifecycle_stage == "active"
        except MlflowException:  # another database than the one it was begun in
            return False

    def _experiment_id(self) -> str:
        found = self._client.get_experiment_by_name(self.experiment)
        if found is not None:
            return found.experiment_id
        place = None  # a server knows its own
        if isinstance(self._lock, FileLock):
            place = str(Path(self._lock.lock_file).with_name("mlartifacts").absolute())
        return self._client.create_experiment(self.experiment, artifact_location=place)

    def _log_params(self, config: Mapping[str, Any]) -> None:
        from mlflow.entities import Param

        params = [Param(name, str(value)) for name, value in config.items()]
        for start in range(0, len(params), _MOST_PARAMS):
            self._client.log_batch(self._id, params=params[start : start + _MOST_PARAMS])

    def _log(self, values: Mapping[str, float], step: int, words: Mapping[str, str]) -> None:
        from mlflow.entities import Metric, RunTag

        now = int(time.time() * 1000)
        metrics = [Metric(name, float(value), now, step) for name, value in values.items()]
        tags = [RunTag(name, value) for name, value in words.items()]
        with self._lock:
            self._client.log_batch(self._id, metrics=metrics, tags=tags)
