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


def uplift_grid(uplift: Uplift, party: str) -> FigureGrid:
    """The scores as a table."""
    rows = [
        (f"{party} alone", _shown(uplift.alone)),
        ("joint model", _shown(uplift.joint)),
        ("uplift", _shown(uplift.uplift)),
    ]
    if uplift.low is not None and uplift.high is not None:
        rows.append(("uplift, 95 % bootstrap interval", f"{number(uplift.low)} to {number(uplift.high)}"))
    caption = (
        f"{metric_name(uplift.metric)} of {uplift.n_rows:,} held-out records, which were neither released nor "
        "trained on in this run"
    )
    if uplift.n_chose:
        caption += f"; {uplift.n_chose:,} others chose between models, and are not scored"
    return FigureGrid(caption, ("model", metric_name(uplift.metric)), tuple(rows))


def _shown(value: float | None) -> str:
    return UNKNOWN if value is None else number(value)
