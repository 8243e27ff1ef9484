"""Answers by cells: the grid is a function of the release, is kept for good, and nothing that B reads tells labels."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost import rng
from opboost.desensitize import ColumnMechanism, ReleasedColumn, desensitize, exact
from opboost.mechanism_settings import MechanismSettings
from opboost.preprocess import encode
from opboost.schema import ColumnSchema, Kind
from opboost.split_tests import unpacked
from opboost.trees.boosting import BoostingParameters
from parties.errors import Disagreement
from parties.ledger.budget import Budget
from parties.ledger.ledger_lines import ChargedColumn, Occasion
from parties.ledger.pricing import planned, unpriced
from parties.ledger.release_ledger import Ledger
from parties.reports.ledger_statement import statement
from parties.storage.serialization import router_to_dict
from parties.storage.spool import ArraySpool
from parties.tables.blocks import encode_table, record_names
from parties.vertical import agreed_grid
from parties.vertical.agreed_grid import agree_grid, other_grids
from parties.vertical.party_a import train_jointly
from parties.vertical.party_b import PassiveShare, train
from parties.vertical.prediction_client import predict_jointly, predict_locally
from parties.vertical.prediction_server import AnswerableRecords, Answerer
from parties.vertical.release_offer import ReleasedTable, rank_columns
from parties.vertical.resolution_limit import ResolvedTests
from parties.vertical.simulation import drawn_from, serve, simulate
from protocols.errors import UnexpectedMessage
from protocols.messages.prediction import Ask, RecordStatus
from protocols.messages.vertical import Offer, SplitRanks
from protocols.transport.channel import Channel
from tests.support.codes_column import CodesColumn
from tests.support.processes import finish

MECHANISM = ColumnMechanism(ColumnSchema(name="spend", lower=1, upper=1000), MechanismSettings(epsilon=0.5))


def thresholds_of(
    codes: np.ndarray, book: ResolvedTests, n_cells: int, mechanism: ColumnMechanism = MECHANISM, **changes: bool
) -> list[float]:
    column: Any = CodesColumn(codes)
    cuts, tests = agree_grid([column], [mechanism], book, n_cells=n_cells, share_codes=True, **changes)
    found: list[float] = tests.thresholds.tolist()
    ends = [np.unique(codes)[rank : rank + 2] for rank in cuts[0]]
    assert all(low <= threshold < high for (low, high), threshold in zip(ends, found, strict=False))
    assert len(found) == len(cuts[0]) + 1 <= n_cells
    return found


@pytest.fixture
def book(tmp_path: Path) -> Iterator[ResolvedTests]:
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        yield ResolvedTests(ledger, Occasion(run_id="spring", task="train", peer="bank"))


def test_a_column_is_described_once_for_all_its_categories(
    book: ResolvedTests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The description names every category: once for each of 20,000, it took B longer than its peer waits."""
    names = tuple(f"town {i}" for i in range(50))
    schema = ColumnSchema(name="town", kind=Kind.UNORDERED, categories=names)
    mechanisms = (ColumnMechanism(schema, MechanismSettings(epsilon=3.0)),)
    table = encode_table(pd.DataFrame({"town": [*names, *names]}), mechanisms, ArraySpool())
    drawn_from(rng.seeded(1))(mechanisms, table)
    columns = list(rank_columns(ReleasedTable(mechanisms, table.blocks)))
    described = list[ColumnMechanism]()

    def counted(mechanism: ColumnMechanism, **settings: bool) -> Any:
        described.append(mechanism)
        return unpriced(mechanism, **settings)

    monkeypatch.setattr(agreed_grid, "unpriced", counted)
    agree_grid(columns, mechanisms, book, n_cells=4, share_codes=True)
    assert len(columns) == len(names)
    assert len(described) == 1


