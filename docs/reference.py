"""The configuration reference, from `conf/` and the sources, as Markdown.

python docs/reference.py > docs/configuration.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from configuration_keys import (
    Choice,
    Entry,
    choice,
    comparison_keys,
    default_choices,
    entries,
    groups,
    hydra_keys,
    names,
    top_level,
)
from omegaconf import OmegaConf

from mixbench.config.chosen import chosen
from mixbench.config.compose import compose_config
from mixbench.sweeps.study import Study

INTRODUCTION = """\
# Configuration

Every key that a command line or a YAML can set. Made from `conf/` and the sources by `make docs`;
to change a line, change the comment in the YAML or the `Args` of the class.

`key=value` sets a key and `group=NAME` chooses a file of a group; `-m` and several values, as in
`lr=1e-3,3e-3`, make a grid. `--cfg job` shows what a command line composes to and runs nothing,
`mixbench list` what there is to choose from, and `--config-dir DIR` adds a folder of your own with
the same groups. A value `${key}` follows that key. A key that does not exist, or a value of another
type, is an error before anything is written.
"""

SWEEPS = """\
A comparison is described under `sweep`; what else its file sets holds for all of its
runs, which are those of selection, evaluation and ablations ([protocol](protocol.md)).
"""


def main() -> int:
    """Print the page; the exit code is 1 where a key has no description."""
    missing = sorted({entry.key for entry in entries() if not entry.text})
    if missing:
        fix = "write a comment into the YAML, or Args into the docstring"
        print(f"no description of {', '.join(missing)}; {fix}", file=sys.stderr)
        return 1
    print(page(), end="")
    return 0


def page() -> str:
    """The whole page, as Markdown."""
    lines = [INTRODUCTION, "## Top level", "", f"In {link('train')}.", ""]
    lines += ["| group | default | choices |", "| --- | --- | --- |"]
    for group, default in default_choices().items():
        choices = ", ".join(f"`{name}`" for name in names(group))
        lines.append(f"| `{group}` | `{default}` | {choices} |")
    lines += ["", *table(top_level()), ""]
    for group in groups():
        lines += [f"## {group}", "", *(sweeps() if group == "sweep" else choices_of(group))]
    lines += ["## hydra", "", "What of Hydra's own configuration our files set.", ""]
    lines += [*table(hydra_keys()), ""]
    return "\n".join(lines)


def choices_of(group: str) -> Iterator[str]:
    """The files of a group, side by side where they differ in values only."""
    found = [choice(group, name) for name in names(group)]
    keys = {tuple((each.key, each.kind, each.text) for each in one.entries) for one in found}
    more = any(one.target or one.takes or one.sets for one in found)
    if len(found) > 1 and len(keys) == 1 and not more:
        yield from side_by_side(found)
    else:
        for each in found:
            yield from one_by_one(each)


def one_by_one(found: Choice) -> Iterator[str]:
    """The section of one file."""
    yield from (f"### {found.group}={found.name}", "")
    yield f"{found.summary} In {link(f'{found.group}/{found.name}')}."
    if found.target:
        yield f"Builds `{found.target}`."
    if found.takes:
        yield f"Composed with {', '.join(f'`{text}`' for text in found.takes)}."
    if found.sets:
        yield f"Sets {', '.join(f'`{key}: {value}`' for key, value in found.sets.items())}."
    yield ""
    if found.entries:
        yield from (*table(found.entries), "")


def side_by_side(found: Sequence[Choice]) -> Iterator[str]:
    """A table of files, a row each, and one of their keys."""
    first = found[0].entries
    yield f"| choice | what it is | {' | '.join(f'`{entry.key}`' for entry in first)} |"
    yield f"| {' | '.join(['---'] * (len(first) + 2))} |"
    for each in found:
        defaults = [entry.default for entry in each.entries]
        yield row(link(f"{each.group}/{each.name}", each.name), cell(each.summary), *defaults)
    shared = [Entry(each.key, "as chosen", each.kind, each.text) for each in first]
    yield from ("", *table(shared), "")


def sweeps() -> Iterator[str]:
    """The section of the comparisons."""
    yield SWEEPS
    yield "| sweep | what it is | idea | baselines | tasks | trials an arm | runs |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for name in names("sweep"):
        said = cell(choice("sweep", name).summary)
        yield row(link(f"sweep/{name}", name), said, *numbers(name))
    yield from ("", *table(comparison_keys()), "")


def numbers(name: str) -> list[str]:
    """A comparison in numbers; dashes for what is none."""
    cfg = compose_config([f"sweep={name}"])
    if cfg.sweep is None:
        return ["-"] * 5
    node: Any = OmegaConf.to_container(cfg.sweep, resolve=True)
    study = Study(name, node, chosen(cfg.hydra)["dataset"].name)
    trials = dict.fromkeys(str(len(arm.trials)) for arm in study.arms.values())
    sides = [", ".join(part) for part in (study.ideas, study.baselines, study.tasks)]
    return [*sides, ", ".join(trials), str(sum(study.numbers().values()))]


def link(name: str, text: str = "") -> str:
    """A link to a file of conf/."""
    return f"[{text or f'conf/{name}.yaml'}](../conf/{name}.yaml)"


def table(found: Iterable[Entry]) -> Iterator[str]:
    """Keys, a row each."""
    yield "| key | default | type or values | what it is |"
    yield "| --- | --- | --- | --- |"
    for entry in found:
        yield row(f"`{entry.key}`", *map(cell, (entry.default, entry.kind, entry.text)))


def row(*cells: str) -> str:
    """A row of a table."""
    return f"| {' | '.join(cells)} |"


def cell(text: str) -> str:
    """Text for a table's cell: outside of code nothing means anything to Markdown."""
    parts = text.replace("|", "\\|").split("`")
    parts[::2] = [re.sub(r"([*<~\[\]])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


if __name__ == "__main__":
    sys.exit(main())
