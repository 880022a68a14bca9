"""What a class that a configuration names may say about its own keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from mixbench.core.files import named_files


class Configured:
    """Base of mixers and datasets.

    Attributes:
        renamed: Earlier names of constructor arguments, each with the one it has now.
    """

    renamed: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @classmethod
    def files_read(cls, arguments: Mapping[str, Any]) -> list[Path]:
        """The files that it reads if built with these arguments; their contents identify a run.

        By default those that an argument names. Say so here if there are others.
        """
        return named_files(arguments)