def test_cuts_stay_for_good_whatever_is_released_later(book: ResolvedTests, tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    first = thresholds_of(draw.integers(1, 1001, 2000), book, 16)
    assert len(first) == 16
    later = [thresholds_of(draw.integers(1, 600, 3000), book, 16) for _ in range(3)]
    assert all(set(found) <= set(first) for found in later)
    assert book.ledger is not None
    assert book.ledger.n_lines == 2
    with Ledger(tmp_path / "ledger.sqlite") as again:
        assert again.sums.grids == book.ledger.sums.grids
        ((column, _, category, n_cells),) = again.sums.grids
        assert (column, category, n_cells) == ("spend", None, 16)


def test_a_first_release_without_cuts_leaves_the_grid_to_a_later_one(book: ResolvedTests) -> None:
    """A peer with whom one record is common, or a category that nobody was released with, would take a column away."""
    assert thresholds_of(np.array([500]), book, 16) == [math.inf]
    draw = np.random.default_rng(1)
    later = thresholds_of(draw.integers(1, 1001, 2000), book, 16)
    assert len(later) == 16
    assert thresholds_of(np.array([500]), book, 16) == [math.inf]
    assert set(thresholds_of(draw.integers(1, 1001, 2000), book, 16)) <= set(later)


def test_cuts_on_other_points_add_to_what_is_told_and_are_counted_although_their_numbers_are_the_same(
    book: ResolvedTests,
) -> None:
    """A budget that is stated per point has other points: cut 10.5 of 100 and of 1,000 points are not one."""
    ledger = book.ledger
    assert ledger is not None
    coarse = ColumnMechanism(MECHANISM.schema, MechanismSettings(epsilon=0.5, domain_size=100))
    codes = np.random.default_rng(1).integers(1, 101, 2000)
    first = thresholds_of(codes, book, 16, coarse)
    assert other_grids(ledger, [MECHANISM], n_cells=16, is_secure=True) == ["spend"]
    assert other_grids(ledger, [coarse], n_cells=16, is_secure=True) == []
    assert other_grids(ledger, [coarse], n_cells=12, is_secure=True) == ["spend"]
    second = thresholds_of(codes, book, 16)
    assert len(set(first[:-1]) & set(second[:-1])) > 3
    ledger.charge([planned_of(coarse)], {}, book.occasion, Budget())
    (told,) = statement(ledger, Budget()).columns
    assert told.n_cuts == len(first) + len(second) - 2


def test_resolved_split_tests_tell_more_beside_a_grid(book: ResolvedTests) -> None:
    assert book.ledger is not None
    release = planned_of(MECHANISM)
    book.ledger.charge([release], {}, book.occasion, Budget())
    assert other_grids(book.ledger, [MECHANISM], n_cells=16, is_secure=True) == []
    book.ledger.note_tests([(release.family, None, 10.5, False)], book.occasion)
    assert other_grids(book.ledger, [MECHANISM], n_cells=16, is_secure=True) == ["spend"]


def planned_of(mechanism: ColumnMechanism) -> ChargedColumn:
    """The release of a column of one record."""
    (found,) = planned([mechanism], record_names(pd.Index(["k1"], dtype=object)), is_secure=True)
    return found


@pytest.mark.parametrize(("epsilon", "is_secure"), [(math.inf, True), (0.5, False)], ids=["no noise", "a seed"])
def test_cuts_of_a_rehearsal_without_noise_are_not_those_of_a_release(
    book: ResolvedTests, epsilon: float, is_secure: bool
) -> None:
    draw = np.random.default_rng(2)
    exactly = ColumnMechanism(MECHANISM.schema, MechanismSettings(epsilon=epsilon))
    rehearsed = thresholds_of(draw.integers(1, 1001, 2000), book, 16, exactly, is_secure=is_secure)
    released = thresholds_of(draw.integers(1, 1001, 2000), book, 16)
    assert len(set(rehearsed[:-1]) & set(released[:-1])) < 5
    again = thresholds_of(draw.integers(1, 1001, 2000), book, 16, exactly, is_secure=is_secure)
    assert set(again) <= set(rehearsed)


def test_without_a_ledger_every_release_has_cuts_of_its_own() -> None:
    """The twin: what the grid would tell over runs if it were not kept."""
    draw, book = np.random.default_rng(1), ResolvedTests()
    found = {cut for _ in range(4) for cut in thresholds_of(draw.integers(1, 1001, 2000), book, 16)}
    assert len(found) > 40


def test_cells_hold_equal_shares_of_the_exact_codes_where_the_noise_is_known() -> None:
    draw = np.random.default_rng(3)
    mechanism = ColumnMechanism(MECHANISM.schema, MechanismSettings(epsilon=0.01))
    codes = np.clip(np.round(draw.exponential(120, 20_000)), 1, 1000).astype(np.int64)
    noised = mechanism.value.randomise(codes, rng=_bits())
    column, book = CodesColumn(noised), ResolvedTests()
    spread = {}
    for share_codes in (True, False):
        _, tests = agree_grid([column], [mechanism], book, n_cells=16, share_codes=share_codes)  # type: ignore[list-item]
        shares = np.bincount(np.searchsorted(tests.thresholds[:-1], codes), minlength=16) / len(codes)
        spread[share_codes] = float(shares.max())
    assert spread[True] < 0.14 < 0.15 < spread[False]


def _bits() -> Any:
    from opboost import rng

    return rng.seeded(5)


def train_by_cells(trial: Any, *parties: str, **changes: Any) -> tuple[Any, dict[str, PassiveShare]]:
    shares: dict[str, PassiveShare] = {}

    def passive(party: str, channel: Channel) -> None:
        shares[party] = train(trial.passive(party, n_cells=5, **changes), channel)

    calls = {party: lambda channel, party=party: passive(party, channel) for party in parties}
    model = simulate(lambda channels: train_jointly(trial.active(by_cells=True), channels), calls, name="bank")
    return model, shares


@pytest.mark.parametrize("parties", [("shop",), ("shop", "post")])
def test_cells_are_all_that_is_answered_and_score_like_shared_thresholds(trial: Any, parties: tuple[str, ...]) -> None:
    model, shares = train_by_cells(trial, *parties, share_thresholds=True)
    calls = {
        party: lambda channel, party=party: serve(
            shares[party].router,
            trial.ids,
            trial.tables[party],
            channel,
            party=party,
            run_id="spring",
            rng=_bits(),
            may_route=True,
        )
        for party in parties
    }
    predictions, _ = simulate(
        lambda channels: predict_jointly(
            model, trial.ids, {"age": trial.age}, channels, party="bank", run_id="spring", desensitized=False
        ),
        calls,
        name="bank",
    )
    in_clear = pd.concat([trial.tables[party] for party in parties], axis=1)
    np.testing.assert_array_equal(predictions, predict_locally(model, {"age": trial.age}, in_clear))
    # The oracle: own code that reads the cells off the thresholds.
    matrix = np.column_stack(list(_oracle({party: shares[party] for party in parties}, trial)))
    np.testing.assert_array_equal(predictions, model.ensemble.predict(matrix))
    assert {feature.n_cells for feature in model.ensemble.features if feature.owner} == {2, 5}


def test_desensitized_answers_are_the_cells_of_freshly_drawn_codes(trial: Any) -> None:
    """Drawn under the training mechanism at every request; the exact cells, which are kept, serve no such request."""
    model, shares = train_by_cells(trial, "shop", "post")
    router, table = shares["post"].router, trial.tables["post"]
    ((mechanism, encoded),) = router.encode(table)
    bits, drawn = _bits(), []

    def release(mechanisms: Any, columns: Any, ids: pd.Index) -> list[ReleasedColumn]:
        drawn.append([desensitize(one, column, rng=bits) for one, column in zip(mechanisms, columns, strict=True)])
        return drawn[-1]

    answerer = Answerer(router, AnswerableRecords.of(router, trial.ids, table), release=release, may_route=False)
    asks = [answerer.answer(Ask(ids=tuple(trial.ids), desensitized=True)) for _ in range(2)]
    cells = [unpacked(model.ensemble, "post", answers.bits)[:, 0] for answers in asks]
    for found, ((column,),) in zip(cells, zip(drawn, strict=True), strict=True):
        np.testing.assert_array_equal(found, np.searchsorted(router.tests.thresholds[:-1], column.codes))
    assert (cells[0] != cells[1]).any()
    exact_cells = np.searchsorted(router.tests.thresholds[:-1], exact(mechanism, encoded).codes)
    assert (cells[0] != exact_cells).any()
    refused = answerer.answer(Ask(ids=tuple(trial.ids), desensitized=False))
    assert (refused.status == RecordStatus.REFUSED_ROUTED).all()
    assert not refused.bits.any()


def _oracle(shares: dict[str, PassiveShare], trial: Any) -> Iterator[np.ndarray]:
    yield trial.age
    for party, share in shares.items():
        tests = share.router.tests
        exactly = {
            one.schema.name: exact(
                one, encode(trial.tables[party][one.schema.name], one.schema, domain=one.settings.domain)
            )
            for one in share.router.mechanisms
        }
        for source, category in dict.fromkeys(tests.sources):
            mine = [i for i, one in enumerate(tests.sources) if one == (source, category)]
            column = exactly[source]
            codes = column.codes if category is None else column.codes == category
            cells = (codes[:, None] > tests.thresholds[mine][None]).sum(axis=1).astype(float)
            yield np.where(column.is_missing, math.nan, cells)


def test_without_noise_trees_are_those_on_the_same_bins_that_are_asked_for_tests(trial: Any) -> None:
    """Five bins of equal counts are the same bins, whoever chooses them."""
    model, _ = train_by_cells(trial, "post", epsilon=math.inf)
    tested = simulate(
        lambda channels: train_jointly(
            trial.active(parameters=BoostingParameters(n_estimators=4, max_depth=3, max_bin=5)), channels
        ),
        {"post": lambda channel: train(trial.passive("post", epsilon=math.inf), channel)},
        name="bank",
    )
    own = BoostingParameters(n_estimators=4, max_depth=3, max_bin=5)
    by_cells = simulate(
        lambda channels: train_jointly(trial.active(parameters=own, by_cells=True), channels),
        {"post": lambda channel: train(trial.passive("post", epsilon=math.inf, n_cells=5), channel)},
        name="bank",
    )
    values = [[tree.values.tolist() for tree in one.ensemble.trees] for one in (tested, by_cells)]
    assert values[0] == values[1]
    assert model.ensemble.trees
    assert model.routers == {}


@pytest.mark.parametrize(("by_cells", "n_cells"), [(True, None), (False, 5)])
def test_both_sides_must_say_the_same(trial: Any, by_cells: bool, n_cells: int | None) -> None:
    with pytest.raises(Disagreement, match=r"answers: it plans (cells|tests), this party (cells|tests); both must say"):
        simulate(
            lambda channels: train_jointly(trial.active(by_cells=by_cells), channels),
            {"shop": lambda channel: train(trial.passive("shop", n_cells=n_cells), channel)},
            name="bank",
        )


@pytest.mark.parametrize("cuts", [None, (0, 40)])
def test_a_bank_refuses_an_offer_without_a_grid_or_with_cuts_out_of_range(
    trial: Any, monkeypatch: pytest.MonkeyPatch, cuts: tuple[int, ...] | None
) -> None:
    from parties.vertical import party_b

    made = party_b.make_offer

    def broken(*arguments: Any, **changes: Any) -> Offer:
        offer: Offer = made(*arguments, **changes)
        columns = [one.model_copy(update={"cuts": cuts}) for one in offer.columns]
        return offer.model_copy(update={"columns": tuple(columns)})

    monkeypatch.setattr(party_b, "make_offer", broken)
    with pytest.raises(UnexpectedMessage, match=r"than `answers: cells` allows\. Nothing was asked"):
        train_by_cells(trial, "post")


def _all_on_one_column(router: Any) -> Any:
    first = router["tests"][0]["source"]
    return {**router, "tests": [{**one, "source": first, "category": None} for one in router["tests"]]}


def _with_one_test_apart(router: Any) -> Any:
    return {**router, "tests": [*router["tests"][1:], router["tests"][0]]}


def _by_tests(router: Any) -> Any:
    return {**router, "by_cells": False}


@pytest.mark.parametrize("changed", [_all_on_one_column, _with_one_test_apart, _by_tests])
def test_a_bank_refuses_thresholds_of_other_cells_than_were_offered(
    trial: Any, monkeypatch: pytest.MonkeyPatch, changed: Callable[[Any], Any]
) -> None:
    """It would read other bits than such a router answers with, or look behind the last one."""
    from parties.vertical import party_b

    monkeypatch.setattr(party_b, "make_offer", _changing(party_b.make_offer, changed))
    with pytest.raises(UnexpectedMessage, match="do not answer with the cells that were offered"):
        train_by_cells(trial, "shop", share_thresholds=True)


def _changing(make_offer: Callable[..., Offer], changed: Callable[[Any], Any]) -> Callable[..., Offer]:
    def broken(*arguments: Any, **changes: Any) -> Offer:
        offer = make_offer(*arguments, **changes)
        return offer.model_copy(update={"router": changed(offer.router)})

    return broken


def test_a_bank_that_asked_for_tests_refuses_thresholds_of_cells(trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from parties.vertical import party_b

    def as_cells(router: Any) -> Any:
        return {**router_to_dict(router), "by_cells": True}

    monkeypatch.setattr(party_b, "router_to_dict", as_cells)
    with pytest.raises(UnexpectedMessage, match="do not answer with one bit for each test"):
        simulate(
            lambda channels: train_jointly(trial.active(), channels),
            {"shop": lambda channel: train(trial.passive("shop", share_thresholds=True), channel)},
            name="bank",
        )


def test_a_shop_that_answers_by_cells_resolves_no_split_rank(trial: Any) -> None:
    def bank(channels: Any) -> None:
        job = trial.active(by_cells=True)
        (channel,) = channels
        send, channel_send = SplitRanks, channel.send
        empty = np.zeros(0, np.uint32)
        channel.send = lambda message: channel_send(
            send(columns=empty, ranks=empty, missing_left=np.zeros(0, np.bool_)) if message.kind == "done" else message
        )
        train_jointly(job, channels)

    with pytest.raises(Exception, match="'split ranks'"):
        simulate(bank, {"post": lambda channel: train(trial.passive("post", n_cells=5), channel)}, name="bank")


# What both sides make of fresh keys: its size stays the same.
FRESH = ("hello", "id confirmation")


def heard(site: Any, run: str) -> list[tuple[str, int, str]]:
    lines = map(json.loads, (site.path / "runs" / run / "log.jsonl").read_text().splitlines())
    return [
        (line["kind"], line["bytes"], "" if line["kind"] in FRESH else line["sha256"])
        for line in lines
        if line["event"] == "received"
    ]


@pytest.mark.parametrize("answers", ["cells", "tests"])
def test_what_the_shop_reads_in_a_process_of_its_own_is_the_same_for_all_labels(sites: Any, answers: str) -> None:
    """Every byte of training, of tuning once more and of prediction in both modes; the twin are split tests.

    With cells, held-out records choose what of the noised columns trees are grown on, and when to stop. For the twin
    the first training is enough.
    """
    views, by_cells = [], answers == "cells"
    sites.bank.run["correct_noise"] = True
    draw = np.random.default_rng(4)
    labels = [sites.bank.table["y"].to_numpy(), draw.integers(0, 2, len(sites.bank.table))]
    (sites.bank.path / "asked.txt").write_text("\n".join(sites.bank.table["id"][:50]))
    for number, y in enumerate(labels):
        view = []
        for run, depth in (("first", 3), ("tuned", 5))[: 1 + by_cells]:
            for site in (sites.bank, sites.shop):
                site.run |= {"run_id": run, "folder": f"runs/{run}{number}", "answers": answers, "held_out": 0.2}
            sites.shop.run |= {"seed": 7, "ledger": {"path": f"runs/{number}.sqlite"}, "no_privacy": True}
            stops = {"early_stopping_rounds": 2} if by_cells else {}
            sites.bank.run["model"] = {"n_estimators": 5, "max_depth": depth, **stops}
            sites.bank.table = sites.bank.table.assign(y=y)
            ends = finish(sites.bank.start("party-a"), sites.shop.start("party-b"))
            for mode in ("routed", "desensitized") if run == "tuned" else ():
                out = str(sites.bank.path / f"{run}{number}{mode}.csv")
                asked = str(sites.bank.path / "asked.txt")
                bank = sites.bank.start("predict", "--ids", asked, "--mode", mode, "--out", out)
                ends += finish(bank, sites.shop.start("predict"))
            assert {code for code, _, _ in ends} == {0}, ends
            view.append(heard(sites.shop, f"{run}{number}"))
        views.append(view)
    assert [len(part) for part in views[0]] == [len(part) for part in views[1]]
    assert (views[0] == views[1]) is by_cells
    assert ("split ranks" in {kind for part in views[0] for kind, _, _ in part}) is not by_cells
