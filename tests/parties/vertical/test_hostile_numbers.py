"""A peer's numbers, lengths and texts are compared with what this party knows before they cost memory or a file."""

from __future__ import annotations

import hashlib
import math
import re
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost.privacy.guarantee import Guarantee
from parties.errors import ConfigError, Disagreement
from parties.horizontal.first_messages import term_differences
from parties.ledger.release_ledger import Ledger
from parties.storage.serialization import guarantee_from_dict, router_from_dict
from parties.vertical import agreed_grid, party_b
from parties.vertical.party_a import train_jointly
from parties.vertical.release_offer import offer_digest
from parties.vertical.resolution_limit import ResolvedTests
from protocols.errors import UnexpectedMessage
from protocols.messages.message import Message
from protocols.messages.vertical import (
    Done,
    Held,
    Hello,
    Offer,
    OfferedColumn,
    RankChunk,
    Role,
    SplitRanks,
    Task,
    Terms,
    Thresholds,
)
from protocols.transport.channel import Channel
from tests.support.promises import COLUMN
from tests.support.recital import PROOF, PROVED, Recital

N_ROWS = 300
COLUMN_PROMISE = replace(COLUMN, column="column 0", domain_loss=99.9)
GUARANTEE = Guarantee(
    notion="dLDP",
    epsilon=1.0,
    domain_loss=2.0,
    unit="u",
    neighbours="n",
    protected="p",
    not_protected=("q",),
    columns=(COLUMN_PROMISE,),
).to_dict()
RANKS = (np.arange(N_ROWS) % 3).astype(np.uint8)
COLUMN = OfferedColumn(
    name="c0",
    n_ranks=3,
    has_missing=False,
    digest=hashlib.sha256(RANKS).hexdigest(),
    mechanism="global",
    law="clamped",
    epsilon=0.1,
)
SHOP = Hello(
    role=Role.PASSIVE,
    party="shop",
    run_id="spring",
    task=Task.TRAIN,
    n_rows=N_ROWS,
    id_point=PROOF.point,
    names=("c0",),
)
BANK = Hello(
    role=Role.ACTIVE,
    party="bank",
    run_id="spring",
    task=Task.TRAIN,
    n_rows=N_ROWS,
    id_point=PROOF.point,
    plan=Terms(tests=2**32 - 1),
)


def release(guarantee: Any = GUARANTEE) -> list[Message]:
    return [SHOP, PROVED, Offer(columns=(COLUMN,), guarantee=guarantee), RankChunk(column=0, start=0, ranks=RANKS)]


def refusal(call: Callable[[Channel], Any], peer: str, script: Sequence[Message]) -> tuple[Exception, Recital]:
    """How a party ends with a peer that recites a script, and what it said to it."""
    channel = Recital(peer, script)
    try:
        call(channel)
    except Exception as error:
        return error, channel
    raise AssertionError("nothing was refused")


def changed(document: Any, path: Sequence[str | int], value: object) -> Any:
    if not path:
        return value
    items = dict(document) if isinstance(document, dict) else list(document)
    items[path[0]] = changed(document[path[0]], path[1:], value)
    return items


LOSSES: list[list[str | int]] = [
    ["epsilon"],
    ["domain_loss"],
    ["columns", 0, "epsilon"],
    ["columns", 0, "domain_loss"],
    ["columns", 0, "missing_epsilon"],
    ["columns", 0, "parameters", "epsilon"],
]
TEXTS: list[list[str | int]] = [["protected"], ["not_protected", 0], ["columns", 0, "unit"], ["columns", 0, "column"]]


