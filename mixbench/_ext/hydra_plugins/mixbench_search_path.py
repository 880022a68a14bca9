"""Where Hydra looks for what extends its search. It imports this at every start."""

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

from mixbench.core.plugins import plugins


class MixbenchSearchPath(SearchPathPlugin):
    """Puts the configurations of installed packages behind ours."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for name, folder in plugins().items():
            search_path.append(f"mixbench plugin {name}", f"file://{folder}")
