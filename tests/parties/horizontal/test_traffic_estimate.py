"""Traffic estimate: rounds and numbers grow as a recipe says, bytes with the workers, and nothing depends on chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parties.horizontal.traffic_estimate import EstimatedTraffic, estimate_traffic
from tests.support.clinics import Clinics


def estimated(folder: Path, n_workers: int = 3, **training: Any) -> EstimatedTraffic:
    folder.mkdir()
    return estimate_traffic(Clinics(folder, **training).recipe(), n_workers)


def test_a_tree_of_random_splits_is_one_round_of_sums_of_its_leaves(tmp_path: Path) -> None:
    found = estimated(tmp_path / "a", sgbdt={"n_estimators": 6, "max_depth": 2})
    assert (found.n_rounds, found.n_histograms) == (6, 0)
    assert found.n_totals == 6
    assert (found.n_queries, found.paper_rounds, found.paper_bytes) == (None, None, None)
    assert found == estimated(tmp_path / "b", sgbdt={"n_estimators": 6, "max_depth": 2})


def test_twice_the_trees_take_twice_the_rounds_and_numbers(tmp_path: Path) -> None:
    few = estimated(tmp_path / "a", sgbdt={"n_estimators": 4, "max_depth": 2})
    many = estimated(tmp_path / "b", sgbdt={"n_estimators": 8, "max_depth": 2})
    assert (many.n_rounds, many.n_totals) == (2 * few.n_rounds, 2 * few.n_totals)
    assert many.sent_bytes > 1.9 * few.sent_bytes


def test_more_workers_cost_bytes_and_no_rounds(tmp_path: Path) -> None:
    few, many = (estimated(tmp_path / str(n), n) for n in (3, 30))
    assert (few.n_rounds, few.n_numbers) == (many.n_rounds, many.n_numbers)
    assert few.sent_bytes < many.sent_bytes
    assert few.received_bytes < many.received_bytes


def test_the_framework_has_its_publications_count_too(tmp_path: Path) -> None:
    federated = {"n_estimators": 4, "max_depth": 2, "batch_size": 2}
    found = estimated(tmp_path / "a", recipe="federated", noise="aggregator", honest=None, federated=federated)
    assert found.n_queries is not None
    assert found.n_rounds == 2
    assert found.paper_bytes is not None
    assert found.paper_bytes < found.sent_bytes
