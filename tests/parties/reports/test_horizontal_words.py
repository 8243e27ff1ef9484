"""Observers of horizontal training: what holds against each, and the caveats that go with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opboost.horizontal.recommended.calibration import going_on
from opboost.horizontal.rows.client_rows import SummedClients
from opboost.rng import seeded
from parties.config.horizontal import WorkerRun
from parties.config.reading import read_run
from parties.config.record_runs import are_new_alone
from parties.ledger.model_ledger import LedgerPosition
from parties.reports.horizontal_words import (
    observers_of,
    observers_section,
    position_section,
    settings_section,
    unknown_workers,
)
from parties.reports.page import FigureGrid, Prose
from tests.support.clinics import Clinics
from tests.support.recommended_owners import ROOT, earlier_of, recipe, records_of


def seen(folder: Path, **training: Any) -> dict[str, Any]:
    clinics = Clinics(folder, **training)
    run = read_run(clinics.write("w0"), WorkerRun)
    promise = clinics.recipe().guarantee(is_secure=True)
    found = {one.who: one for one in observers_of(run.training, promise)}
    assert observers_section(tuple(found.values()), promise).blocks
    return found


def test_noise_in_shares_holds_against_the_coordinator_as_long_as_enough_workers_add_theirs(tmp_path: Path) -> None:
    found = seen(tmp_path)
    assert set(found) == {"the coordinator", "other workers", "whoever reads the model", "the network"}
    assert "as long as 2 of the workers in every sum add their share" in found["the coordinator"].promise
    assert "it knows its own" in found["other workers"].promise
    assert "epsilon" in found["whoever reads the model"].promise


def test_where_one_share_is_all_of_the_noise_a_worker_may_know_all_of_it(tmp_path: Path) -> None:
    found = seen(tmp_path, honest=1)
    assert "as long as 1 worker besides it in every sum adds its share" in found["other workers"].promise
    assert "Where it is the only one that does, epsilon is infinite" in found["other workers"].promise
    (tmp_path / "unknown").mkdir()
    clinics = Clinics(tmp_path / "unknown", honest=1, known_workers=False)
    for name in clinics.runs:
        clinics.runs[name].pop("peers", None)
    promise, run = clinics.recipe().guarantee(is_secure=True), read_run(clinics.write("w0"), WorkerRun)
    assert "epsilon is inf" in str(promise)
    assert promise.to_dict()["weaker"][0]["epsilon"] == "inf"
    # A coordinator that makes up the others is not such a worker.
    assert "infinite" not in unknown_workers(run, promise)
    hub = observers_of(run.training, promise)[0].promise
    assert "infinite" not in hub


def test_an_aggregator_is_trusted_with_exact_sums_and_the_page_says_so(tmp_path: Path) -> None:
    found = seen(tmp_path, noise="aggregator", honest=None)
    assert found["the coordinator"].promise.startswith("no differential privacy")
    assert found["the coordinator"].gradients.startswith("exact sums over at least 2 workers")
    assert found["the coordinator"].histograms == "none are asked for"


def test_what_exact_sums_tell_of_records_that_have_arrived_at_one_worker_alone_is_said(tmp_path: Path) -> None:
    of = going_on(recipe(2, None), earlier_of(2, n_rows=300))
    X, y = records_of(2, 301)

    def sums(*n_rows: int) -> Any:
        rows = SummedClients([of.rows(X[:n], y[:n], rng=seeded(0)) for n in n_rows])
        rows.start_tree(0)
        return rows.totals(ROOT).tolist()

    # Two workers have nothing new: what is added up over all three is the third one's, and here the label of a record.
    assert sums(301, 300, 300) == sums(301)
    assert are_new_alone(of)
    assert not are_new_alone(recipe(2, None))
    found = seen(tmp_path, noise="aggregator", honest=None)
    assert "of a leaf in which one worker alone has records, its own sum" in found["the coordinator"].gradients
    assert "have arrived" not in found["the coordinator"].gradients
    run = read_run(tmp_path / "w0" / "run.yaml", WorkerRun)
    hub = observers_of(run.training, of.guarantee(is_secure=True), are_new_alone=True)[0]
    assert "where one worker alone has any, all sums are its own" in hub.gradients
    assert "of a single record they tell the label and about where every value lies" in hub.gradients


def test_histograms_are_told_where_they_are_asked_for(tmp_path: Path) -> None:
    federated = {"n_estimators": 4, "split_method": "hist"}
    found = seen(tmp_path, recipe="federated", noise="aggregator", honest=None, federated=federated)
    assert found["the coordinator"].histograms.startswith("exact sums")


def test_a_coordinator_that_could_make_up_workers_is_warned_of(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path)
    promise = clinics.recipe().guarantee(is_secure=True)
    run = read_run(clinics.write("w0"), WorkerRun)
    assert unknown_workers(run, promise) == ""
    training = run.training.model_copy(update={"known_workers": False})
    warning = unknown_workers(run.model_copy(update={"training": training}), promise)
    assert "a coordinator that makes up workers sees the sums of one worker alone" in warning


@pytest.mark.parametrize(
    ("is_charged", "is_over", "words"),
    [(True, True, "is charged"), (False, True, "was not charged"), (False, False, "would be charged")],
)
@pytest.mark.parametrize("left", [None, 1.0, -1.0])
def test_a_position_says_what_is_left_and_that_a_run_would_be_refused(
    is_charged: bool, is_over: bool, words: str, left: float | None
) -> None:
    position = LedgerPosition(
        path=Path("/home/x/ledger.sqlite"),
        n_runs=3,
        spent=(1.0, 0.0),
        cost=(2.0, 1e-6),
        remaining=(left, None),
        is_charged=is_charged,
    )
    section = position_section(position, is_over=is_over)
    texts = [block.text for block in section.blocks if isinstance(block, Prose)]
    assert texts[0].startswith("ledger.sqlite has 3 runs")
    assert words in texts[0]
    assert any("would be refused" in text for text in texts) is (left == -1.0 and not is_over)


def test_settings_are_listed_one_by_one() -> None:
    (grid,) = settings_section({"epsilon": 2.0, "sgbdt": {"max_depth": 3}}, 7).blocks
    assert isinstance(grid, FigureGrid)
    assert grid.rows == (("trees", "7"), ("epsilon", "2.0"), ("sgbdt.max_depth", "3"))
