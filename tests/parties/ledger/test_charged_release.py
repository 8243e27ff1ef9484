"""Drawn once: a cell that was released is used again for nothing, whatever it is released with, and after a crash."""

from __future__ import annotations

import hashlib
import math
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost import rng
from opboost.preprocess import EncodedColumn
from opboost.schema import ColumnSchema
from parties.errors import LedgerError, OverBudget
from parties.ledger import cell_store, due_cells, name_sets
from parties.ledger.budget import Budget, Limit
from parties.ledger.cell_store import CellStore
from parties.ledger.costs import Unit
from parties.ledger.ledger_lines import Occasion
from parties.ledger.release_ledger import Ledger
from parties.tables import blocks
from parties.tables.key_sets import HALF_NAME, NAME, NAME_BYTES, kept_set
from tests.support.processes import at_once
from tests.support.released_cells import (
    IDS,
    N_ROWS,
    SCHEMAS,
    SPRING,
    Job,
    by_record,
    encoded,
    kinds,
    lines,
    mechanisms,
    n_keys,
    on_account,
    order_of,
    predict,
    released,
    same,
    table,
    train,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def test_a_release_is_drawn_once_and_used_again_to_the_bit_at_no_cost(path: Path) -> None:
    first = on_account(path, train())
    assert kinds(path) == {"opened": 1, "charge": 3, "stored": 3}
    again = on_account(path, train(), occasion=Occasion(run_id="summer", task="train", peer="post"))
    assert same(first, again) == [True] * 3
    assert [column.schema.name for column in again] == ["spend", "visits", "town"]
    assert kinds(path) == {"opened": 1, "charge": 3, "stored": 3, "reuse": 3, "released": 1}
    reuses = [line for line in lines(path) if line["kind"] == "reuse"]
    assert [(line["column"], line["charges"], line["epsilon"], line["peer"]) for line in reuses] == [
        ("spend", [2], 0.0, "post"),
        ("visits", [3], 0.0, "post"),
        ("town", [4], 0.0, "post"),
    ]


def test_a_release_costs_what_its_guarantee_says_per_column_and_per_record(path: Path) -> None:
    on_account(path, train())
    promises = [mechanism.guarantee() for mechanism in mechanisms()]
    with Ledger(path) as ledger:
        balances = ledger.sums.balances
        assert balances.worst("spend") == (promises[0].epsilon, 0.0, 0.0)
        assert balances.worst("visits") == (promises[1].epsilon, 2.0, 0.0)
        assert balances.worst("town") == (0.0, 4.0, 0.0)
        assert balances.units == dict.fromkeys(("spend", "visits"), Unit(1.0, "1 original unit"))
        total = sum(p.epsilon + p.missing_epsilon for p in promises)
        assert balances.worst_record() == pytest.approx((total, 0.0))


CHANGES: dict[str, tuple[Job, list[int]]] = {
    "another mechanism": (train(mechanism="adj", theta=10), [N_ROWS, N_ROWS]),
    "another budget": (train(epsilon=0.2), [N_ROWS, N_ROWS]),
    "another budget for categories": (train(category_epsilon=1.0), [N_ROWS, N_ROWS]),
    "one value": (train(data=table().assign(spend=table()["spend"].where(IDS != "k003", 99.0))), [1]),
    "other ids": (train(ids=pd.Index([f"m{i}" for i in range(N_ROWS)], dtype=object)), [N_ROWS] * 3),
    "two ids": (train(ids=pd.Index(["m1", "m2", *IDS[2:]], dtype=object)), [2, 2, 2]),
}


@pytest.mark.parametrize(("job", "n_records"), CHANGES.values(), ids=CHANGES)
def test_only_what_changed_is_drawn_anew_and_charged(path: Path, job: Job, n_records: list[int]) -> None:
    first = on_account(path, train())
    second = on_account(path, job)
    charged = [line for line in lines(path) if line["kind"] == "charge"][3:]
    assert [line["n_records"] for line in charged] == n_records
    n_changed = sum(
        int(((a.codes != b.codes) | (a.is_missing != b.is_missing)).sum()) for a, b in zip(first, second, strict=True)
    )
    assert n_changed <= sum(n_records)
    assert same(on_account(path, job), second) == [True] * 3


@given(
    first=st.permutations(range(30)).flatmap(lambda rows: st.integers(1, 30).map(lambda n: rows[:n])),
    second=st.permutations(range(30)),
    cuts=st.sets(st.integers(1, 29), max_size=3).map(sorted),
    serves=st.booleans(),
)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_a_record_keeps_its_draw_in_any_subset_order_and_division_and_in_prediction(
    tmp_path_factory: pytest.TempPathFactory, first: list[int], second: list[int], cuts: list[int], serves: bool
) -> None:
    path = tmp_path_factory.mktemp("any") / "ledger.sqlite"
    before = on_account(path, order_of(first))
    asked = partial(order_of, second, cuts)
    after = by_record(on_account(path, predict(second)), second) if serves else on_account(path, asked())
    for old, new in zip(before, after, strict=True):
        assert {row: new[row] for row in first} == old
    n_new = len(set(second) - set(first))
    charged = [line["n_records"] for line in lines(path) if line["kind"] == "charge"]
    assert charged == [len(first)] * 3 + [n_new] * (3 if n_new else 0)


def test_runs_that_each_lack_another_record_average_nothing_out(path: Path) -> None:
    """Twenty runs give every record one draw; their twin, which charges and draws anew, gives as many as it is in."""

    def draws(of_run: Callable[[int], Path]) -> int:
        seen: dict[int, set[tuple[int, bool]]] = {row: set() for row in range(N_ROWS)}
        for run in range(20):
            rows = [row for row in range(N_ROWS) if row != run]
            for row, cell in on_account(of_run(run), order_of(rows))[0].items():
                seen[row].add(cell)
        return max(map(len, seen.values()))

    assert draws(lambda run: path) == 1
    assert draws(lambda run: path.with_name(f"{run}.sqlite")) > 10


def test_one_percent_of_new_records_is_charged_as_one_percent(path: Path) -> None:
    on_account(path, order_of(range(198)))
    on_account(path, order_of(range(N_ROWS)))
    charged = [line["n_records"] for line in lines(path) if line["kind"] == "charge"]
    assert charged == [198] * 3 + [2] * 3


def test_another_schema_is_another_release_even_where_the_codes_are_the_same(path: Path) -> None:
    wider = (ColumnSchema(name="spend", lower=0, upper=200),)
    exact = [EncodedColumn(np.arange(1, 101), np.zeros(100, np.bool_), 0)]
    for schemas in (SCHEMAS[:1], wider):
        on_account(path, lambda account, s=schemas: released(account, mechanisms(*s), exact, IDS[:100]))
    assert kinds(path)["charge"] == 2


def test_over_budget_nothing_is_drawn_or_stored(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_cells, "desensitize", None)
    with pytest.raises(OverBudget, match=r"categories of column 'town' would have spent 4 of 3\. Nothing was released"):
        on_account(path, train(), budget=Budget(Limit(category_epsilon=3)))
    assert kinds(path) == {"opened": 1}


def test_a_stored_release_is_sent_again_even_if_the_budget_is_spent(path: Path) -> None:
    first = on_account(path, train())
    assert same(first, on_account(path, train(), budget=Budget(Limit(0.1, 4)))) == [True] * 3
    with pytest.raises(OverBudget):
        on_account(path, train(epsilon=0.2), budget=Budget(Limit(0.1, 4)))


def test_a_run_that_has_released_draws_nothing_anew(path: Path) -> None:
    first = on_account(path, train())
    assert same(first, on_account(path, train(may_draw=False))) == [True] * 3
    with pytest.raises(
        LedgerError, match=r"for 2 of its 3 columns the ledger lacks the draws of some records.*another run_id"
    ):
        on_account(path, train(epsilon=0.2, may_draw=False))
    assert kinds(path)["charge"] == 3


def test_seeded_bits_are_charged_like_no_noise_and_never_stand_in_for_secure_ones(path: Path) -> None:
    seeded = on_account(path, train(), rng=rng.seeded(1))
    with Ledger(path) as ledger:
        assert ledger.sums.balances.worst("spend") == (math.inf, 0.0, 0.0)
        assert ledger.sums.balances.worst("visits") == (math.inf, math.inf, 0.0)
        assert ledger.sums.balances.worst("town") == (0.0, math.inf, 0.0)
    secure = on_account(path, train())
    assert same(seeded, secure) == [False] * 3
    with pytest.raises(OverBudget):
        on_account(path, train(epsilon=0.2), rng=rng.seeded(1), budget=Budget(Limit(1e9)))


class Crash(BaseException):
    """The process dies here."""


def crash(*_: object, **__: object) -> None:
    raise Crash


STAGES = {
    "before the charge": (Ledger, "charge", 0),
    "before the draw": (due_cells, "desensitize", 3),
    "before it is put into the store": (CellStore, "put", 3),
    "before the ledger knows what was drawn": (Ledger, "note_stored", 3),
    "before the keys are removed": (CellStore, "remove_keys", 3),
    "after it is stored": (Ledger, "checkpoint", 3),
}


@pytest.mark.parametrize(("place", "name", "n_charged"), STAGES.values(), ids=STAGES)
@pytest.mark.parametrize("keeps", [False, True], ids=["redraw", "keep"])
@pytest.mark.parametrize("job", [train(), predict(range(20))], ids=["table", "records"])
def test_after_a_crash_the_next_attempt_pays_nothing_and_finishes(
    path: Path, monkeypatch: pytest.MonkeyPatch, job: Job, keeps: bool, place: Any, name: str, n_charged: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(place, name, crash)
        with pytest.raises(Crash):
            on_account(path, job, keeps=keeps)
    assert kinds(path)["charge"] == n_charged
    # The budget is for one release.
    first = on_account(path, job, keeps=keeps, budget=Budget(Limit(0.2, 4.0)))
    assert (kinds(path)["charge"], kinds(path)["stored"]) == (3, 3)
    assert n_keys(path) == 0
    assert same(first, on_account(path, job, keeps=keeps)) == [True] * 3


@pytest.mark.parametrize("occasion", [Occasion(run_id="spring", task="predict", peer="bank"), SPRING])
def test_records_that_another_charge_paid_for_before_a_crash_are_known_as_training_records(
    path: Path, monkeypatch: pytest.MonkeyPatch, occasion: Occasion
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(due_cells, "desensitize", crash)
        with pytest.raises(Crash):
            on_account(path, predict(range(N_ROWS)), occasion=occasion)
    peer = "bank" if occasion.task == "predict" else "post"
    on_account(path, train(), occasion=Occasion(run_id="summer", task="train", peer=peer))
    assert kinds(path)["charge"] == 3
    with Ledger(path) as ledger:
        assert [len(records) for records in ledger.trained(peer)] == [N_ROWS]


def test_whoever_comes_after_a_crash_draws_what_was_being_drawn(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []

    def crash_with(store: CellStore, *cells: Any) -> None:
        drawn.append(cells[3].tolist())
        if len(drawn) == 3:
            raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(CellStore, "put", crash_with)
        with pytest.raises(Crash):
            on_account(path, train())
    database = sqlite3.connect(path)
    keys = database.execute("SELECT key FROM draw_keys").fetchall()
    database.close()
    assert len({key for (key,) in keys}) == 3
    order = np.argsort(np.array([hashlib.sha256(one.encode()).digest()[:16] for one in IDS]))
    again = on_account(path, train())
    assert [column.marked[order].tolist() for column in again] == drawn
    files = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert not any(key in files for (key,) in keys)


def test_other_records_after_a_crash_take_what_was_paid_and_the_rest_stays_paid(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(due_cells, "desensitize", crash)
        with pytest.raises(Crash):
            on_account(path, order_of(range(100)))
    once = Budget(Limit(0.2, 4.0))
    second = on_account(path, order_of(range(50, 150)), budget=once)
    assert [line["n_records"] for line in lines(path) if line["kind"] == "charge"] == [100] * 3 + [50] * 3
    assert n_keys(path) == 3
    third = on_account(path, order_of(range(N_ROWS - 40)), budget=once)
    assert [line["n_records"] for line in lines(path) if line["kind"] == "charge"] == [100] * 3 + [50] * 3 + [10] * 3
    assert n_keys(path) == 0
    for old, new in zip(second, third, strict=True):
        assert {row: new[row] for row in old} == old


def test_a_value_that_changed_after_its_draw_is_charged_though_other_cells_of_the_charge_are_undrawn(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(due_cells, "desensitize", crash)
        with pytest.raises(Crash):
            on_account(path, predict([1, 2]))
    on_account(path, predict([1]))
    moved = table()
    moved.loc[1, "spend"] = 100 - moved.loc[1, "spend"]
    on_account(path, predict([1, 2], data=moved))
    assert [line["n_records"] for line in lines(path) if line["kind"] == "charge"] == [2, 2, 2, 1]


def drawn_codes(path: Path) -> list[list[int]]:
    return [column.codes.tolist() for column in on_account(path, train())]


def test_a_run_that_is_started_twice_at_once_draws_once(path: Path) -> None:
    first, second = at_once(2, drawn_codes, path)
    assert first == second
    assert {kind: n for kind, n in kinds(path).items() if kind != "reuse"} == {"opened": 1, "charge": 3, "stored": 3}


def test_a_record_that_was_answered_before_gets_the_same_draw_and_only_others_are_charged(path: Path) -> None:
    first = on_account(path, predict([5, 3, 8]))
    charged = [line for line in lines(path) if line["kind"] == "charge"]
    assert {line["n_records"] for line in charged} == {3}
    second = on_account(path, predict([3, 9, 5, 3]), occasion=replace(SPRING, run_id="summer"))
    for before, after in zip(first, second, strict=True):
        assert after.codes[[0, 2, 3]].tolist() == before.codes[[1, 0, 1]].tolist()
        assert after.is_missing[[0, 2, 3]].tolist() == before.is_missing[[1, 0, 1]].tolist()
    charged = [line for line in lines(path) if line["kind"] == "charge"]
    assert [line["n_records"] for line in charged] == [3, 3, 3, 1, 1, 1]
    reuses = [line for line in lines(path) if line["kind"] == "reuse"]
    assert [(line["n_records"], line["charges"]) for line in reuses] == [(2, [2]), (2, [3]), (2, [4])]
    on_account(path, predict([9, 8]))
    assert kinds(path)["charge"] == 6
    assert [line for line in lines(path) if line["kind"] == "reuse"][-1]["charges"] == [4, 13]


def test_whoever_asks_again_and_again_does_not_fill_the_ledger(path: Path) -> None:
    """Lines double the answers that they are about; those of training are entered one by one."""

    def often(account: Any) -> None:
        for _ in range(40):
            predict([5, 3])(account)

    on_account(path, often, occasion=replace(SPRING, task="predict"))
    found = [line["n_records"] for line in lines(path) if line["kind"] == "reuse" and line["column"] == "spend"]
    assert found == [2, 2, 4, 8, 16, 32]
    before = kinds(path)["reuse"]
    for _ in range(3):
        on_account(path, train())
    assert kinds(path)["reuse"] == before + 9


def test_answers_are_entered_as_if_nothing_had_been_refused_in_between(path: Path) -> None:
    """Neither is a refused request an answer that waits for its line, nor does it take the place of a line."""

    def often(account: Any) -> None:
        for n_refused in (16, 0, 0, 3, 3, 0):
            for _ in range(n_refused):
                with pytest.raises(OverBudget):
                    predict([5, 3, 9])(account)
            predict([5, 3])(account)

    on_account(path, predict([5, 3]))
    tight = Budget(Limit(epsilon=0.01))
    on_account(path, often, occasion=replace(SPRING, task="predict"), budget=tight)
    found = [line["n_records"] for line in lines(path) if line["kind"] == "reuse" and line["column"] == "spend"]
    assert found == [2, 2, 4]


def test_a_record_that_is_asked_for_twice_at_once_is_drawn_once(path: Path) -> None:
    found = on_account(path, predict([7] * 50))
    assert {line["n_records"] for line in lines(path) if line["kind"] == "charge"} == {1}
    assert [len(set(column.codes.tolist())) for column in found] == [1, 1, 1]


def test_a_record_whose_value_or_mechanism_changed_is_drawn_anew(path: Path) -> None:
    on_account(path, predict([1, 2]))
    moved = table()
    moved.loc[1, "spend"] = 100 - moved.loc[1, "spend"]
    on_account(path, predict([1, 2], data=moved))
    assert [line["n_records"] for line in lines(path) if line["kind"] == "charge"] == [2, 2, 2, 1]
    on_account(path, predict([1, 2], epsilon=0.2))
    assert kinds(path)["charge"] == 6  # the town has no budget per unit


ALL = list(range(N_ROWS))
FEWER = [7, 3, 150, 42]
PAIRS: dict[str, tuple[tuple[Any, Any], list[int]]] = {
    "trained twice": ((train, train), ALL),
    "asked twice": ((partial(predict, FEWER), partial(predict, FEWER)), FEWER),
    "trained, then asked": ((train, partial(predict, FEWER)), FEWER),
    "asked, then trained": ((partial(predict, FEWER), train), FEWER),
}


def view_before_and_after(path: Path, jobs: Any, rows: list[int], *, keeps: bool) -> tuple[Any, Any]:
    """What a peer gets of some records before and after their values were changed, all of them."""
    changed = table(seed=99)
    found = []
    for job, data in zip(jobs, (table(), changed), strict=True):
        columns = on_account(path, job(data=data), keeps=keeps)
        asked = ALL if len(columns[0].codes) == N_ROWS else FEWER
        found.append([{row: one[row] for row in rows} for one in by_record(columns, asked)])
    return found[0], found[1]


@pytest.mark.parametrize(("jobs", "rows"), PAIRS.values(), ids=PAIRS)
def test_where_first_draws_are_kept_a_change_of_every_value_shows_in_nothing(
    path: Path, jobs: Any, rows: list[int]
) -> None:
    """Whatever the values become, a record comes out as before; its twin, which draws anew, shows that it changed."""
    before, after = view_before_and_after(path, jobs, rows, keeps=True)
    assert after == before
    before, after = view_before_and_after(path.with_name("twin.sqlite"), jobs, rows, keeps=False)
    assert after != before


def test_of_a_table_that_grew_new_records_alone_are_drawn_and_charged(path: Path) -> None:
    half = N_ROWS // 2

    def grown(rows: Sequence[int], seed: int) -> Job:
        which, data = mechanisms(), table(seed).iloc[list(rows)]
        return lambda account: released(account, which, encoded(which, data), IDS[list(rows)])

    first = by_record(on_account(path, grown(range(half), 4), keeps=True), range(half))
    shuffled = np.random.default_rng(3).permutation(N_ROWS).tolist()
    second = by_record(on_account(path, grown(shuffled, 5), keeps=True), shuffled)
    for before, after in zip(first, second, strict=True):
        assert {row: after[row] for row in range(half)} == before
    charged = [line for line in lines(path) if line["kind"] == "charge"]
    assert [line["n_records"] for line in charged] == [half] * 3 + [N_ROWS - half] * 3
    reuses = [line for line in lines(path) if line["kind"] == "reuse"]
    assert [(line["charges"], line["n_records"]) for line in reuses] == [([2], half), ([3], half), ([4], half)]
    with Ledger(path) as ledger:
        assert ledger.sums.balances.worst("town") == (0.0, 4.0, 0.0)
        assert ledger.sums.balances.n_records == N_ROWS


def test_a_run_that_begins_to_keep_first_draws_keeps_those_there_are(path: Path) -> None:
    drawn = on_account(path, train())
    assert same(on_account(path, train(data=table(9)), keeps=True), drawn) == [True] * 3
    assert kinds(path)["charge"] == 3


def test_a_run_that_has_released_keeps_to_it_although_its_data_changed_and_draws_no_new_record(path: Path) -> None:
    first = on_account(path, train(), keeps=True)
    assert same(on_account(path, train(data=table(9), may_draw=False), keeps=True), first) == [True] * 3
    others = pd.Index([*IDS[1:], "stranger"], dtype=object)
    with pytest.raises(LedgerError, match=r"for 3 of its 3 columns the ledger lacks the draws of some records"):
        on_account(path, train(ids=others, may_draw=False), keeps=True)
    assert kinds(path)["charge"] == 3


def test_prediction_uses_the_draws_of_training_and_another_mechanism_adds_to_them(path: Path) -> None:
    on_account(path, train())
    on_account(path, predict([0]))
    with Ledger(path) as ledger:
        assert ledger.sums.balances.worst("town") == (0.0, 4.0, 0.0)
        assert ledger.sums.balances.n_records == N_ROWS
    limit = Budget(Limit(category_epsilon=5))
    with pytest.raises(OverBudget, match=r"categories of column 'town' would have spent 6 of 5\. Nothing was released"):
        on_account(path, predict([0], category_epsilon=1.0), budget=limit)


def test_nothing_is_charged_for_no_records(path: Path) -> None:
    assert [len(column.codes) for column in on_account(path, predict([]))] == [0, 0, 0]
    assert kinds(path) == {"opened": 1}


def meddle(path: Path, statement: str) -> None:
    database = sqlite3.connect(path)
    database.execute(statement)
    database.commit()
    database.close()


DAMAGES = {
    "codes were changed": "UPDATE pieces SET content = CAST(substr(content, 1, 9) || x'07' AS BLOB)",
    "pieces are lost": "DELETE FROM pieces",
    "draws are lost": "DELETE FROM draws WHERE number = 1",
    "names are lost": "DELETE FROM name_sets",
    "the index is lost": "DELETE FROM members",
    "two draws were exchanged": "UPDATE draws SET charge = CASE charge WHEN 2 THEN 3 WHEN 3 THEN 2 ELSE charge END",
    "the index confuses records": "UPDATE members SET place = (SELECT MAX(place) FROM members) - place",
    "the index goes beyond": "UPDATE members SET place = 5000 WHERE place = 3",
    "a draw is of another column": "UPDATE draws SET family = (SELECT family FROM draws WHERE number = 2) "
    "WHERE number = 1",
}

# What hides a cell: it would be charged and drawn anew.
HIDDEN = {
    "a name of the index was changed": "UPDATE members SET name = zeroblob(16) WHERE place = 3",
    "the column of a draw was changed": "UPDATE draws SET family = zeroblob(16) WHERE number = 1",
}


@pytest.mark.parametrize("statement", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("job", [train(), predict(range(100))], ids=["table", "records"])
def test_damaged_cells_are_refused_with_what_to_restore(path: Path, job: Job, statement: str) -> None:
    on_account(path, job)
    meddle(path, statement)
    with pytest.raises(LedgerError, match=r"are not those that were drawn|lacks cells") as found:
        on_account(path, job)
    assert "Restore the file and its head from the same backup. Nothing was released" in str(found.value)
    assert kinds(path)["charge"] == 3


@pytest.mark.parametrize("statement", [*DAMAGES.values(), *HIDDEN.values()], ids=[*DAMAGES, *HIDDEN])
def test_verifying_finds_all_damage_even_what_hides_a_cell(path: Path, statement: str) -> None:
    on_account(path, train())
    on_account(path, lambda account: account.ledger.verify())
    meddle(path, statement)
    with pytest.raises(LedgerError, match=r"are not those that were drawn|lacks cells"):
        on_account(path, lambda account: account.ledger.verify())


def test_large_sets_are_found_by_their_pieces_and_small_ones_by_an_index(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (cell_store, name_sets):
        monkeypatch.setattr(module, "PIECE", 16)
    monkeypatch.setattr(cell_store, "CODES", 32)
    whole = by_record(on_account(path, train()), ALL)
    for rows in (FEWER, [N_ROWS - 1, 0]):
        assert by_record(on_account(path, predict(rows)), rows) == [{row: one[row] for row in rows} for one in whole]
    with Ledger(path) as ledger:
        ledger.verify()
    assert kinds(path)["charge"] == 3
    meddle(path, "UPDATE name_sets SET places = CAST(substr(places, 1, 48) || places AS BLOB)")
    with pytest.raises(LedgerError, match="names of records are not those"):
        on_account(path, train())


def test_nobody_else_may_read_what_was_drawn(path: Path) -> None:
    on_account(path, train())
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == {"ledger.sqlite": 0o600, "ledger.head.json": 0o600}
    path.chmod(0o644)
    with pytest.raises(LedgerError, match="has mode 0644; it must be readable by its owner alone"):
        on_account(path, train())


def test_tests_and_answers_are_counted_over_all_runs(path: Path) -> None:
    on_account(path, train())
    on_account(path, predict([1, 2, 3]), occasion=replace(SPRING, task="predict"))
    with Ledger(path) as ledger:
        assert ledger.sums.n_answered == {"spend": 3, "visits": 3, "town": 3}


@pytest.mark.parametrize("knows_halves", [False, True])
def test_records_that_share_half_a_name_are_drawn_and_charged_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knows_halves: bool
) -> None:
    """As two of 10^9 ids may by accident: an account that knew records by half of their names would charge both."""
    whole = blocks.record_names

    def sharing(ids: Any) -> Any:
        names = [one.ljust(NAME_BYTES, b"\0") for one in whole(ids).tolist()]
        return np.frombuffer(b"".join(b"same key" + name[8:] for name in names), NAME)

    def halves(pieces: Any, n_names: int) -> Any:
        return kept_set((piece.astype(HALF_NAME) for piece in pieces), n_names, kind=HALF_NAME)

    monkeypatch.setattr(blocks, "record_names", sharing)
    if knows_halves:
        monkeypatch.setattr("parties.ledger.charged_release.kept_set", halves)
    path, odd = tmp_path / "ledger.sqlite", pd.Index(IDS[1::2])
    first = on_account(path, train(ids=odd, data=table().iloc[1::2]))
    all_of_them = on_account(path, train())
    # Draws are found by whole names: the first ones stay, and the others are new.
    for one, other in zip(all_of_them, first, strict=True):
        assert (one.marked[1::2] == other.marked).all()
    assert len(np.unique(all_of_them[0].codes)) > 10
    with Ledger(path) as ledger:
        assert ledger.sums.balances.worst("spend").epsilon == pytest.approx(0.2 if knows_halves else 0.1)
        assert ledger.sums.balances.n_records == (1 if knows_halves else len(IDS))
