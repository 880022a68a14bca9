"""The shape of a result, checked when it is read.

Never imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COMPLETED, DIVERGED, FAILED = "completed", "diverged", "failed"


_RESULT_KEYS = {
    "status", "reason", "seed", "started", "names", "config", "code_version", "device", "threads",
    "machine", "versions", "metric", "higher_is_better", "margin", "parameters", "metrics",
    "seconds",
}  # fmt: skip


_COMPLETED_KEYS = {
    "trivial_baseline",
    "diagnostics",
    "probes",
    "state_size",
    "measured_state_size",
    "operations",
    "signature",
}


_CHECK_KEYS = {"name", "layer", "predicted", "observed", "holds"}


_NUMBER = (int, float)


# Of what is read as more than text; a record may come from a stranger.
_TYPES: dict[str, Any] = {
    "status": str, "reason": (str, type(None)), "seed": int, "started": str, "code_version": str,
    "machine": dict, "versions": dict, "metric": str, "higher_is_better": bool, "margin": _NUMBER,
    "state_size": (int, type(None)),
    "measured_state_size": (int, type(None)),
    "operations": dict, "signature": (dict, type(None)), "metrics": dict,
}  # fmt: skip


def is_result(content: Any) -> bool:
    """Whether what was read has the parts that every result has, and completed ones besides."""
    if not isinstance(content, dict) or not content.keys() >= _RESULT_KEYS:
        return False
    config, names = content["config"], content["names"]
    return (
        isinstance(config, dict)
        and all(
            isinstance(config.get(group), dict) and isinstance(config[group].get("_target_"), str)
            for group in ("dataset", "mixer")
        )
        and isinstance(names, dict)
        and all(isinstance(names.get(group), str) for group in ("dataset", "mixer"))
        and all(isinstance(content[key], kind) for key, kind in _TYPES.items() if key in content)
        and all(
            map(
                _is_numbers,
                map(content.get, ("metrics", "trivial_baseline", "parameters", "seconds")),
            )
        )
        and (
            content["status"] != COMPLETED
            or (
                content.keys() >= _COMPLETED_KEYS
                and f"valid/{content['metric']}" in content["metrics"]
                and (not reads_test(config) or f"test/{content['metric']}" in content["metrics"])
                and all(map(_is_numbers, map(content["operations"].get, ("per_token", "per_pair"))))
                and (content["signature"] is None or _is_signature(content["signature"]))
            )
        )
    )


def reads_test(config: Mapping[str, Any]) -> bool:
    """Whether such a run reads the test split, as all did before there was a choice."""
    return bool(config.get("test", True))


def _is_numbers(content: Any) -> bool:
    """Whether it holds nothing but numbers by name, or is not there."""
    return content is None or (
        isinstance(content, dict)
        and all(isinstance(value, (*_NUMBER, type(None))) for value in content.values())
    )


def _is_signature(content: Mapping[str, Any]) -> bool:
    checks, failing = content.get("checks"), content.get("failing")
    return (
        isinstance(content.get("of"), int)
        and isinstance(failing, list)
        and all(isinstance(name, str) for name in failing)
        and isinstance(checks, list)
        and all(isinstance(check, dict) and check.keys() >= _CHECK_KEYS for check in checks)
        and all(isinstance(check["name"], str) for check in checks)
    )
