"""Shared model: what each party of horizontal training keeps of a finished run."""

from __future__ import annotations

from opboost.fit_quality import FitQuality
from parties.horizontal.coordinator import SharedModel
from parties.runs.run_folder import RunFolder
from parties.storage.paths import writing


def save_shared_model(folder: RunFolder, model: SharedModel) -> None:
    """Keep a model and its guarantee."""
    folder.write_json("guarantee.json", model.guarantee.to_dict())
    folder.save_ensemble(model.ensemble)


def withdraw_shared_model(folder: RunFolder) -> None:
    """Remove a model that an earlier process of the run may have kept, what tells of it, and the note of its end.

    The guarantee stays: what was released for the model is released.
    """
    with writing(folder.path):
        for name in ("model.json", "fit.json", "metrics.json", "report.html", "report.json"):
            (folder.path / name).unlink(missing_ok=True)
    folder.write_json("meta.json", {**folder.read_json("meta.json"), "finished": None})


def note_own_fit(folder: RunFolder, fit: FitQuality | None) -> None:
    """Keep how the model fits an owner's own rows; both files are statistics of its labels and stay with it."""
    if fit is not None:
        folder.note_fit(fit)
    folder.write_json("metrics.json", {"own_rows": {} if fit is None else fit.metrics})
