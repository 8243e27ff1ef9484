"""Figures of reports as SVG text, each with an alternative text.

Colours are style sheet variables, so that the same drawing serves light and dark pages and print; text stays text.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE_INCHES = (4.8, 2.9)

_DRAWING = Lock()

# Lines whose legend finds room inside the axes; a longer one goes below.
MOST_INSIDE = 2

# Bars that are named; names are cut where they would run into each other.
MOST_NAMED = 7

# Bars that stand apart; more of them touch, since one outline is drawn far faster than forty bars.
MOST_APART = 12

# Colours that stand for variables while matplotlib draws: nothing else in a drawing has them.
_STAND_INS = {"#010101": "var(--ink)", "#020202": "var(--line)"} | {f"#0{k}0{k}ff": f"var(--s{k})" for k in range(1, 7)}
_INK, _LINE, *_SERIES = _STAND_INS

# Besides their colours, lines differ in their strokes.
_STROKES: tuple[Literal["-", "--", "-.", ":"], ...] = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "x")

# What a drawing needs when it stands alone, outside a page that defines the variables.
_OWN_STYLE = (
    "<style>:root{--ink:#1b1f24;--line:#c4cbd3;--s1:#0b62b8;--s2:#b34700;--s3:#1a7f4b;--s4:#8a3ffc;--s5:#a3195b;"
    "--s6:#5c6670}@media (prefers-color-scheme:dark){:root{--ink:#e8ebef;--line:#3a424c;--s1:#6cb2ff;--s2:#ff9d5c;"
    "--s3:#5fd08f;--s4:#c6a1ff;--s5:#ff8fbf;--s6:#aab4bf}}</style>"
)


@dataclass(frozen=True, slots=True)
class Series:
    """A series of points; with `spreads`, each has an error bar of so much up and down."""

    label: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    spreads: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis: label, scale and limits."""

    label: str
    is_log: bool = False
    limits: tuple[float, float] | None = None


def lines(series: Sequence[Series], *, x: Axis, y: Axis, alt: str, diagonal: bool = False) -> str:
    """Line chart, with a legend if there are several lines."""
    drawing = _Drawing(x, y)
    for k, curve in enumerate(series):
        style: dict[str, Any] = {
            "color": _SERIES[k % len(_SERIES)],
            "linestyle": _STROKES[k % len(_STROKES)],
            "linewidth": 1.5,
        }
        marker: dict[str, Any] = (
            {"marker": _MARKERS[k % len(_MARKERS)], "markersize": 3.5} if len(curve.xs) <= 20 else {}
        )
        if curve.spreads:
            drawing.axes.errorbar(
                curve.xs, curve.ys, yerr=curve.spreads, label=curve.label, capsize=2, **style, **marker
            )
        else:
            drawing.axes.plot(curve.xs, curve.ys, label=curve.label, **style, **marker)
    if not x.is_log and all(float(value).is_integer() for curve in series for value in curve.xs):
        drawing.axes.locator_params(axis="x", integer=True)
    if diagonal:
        drawing.axes.plot((0, 1), (0, 1), color=_INK, linewidth=0.8, linestyle=":")
    return drawing.svg(alt, legend=len(series) > 1)