def test_the_release_that_is_varied_below_is_taken(trial: Any) -> None:
    _, channel = refusal(lambda channel: train_jointly(trial.active(), [channel]), "shop", release())
    assert [message.kind for message in channel.heard] == ["hello", "id confirmation", "split ranks", "abort"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *((path, value) for path in LOSSES for value in (math.nan, "nan")),
        *((path, -1.0) for path in LOSSES),
        *((path, value) for path in TEXTS for value in ("x" * 100_000, "\x1b[2J")),
        (["columns"], [GUARANTEE["columns"][0]] * 2),
        (["not_protected"], ["x"] * 10_000),
        (["columns", 0, "parameters"], {str(i): 1.0 for i in range(1000)}),
        (["columns"], [{}] * 10_000),
        (["columns", 0, "parameters"], {str(i): "x" for i in range(10_000)}),
        # A report names the categories of a column one by one.
        *((["columns", 0, "parameters"], {"n_categories": n}) for n in (0.0, 1.5, 2.0, 1e9, 1e30, "inf")),
        (["columns", 0, "mechanism"], "randomised_response"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_offer_whose_guarantee_could_not_be_kept_is_refused_before_a_rank_is_taken(
    trial: Any, path: list[str | int], value: object
) -> None:
    script = release(changed(GUARANTEE, path, value))
    error, channel = refusal(lambda channel: train_jointly(trial.active(), [channel]), "shop", script)
    assert isinstance(error, UnexpectedMessage), error
    assert "guarantee" in str(error)
    assert [message.kind for message in channel.heard] == ["hello", "id confirmation", "abort"]
    assert str(error).isprintable()
    assert len(str(error)) < 500
    # Every wrong place takes memory and time.
    assert not re.search(r"\d{3,} places", str(error))


def test_a_column_without_a_rank_needs_a_number_of_values_too(trial: Any) -> None:
    """A finished run's report had a traceback in place of a page: it counts the values of every column."""
    ranks = np.zeros(N_ROWS, np.uint8)
    digest = hashlib.sha256(ranks).hexdigest()
    column = COLUMN.model_copy(update={"n_ranks": 0, "has_missing": True, "digest": digest})
    guarantee = changed(GUARANTEE, ["columns", 0, "parameters"], {"epsilon": 0.1})
    script = [SHOP, PROVED, Offer(columns=(column,), guarantee=guarantee), RankChunk(column=0, start=0, ranks=ranks)]
    error, channel = refusal(lambda channel: train_jointly(trial.active(), [channel]), "shop", script)
    assert str(error) == (
        "shop offers 0 ranks in column 0, and its guarantee is for no number of values. Nothing was asked"
    )
    assert [message.kind for message in channel.heard] == ["hello", "id confirmation", "abort"]


def test_a_guarantee_of_another_loss_than_was_greeted_with_is_refused(trial: Any) -> None:
    hello = SHOP.model_copy(update={"plan": Terms(total_epsilon=0.5)})
    error, bank = refusal(lambda channel: train_jointly(trial.active(), [channel]), "shop", [hello, *release()[1:]])
    assert str(error) == (
        "shop sent a guarantee with an epsilon of 1 for all columns; its greeting said 0.5. Nothing was asked"
    )
    assert [message.kind for message in bank.heard] == ["hello", "id confirmation", "abort"]


def test_what_was_released_without_noise_keeps_an_infinite_loss() -> None:
    whole = changed(changed(GUARANTEE, ["epsilon"], "inf"), ["columns", 0, "parameters", "epsilon"], "inf")
    assert guarantee_from_dict(whole).columns[0].parameters["epsilon"] == math.inf


@pytest.mark.parametrize("n_rows", [0, N_ROWS - 1, N_ROWS + 1, 2**32 - 1])
def test_another_number_of_records_with_the_same_digest_is_refused_on_both_sides(trial: Any, n_rows: int) -> None:
    told = SHOP.model_copy(update={"n_rows": n_rows})
    error, _ = refusal(lambda channel: train_jointly(trial.active(), [channel]), "shop", [told])
    assert isinstance(error, Disagreement), error
    told = BANK.model_copy(update={"n_rows": n_rows})
    error, channel = refusal(lambda channel: party_b.train(trial.passive("shop"), channel), "bank", [told])
    assert isinstance(error, Disagreement), error
    assert [message.kind for message in channel.heard] == ["hello", "abort"]


def asked(n: int, *, column: int = 0) -> SplitRanks:
    """So many distinct tests, in as few bytes as a message can have them."""
    return SplitRanks(
        columns=np.full(n, column, np.uint32), ranks=np.arange(n, dtype=np.uint32), missing_left=np.zeros(n, np.bool_)
    )


# The shop of the trial releases five columns, the first two of 33 ranks, three indicators of 2.
MOST = 2 * (2 * 33 + 3 * 2)


@pytest.mark.parametrize("wanted", [asked(1 << 20), asked(MOST + 1), asked(1 << 20, column=4_000_000_000)])
def test_more_tests_than_the_released_ranks_allow_cost_neither_memory_nor_time(
    trial: Any, tmp_path: Path, wanted: SplitRanks
) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    job = trial.passive("shop", epsilon=math.inf, resolved=ResolvedTests(ledger))
    script = [BANK, PROVED, wanted, Done()]
    tracemalloc.start()
    began = time.process_time()
    error, channel = refusal(lambda channel: party_b.train(job, channel), "bank", script)
    took, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(error, UnexpectedMessage), error
    assert f"asked for {len(wanted.ranks)} split tests" in str(error)
    assert f"at most {MOST}" in str(error)
    assert ledger.n_lines == 1
    ledger._lines.close()
    assert "thresholds" not in [message.kind for message in channel.heard]
    assert peak < 40 << 20
    assert took < 5


def test_a_test_that_is_asked_twice_in_one_message_is_refused(trial: Any, tmp_path: Path) -> None:
    twice = SplitRanks(columns=np.zeros(2, "<u4"), ranks=np.zeros(2, "<u4"), missing_left=np.zeros(2, np.bool_))
    ledger = Ledger(tmp_path / "ledger.sqlite")
    job = trial.passive("shop", epsilon=math.inf, resolved=ResolvedTests(ledger))
    error, _ = refusal(lambda channel: party_b.train(job, channel), "bank", [BANK, PROVED, twice, Done()])
    assert isinstance(error, UnexpectedMessage)
    assert "more than once" in str(error)
    ledger._lines.close()


def test_tests_that_do_not_exist_are_not_counted(trial: Any, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite")
    job = trial.passive("shop", epsilon=math.inf, resolved=ResolvedTests(ledger))
    refusal(lambda channel: party_b.train(job, channel), "bank", [BANK, PROVED, asked(33), Done()])
    assert ledger.n_lines == 1
    ledger._lines.close()


@pytest.mark.parametrize(("column", "row"), [(5, 1), (6, 0), (0, N_ROWS + 1), (2**32 - 1, 0)])
def test_whoever_holds_more_than_there_is_is_sent_nothing(trial: Any, column: int, row: int) -> None:
    def take_part(channel: Channel) -> Any:
        return party_b.train(trial.passive("shop", epsilon=math.inf), channel)

    _, channel = refusal(take_part, "bank", [BANK, PROVED])
    offer = channel.heard[2]
    assert isinstance(offer, Offer)
    for held, is_refused in (((column, row), True), ((5, 0), False), ((4, N_ROWS), False)):
        claim = Held(offer=offer_digest(offer), column=held[0], row=held[1])
        hello = BANK.model_copy(update={"held": claim})
        error, channel = refusal(take_part, "bank", [hello, PROVED, asked(2)])
        assert isinstance(error, UnexpectedMessage) is is_refused, error
        kinds = [message.kind for message in channel.heard]
        assert kinds == (
            ["hello", "id confirmation", "abort"]
            if is_refused
            else ["hello", "id confirmation", "offer", "thresholds", "abort"]
        )


def shared(n_tests: int, **settings: Any) -> dict[str, Any]:
    """What answers so many tests on one column of these settings."""
    column = {"name": "spend", "schema": {"lower": 1, "upper": 33}, "settings": {"epsilon": 1.0, **settings}}
    test = {"source": "spend", "category": None, "threshold": 1.5, "missing_left": False}
    return {"columns": [column], "tests": [test] * n_tests}


@pytest.mark.parametrize(
    "settings",
    [
        {"mechanism": "adj", "domain_size": 10**9, "theta": 3},
        {"mechanism": "local", "domain_size": 10**8, "theta": 2},
        {"mechanism": "global", "domain_size": 2**62},
        {"mechanism": "global", "law": "calibrated", "domain_size": 2**40},
    ],
    ids=str,
)
def test_thresholds_over_a_domain_that_nobody_could_hold_are_refused_at_once(settings: dict[str, Any]) -> None:
    began = time.process_time()
    with pytest.raises(ConfigError):
        router_from_dict(shared(1, **settings))
    assert time.process_time() - began < 1


def test_thresholds_over_cells_that_together_nobody_could_hold_are_refused_before_they_are_all_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A thousand columns of a million cells each, which a peer may offer, would be 60 GB.
    monkeypatch.setattr(agreed_grid, "MOST_SHARED_CELLS", 1000)
    offer = Offer(columns=(COLUMN, COLUMN), guarantee={})
    (column,) = shared(0, mechanism="local", domain_size=1500, theta=2)["columns"]
    router = {"columns": [column, column], "tests": []}
    with pytest.raises(UnexpectedMessage, match=r"thresholds that cannot be used: .* more than 1000 cells"):
        agreed_grid.shared_router("shop", router, offer, n_asked=0, by_cells=False)
    fewer = {**router, "columns": [column]}
    assert len(agreed_grid.shared_router("shop", fewer, offer, n_asked=0, by_cells=False).mechanisms) == 1
    assert len(router_from_dict(router).mechanisms) == 2


@pytest.mark.parametrize("threshold", ["inf", "-inf", -math.inf, math.inf, "nan", 1e309, 1e300, -(2.0**63)])
def test_a_threshold_is_a_number_among_codes_or_none(threshold: object) -> None:
    with pytest.raises(ConfigError):
        router_from_dict(changed(shared(1), ["tests", 0, "threshold"], threshold))
    assert router_from_dict(changed(shared(1), ["tests", 0, "threshold"], None)).tests.thresholds.tolist() == [math.inf]


def test_more_resolved_tests_than_were_asked_for_are_counted_and_not_read(trial: Any) -> None:
    many = Thresholds(router={**shared(0), "tests": [None] * 1_000_000})
    error, _ = refusal(lambda channel: train_jointly(trial.active(), [channel]), "shop", [*release(), many])
    assert isinstance(error, UnexpectedMessage)
    assert "resolved 1000000 of" in str(error)


def test_more_resolved_columns_than_were_offered_are_counted_and_not_read(trial: Any) -> None:
    many = Thresholds(router={**shared(0), "columns": [None] * 1_000_000})
    error, _ = refusal(lambda channel: train_jointly(trial.active(), [channel]), "shop", [*release(), many])
    assert isinstance(error, UnexpectedMessage)
    assert "1000000 columns where 1 were offered" in str(error)


def test_of_terms_that_differ_without_end_a_few_are_named() -> None:
    theirs = {f"term {i}": "x" * 100 for i in range(100_000)}
    found = "; ".join(term_differences({"epsilon": 1.0}, theirs, "hub"))
    assert found.startswith("epsilon: hub has nothing, this party 1.0; term 0: hub has")
    assert found.endswith("99996 more terms differ")
    assert len(found) < 2000
