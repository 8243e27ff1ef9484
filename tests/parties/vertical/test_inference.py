"""Attacks through answers: labels that a passive party infers, and values that an active party reconstructs.

Under cells both must fail, under split tests both succeed. `scripts/reproduce/answers.py` runs more trials.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost import rng
from opboost.columns import OwnColumn
from opboost.desensitize import ColumnMechanism, ReleasedColumn, desensitize
from opboost.mechanism_settings import MechanismSettings
from opboost.preprocess import EncodedColumn
from opboost.routing import PackedAnswers, Router, SplitTests, resolve
from opboost.schema import ColumnSchema
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Logistic
from parties.ledger.ledger_lines import Occasion
from parties.ledger.release_ledger import Ledger
from parties.vertical.agreed_grid import agree_grid
from parties.vertical.party_a import train_jointly
from parties.vertical.party_b import train
from parties.vertical.release_job import PassiveJob
from parties.vertical.resolution_limit import ResolvedTests
from parties.vertical.simulation import drawn_from, simulate
from parties.vertical.training_job import ActiveJob
from protocols.messages.message import Message
from protocols.messages.vertical import SplitRanks, Terms
from protocols.transport.channel import Channel
from tests.support.codes_column import CodesColumn

N_RECORDS, N_PROBES, N_KNOWN, N_TRIALS = 120, 1_500, 20, 2


def view_of(labels: np.ndarray, probes: np.ndarray, *, by_cells: bool) -> list[Message]:
    """Everything that a passive party with random columns receives in a training run."""
    names = [f"p{i}" for i in range(N_PROBES)]
    settings = MechanismSettings(epsilon=math.inf, domain_size=2)
    mechanisms = tuple(ColumnMechanism(ColumnSchema(name=name, lower=0, upper=1), settings) for name in names)
    bits = rng.seeded(1)
    passive = PassiveJob(
        party="probe",
        run_id="r",
        id_digest="d",
        features=pd.DataFrame(probes.astype(float), columns=names),
        mechanisms=mechanisms,
        rng=bits,
        release=drawn_from(bits),
        n_cells=2 if by_cells else None,
    )
    active = ActiveJob(
        party="bank",
        run_id="r",
        id_digest="d",
        own=(OwnColumn("own", np.arange(N_RECORDS) % 7.0),),
        labels=labels,
        weights=np.ones(N_RECORDS),
        loss=Logistic(),
        parameters=BoostingParameters(n_estimators=100, max_depth=1),
        by_cells=by_cells,
        agreed={"probe": Terms(columns=probes.shape[1])},
    )
    received: list[Message] = []

    def listen(channel: Channel) -> None:
        receive = channel.receive

        def noting(*arguments: Any, **options: Any) -> Message:
            received.append(receive(*arguments, **options))
            return received[-1]

        channel.receive = noting  # type: ignore[method-assign]
        train(passive, channel)

    simulate(lambda channels: train_jointly(active, channels), {"probe": listen}, name="bank")
    return received


def guessed(probes: np.ndarray, labels: np.ndarray) -> float:
    """Share of the unknown labels that the first singular vector of some columns tells, its sign by the known ones."""
    centred = probes - probes.mean(axis=0)
    _, vectors = np.linalg.eigh(centred @ centred.T)
    agrees = (vectors[:, -1] > 0) == (labels == 1)
    return float((agrees if agrees[:N_KNOWN].mean() >= 0.5 else ~agrees)[N_KNOWN:].mean())


def test_a_passive_party_infers_labels_from_split_ranks_and_none_from_cells() -> None:
    """With cells it has its columns alone and guesses as chance does: of 200 labels within 3 standard errors."""
    shares: dict[bool, list[float]] = {False: [], True: []}
    for trial in range(N_TRIALS):
        draw = np.random.default_rng(trial)
        labels = (draw.random(N_RECORDS) < 0.5).astype(float)
        probes = draw.integers(0, 2, (N_RECORDS, N_PROBES))
        for by_cells, found in shares.items():
            asked = [one.columns for one in view_of(labels, probes, by_cells=by_cells) if isinstance(one, SplitRanks)]
            found.append(guessed(probes[:, np.unique(asked)] if asked else probes, labels))
    n_guessed = N_TRIALS * (N_RECORDS - N_KNOWN)
    assert np.mean(shares[False]) > 0.8
    assert abs(np.mean(shares[True]) - 0.5) < 3 * 0.5 / np.sqrt(n_guessed)


MECHANISM = ColumnMechanism(ColumnSchema(name="spend", lower=1, upper=1000), MechanismSettings(epsilon=0.08))


def codes_left(codes: np.ndarray, runs: list[SplitTests]) -> float:
    """Of an adversary who has the answers of all runs: how many codes agree with a record's, averaged over records."""
    every = np.arange(1, 1001)
    column = ReleasedColumn(MECHANISM.schema, every, np.zeros(1000, np.bool_))
    answers = [PackedAnswers(Router((MECHANISM,), tests)).of({"spend": column}, 1000) for tests in runs]
    _, alike, sizes = np.unique(np.hstack(answers), axis=0, return_inverse=True, return_counts=True)
    return float(sizes[alike.ravel()][codes - 1].mean())


@pytest.mark.parametrize("heavy", [0, 2_000])
def test_an_active_party_reconstructs_no_value_however_many_runs_it_asks_in(tmp_path: Path, heavy: int) -> None:
    """Four runs on other records each, everything asked; the twins: thresholds of all ranks, and grids not kept."""
    draw, kept, anew, tested = np.random.default_rng(heavy), [], [], []
    codes = np.concatenate([np.full(heavy, 40), draw.integers(1, 1001, 4_000)])
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        book = ResolvedTests(ledger, Occasion(run_id="r", task="train", peer="bank"))
        for run in range(4):
            own = draw.permutation(codes)[:3_000]
            encoded = EncodedColumn(own, np.zeros(len(own), np.bool_), 0)
            column = CodesColumn(desensitize(MECHANISM, encoded, rng=rng.seeded(run)).codes)
            for found, books in ((kept, book), (anew, ResolvedTests())):
                _, tests = agree_grid([column], [MECHANISM], books, n_cells=16, share_codes=True)  # type: ignore[list-item]
                found.append(tests)
            ranks = np.arange(column.table.n_ranks - 1, dtype=np.uint32)
            tested.append(resolve([column], np.zeros_like(ranks), ranks, np.zeros(len(ranks), np.bool_)))
    assert codes_left(codes, kept) == codes_left(codes, kept[:1]) > 0.9 * 1000 / 16
    assert codes_left(codes, anew) < 0.65 * 1000 / 16
    assert codes_left(codes, tested) < 1.5