def bars(labels: Sequence[str], heights: Mapping[str, Sequence[float]], *, x: Axis, y: Axis, alt: str) -> str:
    """Bar chart, with steps for a second set of heights over the bars."""
    drawing = _Drawing(x, y)
    positions = range(len(labels))
    edges = [position - 0.5 for position in (*positions, len(labels))]
    (first, *others) = heights.items()
    if len(labels) > MOST_APART:
        drawing.axes.stairs(first[1], edges, fill=True, color=_SERIES[0], alpha=0.45, linewidth=0, label=first[0])
    else:
        drawing.axes.bar(positions, first[1], width=0.9, color=_SERIES[0], alpha=0.45, label=first[0])
    for k, (name, values) in enumerate(others, start=1):
        drawing.axes.stairs(values, edges, color=_SERIES[k], linewidth=1.5, label=name)
    named = [position for position in positions if labels[position]]
    named = named[:: max(1, -(-len(named) // MOST_NAMED))]
    drawing.name("x", named, [_short(labels[position], max(10, 60 // len(named))) for position in named])
    return drawing.svg(alt, legend=bool(others))


def ranking(names: Sequence[str], values: Sequence[float], *, x: Axis, alt: str) -> str:
    """Horizontal bar chart, the first bar on top."""
    drawing = _Drawing(x, Axis(label=""), rows=len(names))
    drawing.axes.barh(range(len(names)), values, color=_SERIES[0], height=0.7)
    drawing.name("y", range(len(names)), list(map(_short, names)))
    drawing.axes.invert_yaxis()
    return drawing.svg(alt, legend=False)


def intervals(
    names: Sequence[str], values: Sequence[float], ends: Sequence[tuple[float, float]], *, x: Axis, alt: str
) -> str:
    """Points with horizontal error bars, the first on top, and a line at zero."""
    drawing = _Drawing(x, Axis(label=""), rows=len(names))
    # The interval of a bootstrap need not hold the value itself, as error bars must.
    for position, (value, interval) in enumerate(zip(values, ends, strict=True)):
        drawing.axes.plot(interval, (position, position), color=_SERIES[0], marker="|")
        drawing.axes.plot(value, position, "o", color=_SERIES[0])
    drawing.axes.axvline(0, color=_INK, linewidth=0.8, linestyle=":")
    drawing.name("y", range(len(names)), list(map(_short, names)))
    drawing.axes.invert_yaxis()
    # Numbers with a sign and four digits would run into each other.
    drawing.axes.locator_params(axis="x", nbins=4)
    return drawing.svg(alt, legend=False)


def _short(name: str, most: int = 26) -> str:
    """The beginning of a name that has no room; tables have it whole."""
    return name if len(name) <= most else f"{name[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def standalone(svg: str) -> str:
    """A drawing as a file of its own."""
    return '<?xml version="1.0" encoding="utf-8"?>\n' + svg.replace("</title>", "</title>" + _OWN_STYLE, 1) + "\n"


class _Drawing:
    """One pair of axes in the reports' style; its settings hold while it is drawn and no longer."""

    def __init__(self, x: Axis, y: Axis, *, rows: int | None = None) -> None:
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter, NullLocator

        self._settings: dict[Any, Any] = {
            "svg.fonttype": "none",
            # A name with two dollar signs is no formula.
            "text.parse_math": False,
            "font.size": 9,
            "font.family": "sans-serif",
            "text.color": _INK,
            "axes.labelcolor": _INK,
            "axes.edgecolor": _LINE,
            "xtick.color": _INK,
            "ytick.color": _INK,
            "grid.color": _LINE,
            "legend.labelcolor": _INK,
            "legend.frameon": False,
            "legend.fontsize": 8,
        }
        height = SIZE_INCHES[1] if rows is None else 0.7 + 0.24 * rows
        with _settings_hold(self._settings):
            self._figure = Figure(figsize=(SIZE_INCHES[0], height))
            left, low = (0.14, 0.47 / height) if rows is None else (0.38, 0.47 / height)
            # Fixed margins: laying out by measuring takes several times as long as drawing.
            self.axes: Axes = self._figure.add_axes((left, low, 0.97 - left, 0.96 - low))
            self.axes.set_axisbelow(True)
            self.axes.grid(visible=True, linewidth=0.5, axis="both" if rows is None else "x")
            self.axes.spines[["top", "right"]].set_visible(False)
            self.axes.set_xlabel(x.label)
            self.axes.set_ylabel(y.label)
            if x.is_log:
                self.axes.set_xscale("log")
            if y.is_log:
                self.axes.set_yscale("log")
            for drawn in (self.axes.xaxis, self.axes.yaxis):
                # Powers of ten as plain numbers; typeset exponents and minor ticks take most of the drawing's time.
                if drawn.get_scale() == "log":
                    drawn.set_minor_locator(NullLocator())
                    drawn.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        self._limits = x.limits, y.limits

    def name(self, axis: Literal["x", "y"], places: Sequence[int], names: Sequence[str]) -> None:
        """Write names at places of an axis."""
        with _settings_hold(self._settings):
            (self.axes.set_xticks if axis == "x" else self.axes.set_yticks)(places, names)

    def svg(self, alt: str, *, legend: bool) -> str:
        """The drawing as an ``svg`` element that scales with its page and is read out as `alt`."""
        x_limits, y_limits = self._limits
        if x_limits is not None:
            self.axes.set_xlim(*x_limits)
        if y_limits is not None:
            self.axes.set_ylim(*y_limits)
        text = io.StringIO()
        # The salt makes names inside the drawing the same for the same drawing, and others in another one.
        with _settings_hold({**self._settings, "svg.hashsalt": alt}):
            is_long = legend and len(self.axes.get_legend_handles_labels()[1]) > MOST_INSIDE
            if is_long:
                self.axes.legend(loc="upper left", bbox_to_anchor=(0.0, -0.2), borderaxespad=0.0)
            elif legend:
                # Without a place that is named, matplotlib warns on a busy machine that it took long to choose one.
                self.axes.legend(loc="best")
            self._figure.savefig(
                text,
                format="svg",
                transparent=True,
                metadata={"Date": None, "Creator": None},
                bbox_inches="tight" if is_long else None,
            )
        return _as_element(text.getvalue(), alt)


@contextmanager
def _settings_hold(settings: dict[Any, Any]) -> Iterator[None]:
    """Matplotlib's settings, of which a process has one set: one thread draws at a time."""
    from matplotlib import rc_context

    with _DRAWING, rc_context(settings):
        yield


def _as_element(document: str, alt: str) -> str:
    svg = document[document.index("<svg") :].rstrip()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    box = re.search(r'viewBox="[^"]+"', svg)
    assert box is not None
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" {box[0]} role="img">'
    svg = opening + f"<title>{escape(alt)}</title>" + svg[svg.index(">") + 1 :]
    for stand_in, variable in _STAND_INS.items():
        svg = svg.replace(stand_in, variable)
    return _unique_names(svg, alt)


def _unique_names(svg: str, alt: str) -> str:
    """Prefix the names inside a drawing, since several drawings share a page."""
    prefix = f"f{hashlib.sha256(alt.encode()).hexdigest()[:8]}-"
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = svg.replace('href="#', f'href="#{prefix}')
    return svg.replace("url(#", f"url(#{prefix}")
