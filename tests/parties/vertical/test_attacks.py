"""Attacks on what the other side learns, with the bounds that hold them and the twins without these that succeed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from opboost import rng
from opboost.columns import OwnColumn, RankColumn
from opboost.desensitize import ColumnMechanism, desensitize, exact
from opboost.mechanism_settings import MechanismSettings
from opboost.preprocess import EncodedColumn
from opboost.routing import PackedAnswers, Router
from opboost.schema import ColumnSchema
from opboost.split_tests import bind, feature_matrix, list_tests
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Logistic
from opboost.vertical import train
from parties.ledger.ledger_lines import Occasion
from parties.ledger.release_ledger import Ledger
from parties.session.differences import MOST_OFFERED
from parties.vertical.resolution_limit import ResolvedTests
from protocols.errors import UnexpectedMessage
from protocols.messages.vertical import SplitRanks
from tests.support.ranked_columns import RankedColumn, rank

pytestmark = pytest.mark.usefixtures("one_thread")

N_RECORDS, N_TRIALS = 300, 5
TREES = BoostingParameters(n_estimators=30, max_depth=3)


@cache
def guessed_labels(n_columns: int, label_epsilon: float | None, trial: int) -> float:
    """Share of labels that a passive party guesses which offers so many random columns of 0 and 1.

    Columns that trees split on agree with the labels, or with their opposite, more often than others do. So what these
    columns have most in common is the labels; which of the two classes is 1 is given to the attacker.
    """
    draw = np.random.default_rng(trial)
    labels = (draw.random(N_RECORDS) < 0.5).astype(np.float64)
    noised = labels
    if label_epsilon is not None:
        is_kept = draw.random(N_RECORDS) < 1 / (1 + np.exp(-label_epsilon))
        noised = np.where(is_kept, labels, 1 - labels)
    offered = draw.integers(0, 2, (n_columns, N_RECORDS)).astype(np.uint32)
    columns = [OwnColumn("own", labels + draw.normal(size=N_RECORDS))]
    columns += [RankColumn("b", j, f"c{j}", ranks, 2) for j, ranks in enumerate(offered)]  # type: ignore[misc]
    leaf_labels = None if label_epsilon is None else labels
    trained = train(
        columns, noised, np.ones(N_RECORDS), loss=Logistic(), parameters=TREES, seed=0, leaf_labels=leaf_labels
    )
    seen = offered[np.unique(list_tests(trained)["b"].columns)].astype(np.float64)
    directions = np.linalg.svd((seen - seen.mean(axis=1, keepdims=True)).T, full_matrices=False)[0]
    right = float(((directions[:, 0] > 0) == labels).mean())
    return max(right, 1 - right)


def test_random_columns_that_trees_split_on_tell_labels() -> None:
    """The broken twin of the two tests below: many columns, and trees that are grown on the true labels."""
    found = [guessed_labels(6000, None, trial) for trial in range(N_TRIALS)]
    assert np.mean(found) > 0.75


def test_under_label_epsilon_no_more_labels_are_guessed_than_it_allows() -> None:
    found = [guessed_labels(6000, 1.0, trial) for trial in range(N_TRIALS)]
    # With the noised labels themselves e / (1 + e) = 73 % would be right.
    n_labels = N_TRIALS * N_RECORDS
    bound = np.e / (1 + np.e)
    assert np.mean(found) <= bound + 2 * np.sqrt(bound * (1 - bound) / n_labels)
    exact_labels = [guessed_labels(6000, None, trial) for trial in range(2)]
    assert np.mean(found) < np.mean(exact_labels) - 0.05


def test_as_many_columns_as_are_taken_without_an_agreement_tell_less() -> None:
    found = [guessed_labels(MOST_OFFERED, None, trial) for trial in range(N_TRIALS)]
    assert np.mean(found) < 0.7


N_FEW, N_EACH, N_OWNERS, N_KNOWN, N_POOLED = 120, 250, 6, 20, 3


def clustered(spaces: np.ndarray, labels: np.ndarray) -> float:
    """Share of the unknown labels that clusters of records tell, in the manner of ID2Graph (arXiv 2307.10318).

    Records are the more alike, the more instance spaces they share. The graph of these likenesses is cut in two by its
    spectrum, and known labels say which part is which.

    Parameters
    ----------
    spaces : ndarray of bool, shape (n_records, n_spaces)
    labels : ndarray
        Of which the first are known.
    """
    shared = spaces.astype(float) @ spaces.T
    root = 1 / np.sqrt(shared.sum(axis=1))
    agrees = (np.linalg.eigh(root[:, None] * shared * root)[1][:, -2] > 0) == (labels == 1)
    return float((agrees if agrees[:N_KNOWN].mean() >= 0.5 else ~agrees)[N_KNOWN:].mean())


def pooled(trial: int, *, by_cells: bool) -> tuple[float, float]:
    """What a chain of passive parties with random columns infers from what they read together, and the first alone."""
    draw = np.random.default_rng(trial)
    labels = (draw.random(N_FEW) < 0.5).astype(np.float64)
    offered = draw.integers(0, 2, (N_OWNERS, N_EACH, N_FEW)).astype(np.uint32)
    cuts = np.zeros(1, np.int64) if by_cells else None
    columns = [OwnColumn("own", labels + draw.normal(size=N_FEW))]
    for owner, own in enumerate(offered):
        columns += [RankColumn(f"b{owner}", j, f"c{owner} {j}", one, 2, cuts=cuts) for j, one in enumerate(own)]  # type: ignore[misc]
    trees = replace(TREES, n_estimators=15)
    trained = train(columns, labels, np.ones(N_FEW), loss=Logistic(), parameters=trees, seed=0)
    asked = [np.unique(listed.columns) for listed in list_tests(trained).values()]
    # Who reads nothing has its columns alone.
    seen = [own[mine] if len(mine) else own for own, mine in zip(offered, asked, strict=True)]
    together = np.concatenate(seen).astype(np.bool_)
    return tuple(clustered(np.hstack([one.T, ~one.T]), labels) for one in (together, seen[0].astype(np.bool_)))  # type: ignore[return-value]


def test_parties_that_pool_what_they_read_infer_labels_from_split_tests_and_none_from_cells() -> None:
    """Each offers few columns; so the number that one party may offer bounds no chain of them under split tests."""
    n_guessed = N_POOLED * (N_FEW - N_KNOWN)
    for by_cells in (False, True):
        together, alone = np.mean([pooled(trial, by_cells=by_cells) for trial in range(N_POOLED)], axis=0)
        if by_cells:
            assert abs(together - 0.5) < 3 * 0.5 / np.sqrt(n_guessed)
        else:
            assert together > 0.7
            assert alone < together - 0.1


def test_instance_spaces_tell_labels_and_cells_do_not() -> None:
    """The twin are the records of each leaf, which SecureBoost tells its passive parties; nobody is told them here."""
    told, cells = [], []
    for trial in range(N_POOLED):
        draw = np.random.default_rng(trial)
        labels = (draw.random(N_FEW) < 0.5).astype(np.float64)
        ranks = draw.integers(0, 16, (5, N_FEW)).astype(np.uint32)
        own = OwnColumn("own", labels + draw.normal(size=N_FEW) / 2)
        columns = [RankColumn("b", j, f"c{j}", one, 16, cuts=np.arange(15)) for j, one in enumerate(ranks)]
        trained = train([own, *columns], labels, np.ones(N_FEW), loss=Logistic(), parameters=TREES, seed=0)
        ensemble = bind(trained, list_tests(trained))
        matrix = feature_matrix(ensemble, {"own": own.values}, {"b": ranks.T.astype(float)}, N_FEW)
        told.append(clustered(np.hstack([one[:, None] == np.unique(one) for one in ensemble.leaves(matrix).T]), labels))
        sides = ranks.T[:, :, None] < np.arange(1, 16)
        cells.append(clustered(np.concatenate([sides, ~sides], axis=2).reshape(N_FEW, -1), labels))
    assert np.mean(told) > 0.75
    assert abs(np.mean(cells) - 0.5) < 3 * 0.5 / np.sqrt(N_POOLED * (N_FEW - N_KNOWN))


DOMAIN, RUNS, TESTS = 1000, 9, 100
MECHANISM = ColumnMechanism(
    ColumnSchema(name="spend", lower=0, upper=999), MechanismSettings(epsilon=0.08, domain_size=DOMAIN)
)


def released_column() -> RankedColumn:
    codes = np.random.default_rng(1).integers(1, DOMAIN + 1, 3000)
    released = desensitize(MECHANISM, EncodedColumn(codes, np.zeros(len(codes), np.bool_), 0), rng=rng.seeded(1))
    (column,) = rank(released)
    return column


def codes_left(ledgers: Sequence[Ledger], agreed: int | None) -> tuple[float, int]:
    """Codes of a value that answers leave possible, on average, to an A that asks for other tests in every run.

    Returns
    -------
    codes : float
    n_refused : int
        Runs whose tests were not resolved.
    """
    column, n_refused, thresholds = released_column(), 0, set[float]()
    every = np.random.default_rng(2).permutation(column.table.n_ranks - 1)
    values = np.arange(1, DOMAIN + 1)
    asked = exact(MECHANISM, EncodedColumn(values, np.zeros(DOMAIN, np.bool_), 0))
    answers: list[np.ndarray] = []
    for run in range(RUNS):
        ranks = np.sort(every[run * TESTS : (run + 1) * TESTS]).astype(np.uint32)
        wanted = SplitRanks(
            columns=np.zeros(len(ranks), np.uint32), ranks=ranks, missing_left=np.zeros(len(ranks), np.bool_)
        )
        resolved = ResolvedTests(ledgers[run % len(ledgers)], Occasion(run_id=f"run{run}", task="train", peer="bank"))
        try:
            tests = resolved.resolve(
                wanted, [column], [MECHANISM], is_secure=True, most=TESTS, agreed=agreed, peer="bank"
            )
        except UnexpectedMessage:
            n_refused += 1
            continue
        thresholds.update(tests.thresholds.tolist())
        packed = PackedAnswers(Router((MECHANISM,), tests)).of({"spend": asked}, DOMAIN)
        answers.append(packed)
    # Values with the same answers in all runs are what A cannot tell apart.
    _, which, counts = np.unique(np.concatenate(answers, axis=1), axis=0, return_inverse=True, return_counts=True)
    return float(counts[which.ravel()].mean()), n_refused


@pytest.mark.parametrize("agreed", [TESTS, None], ids=["agreed", "of one model"])
def test_many_runs_leave_as_many_codes_as_the_tests_of_one(tmp_path: Path, agreed: int | None) -> None:
    """As many as were agreed on, or else as one model can make."""
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        left, n_refused = codes_left([ledger], agreed=agreed)
    assert n_refused == RUNS - 1
    # So many thresholds leave a value so many codes on average, at least, wherever they lie.
    assert left >= DOMAIN / (TESTS + 1)


def test_runs_that_count_each_for_itself_tell_values_to_a_code_or_two(tmp_path: Path) -> None:
    """The broken twin: every run has a ledger of its own."""
    with ExitStack() as stack:
        ledgers = [stack.enter_context(Ledger(tmp_path / f"{run}.sqlite")) for run in range(RUNS)]
        left, n_refused = codes_left(ledgers, agreed=TESTS)
    assert n_refused == 0
    assert left < 2
