"""mixbench: does a sequence mixer beat a tuned baseline, and is its mechanism what it claims?"""

from __future__ import annotations

import sys
from pathlib import Path

from mixbench.version import __version__ as __version__

# Hydra finds plugins only in the namespace package `hydra_plugins`, so ours has to be on the path.
_PLUGINS = str(Path(__file__).parent / "_ext")
if _PLUGINS not in sys.path:
    sys.path.append(_PLUGINS)
