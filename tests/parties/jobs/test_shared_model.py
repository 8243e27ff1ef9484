"""Shared model: model and guarantee are kept for every party, statistics of labels for their owner alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost.fit_quality import FitQuality
from opboost.horizontal.inprivate.training import run_chain
from parties.horizontal.row_table import OWN_ROWS, OwnerRows
from parties.jobs.shared_model import note_own_fit, save_shared_model, withdraw_shared_model
from parties.runs.run_folder import RunFolder
from tests.support.chains import owner_of, recipe


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    (tmp_path / "run.yaml").write_text("party: w0\n")
    found = RunFolder(tmp_path / "run")
    found.create(tmp_path / "run.yaml", party="w0", role="worker")
    return found


class Promise:
    def to_dict(self) -> dict[str, Any]:
        return {"epsilon": 2.0}


class Model:
    guarantee = Promise()
    ensemble = "the trees"


def test_a_model_is_kept_after_its_guarantee(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []

    def save(self: RunFolder, ensemble: Any) -> None:
        found.append((ensemble, self.read_json("guarantee.json")))

    monkeypatch.setattr(RunFolder, "save_ensemble", save)
    save_shared_model(folder, Model())  # type: ignore[arg-type]
    assert found == [("the trees", {"epsilon": 2.0})]


def test_a_model_that_is_withdrawn_leaves_an_unfinished_run(folder: RunFolder) -> None:
    of = recipe(n_rounds=1)
    trees = run_chain([owner_of(of, place) for place in range(3)], n_rounds=1, epsilon=of.epsilon)
    folder.save_ensemble(of.ensemble(trees))
    folder.write_json("guarantee.json", {"epsilon": 2.0})
    for name in ("fit.json", "metrics.json", "report.html", "report.json"):
        folder.write_json(name, {})
    folder.finish(n_rows=3, unconfirmed=["w1"])
    withdraw_shared_model(folder)
    assert (folder.has_model, folder.is_finished) == (False, False)
    assert folder.read_json("meta.json")["party"] == "w0"
    # What was released is paid for.
    assert {path.name for path in folder.path.iterdir()} == {"config.yaml", "meta.json", "guarantee.json"}
    withdraw_shared_model(folder)


def test_labels_that_tell_nothing_leave_empty_metrics(folder: RunFolder) -> None:
    note_own_fit(folder, None)
    assert folder.read_json("metrics.json") == {"own_rows": {}}
    assert folder.load_fits() == ()


def test_a_fit_to_own_rows_is_kept_with_its_metrics(folder: RunFolder) -> None:
    of = recipe(n_rounds=1)
    ensemble = of.ensemble(run_chain([owner_of(of, place) for place in range(3)], n_rounds=1, epsilon=of.epsilon))
    draw = np.random.default_rng(1)
    rows = OwnerRows(schema=None, values=draw.random((50, 3)), labels=(draw.random(50) > 0.5).astype(float))  # type: ignore[arg-type]
    fit = rows.own_fit(ensemble)
    assert isinstance(fit, FitQuality)
    assert fit.basis == OWN_ROWS
    note_own_fit(folder, fit)
    assert folder.read_json("metrics.json") == {"own_rows": fit.metrics}
    (kept,) = folder.load_fits()
    assert kept.metrics == fit.metrics
