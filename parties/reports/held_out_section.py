"""The headline of a run at the active party: scores of held-out records, without and with the passive parties."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import TypeAdapter, ValidationError

from opboost.uplift import Uplift
from parties.errors import RunFolderError
from parties.reports.figures import Axis, intervals
from parties.reports.page import Figure, FigureGrid, PageBlock, PageSection, Prose
from parties.reports.words import number
from parties.runs.run_folder import RunFolder

_UPLIFT = TypeAdapter(Uplift)

UNKNOWN = "not measured"


def load_uplift(folder: RunFolder) -> Uplift | None:
    """Read the scores of held-out records; None where none were held out.

    Raises
    ------
    RunFolderError
    """
    if not (folder.path / "held_out.json").exists():
        return None
    try:
        return _UPLIFT.validate_python(folder.read_json("held_out.json"))
    except ValidationError:
        raise RunFolderError(f"{folder.path / 'held_out.json'} is malformed") from None


def uplift_grid(found: Uplift, party: str) -> FigureGrid:
    """The scores as a table."""
    rows = [
        (f"{party} alone", _shown(found.alone)),
        ("joint model", _shown(found.joint)),
        ("uplift", _shown(found.uplift)),
    ]
    if found.low is not None and found.high is not None:
        rows.append(("uplift, 95 % bootstrap interval", f"{number(found.low)} to {number(found.high)}"))
    caption = f"{found.metric} of {found.n_rows:,} held-out records, which were neither released nor trained on"
    if found.n_chose:
        caption += f"; {found.n_chose:,} others chose between models, and are not scored"
    return FigureGrid(caption, ("model", found.metric), tuple(rows))


def held_out_section(found: Uplift, party: str) -> PageSection:
    """The scores as a section of a page."""
    return PageSection("Held-out records", tuple(_blocks(found, party)))


def _blocks(found: Uplift, party: str) -> Iterator[PageBlock]:
    if found.uplift is None or found.low is None or found.high is None:
        yield Prose(f"The uplift could not be measured: {found.reason}.", is_strong=True)
    else:
        change = "better" if found.uplift >= 0 else "worse"
        certainty = "" if found.low > 0 or found.high < 0 else ", which chance alone explains too"
        yield Prose(
            f"With the passive parties' columns, {found.metric} is {number(abs(found.uplift))} {change} than without "
            f"(95 % interval of the uplift: {number(found.low)} to {number(found.high)}){certainty}.",
            is_strong=True,
        )
        if found.reason:
            yield Prose(f"Some records were left out: {found.reason}.")
    yield uplift_grid(found, party)
    if found.uplift is not None and found.low is not None and found.high is not None:
        yield Figure(
            intervals(
                ["uplift"],
                [found.uplift],
                [(found.low, found.high)],
                x=Axis(label=f"by how much {found.metric} is better"),
                alt=f"Uplift on held-out records: {found.uplift:.4g}, from {found.low:.4g} to {found.high:.4g}",
            ),
            f"Uplift in {found.metric} with its 95 % bootstrap interval. At zero, the passive parties add nothing.",
        )


def _shown(value: float | None) -> str:
    return UNKNOWN if value is None else number(value)
