"""Matplotlib's SVG made fit for the page: theme colours, hover texts, no script."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from mixbench.report.canvas import BAND, COLOURS, INK, MUTED, Tooltips

_SVG = "{http://www.w3.org/2000/svg}"


def themed_svg(svg: bytes, tooltips: Tooltips, prefix: str) -> str:
    """Matplotlib's SVG without what belongs to a file of its own, in the page's colours."""
    root = ElementTree.fromstring(svg)
    for drop in (f"{_SVG}metadata", f"{_SVG}style"):
        for parent in root.iter():
            for child in parent.findall(drop):
                parent.remove(child)
    for gid, titles in tooltips.items():
        (group,) = root.iterfind(f".//{_SVG}g[@id='{gid}']")
        markers = list(group.iter(f"{_SVG}use"))
        for marker, title in zip(markers, titles, strict=True):
            ElementTree.SubElement(marker, "title").text = title
        styles = {marker.attrib.pop("style", "") for marker in markers}
        if len(styles) == 1:  # said once for all
            group.set("style", styles.pop())
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        attributes = {
            key.rpartition("}")[2]: _rounded(key, value) for key, value in element.attrib.items()
        }
        element.attrib.clear()
        element.attrib.update(attributes)
        if "style" in attributes:
            element.set("style", _themed(attributes["style"]))
    used = set()
    for element in root.iter():
        for key in ("href", "clip-path"):
            found = re.search(r"#([\w-]+)", element.get(key, ""))
            if found:
                used.add(found[1])
                element.set(key, element.get(key, "").replace("#", f"#{prefix}-"))
    for element in root.iter():
        name = element.attrib.pop("id", None)
        if name in used:
            element.set("id", f"{prefix}-{name}")
    width, height = root.attrib["viewBox"].split()[2:]
    root.attrib.clear()
    root.attrib.update({"viewBox": f"0 0 {width} {height}", "aria-hidden": "true"})
    return ElementTree.tostring(root, encoding="unicode")


def _rounded(key: str, value: str) -> str:
    """Coordinates to a hundredth of a point."""
    if key in ("d", "x", "y", "transform"):
        return re.sub(r"(\.\d\d)\d+", r"\1", value)
    return value


def _themed(style: str) -> str:
    return re.sub(r"#[0-9a-f]{6}", lambda found: _VARIABLES.get(found[0], found[0]), style)


_VARIABLES = {
    **{colour.lower(): f"var(--a{i})" for i, colour in enumerate(COLOURS)},
    INK.lower(): "var(--ink)",
    MUTED.lower(): "var(--muted)",
    BAND.lower(): "var(--band)",
}
