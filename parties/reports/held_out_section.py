"""Scores of held-out records, without and with the passive parties, as a run folder keeps them."""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from opboost.uplift import Uplift
from parties.errors import RunFolderError
from parties.reports.page import FigureGrid
from parties.reports.words import metric_name, number
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
    caption = (
        f"{metric_name(found.metric)} of {found.n_rows:,} held-out records, which were neither released nor "
        "trained on in this run"
    )
    if found.n_chose:
        caption += f"; {found.n_chose:,} others chose between models, and are not scored"
    return FigureGrid(caption, ("model", metric_name(found.metric)), tuple(rows))


def _shown(value: float | None) -> str:
    return UNKNOWN if value is None else number(value)
