"""Drawn once: what was released is used again for nothing, and no crash makes one charge pay for two draws."""

from __future__ import annotations

import json
import math
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost import rng
from opboost.desensitize import ColumnMechanism, ReleasedColumn
from opboost.mechanism_settings import MechanismSettings
from opboost.preprocess import EncodedColumn, encode
from opboost.schema import ColumnSchema, Kind, Missing
from parties.errors import LedgerError, OverBudget
from parties.ledger import charged_release
from parties.ledger.budget import Budget, Limit
from parties.ledger.charged_release import Account, open_ledger_and_store
from parties.ledger.costs import Unit
from parties.ledger.ledger_lines import Occasion
from parties.ledger.release_ledger import Ledger
from parties.ledger.release_store import ReleaseStore

N_ROWS = 200
IDS = pd.Index([f"k{i:03}" for i in range(N_ROWS)], dtype=object)
SPRING = Occasion(run_id="spring", task="train", peer="bank")
SCHEMAS = (
    ColumnSchema(name="spend", lower=0, upper=100),
    ColumnSchema(name="visits", lower=0, upper=50, missing=Missing.CATEGORY),
    ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("x", "y", "z"), missing=Missing.CATEGORY),
)


def table(seed: int = 4) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    visits = pd.Series(draw.integers(0, 51, N_ROWS).astype(float)).where(draw.random(N_ROWS) > 0.2)
    town = pd.Series(draw.choice(["x", "y", "z"], N_ROWS), dtype="string").where(draw.random(N_ROWS) > 0.2)
    return pd.DataFrame({"spend": draw.uniform(0, 100, N_ROWS), "visits": visits, "town": town})


def mechanisms(*schemas: ColumnSchema, **settings: Any) -> tuple[ColumnMechanism, ...]:
    chosen = MechanismSettings(**{"epsilon": 0.1, "domain_size": 101, "category_epsilon": 2.0, **settings})
    return tuple(ColumnMechanism(schema, chosen) for schema in schemas or SCHEMAS)


def encoded(which: Sequence[ColumnMechanism], data: pd.DataFrame | None = None) -> list[EncodedColumn]:
    data = table() if data is None else data
    return [encode(data[m.schema.name], m.schema, domain=m.settings.domain) for m in which]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


Job = Callable[[Account], Any]


def on_account(path: Path, job: Job, **changes: Any) -> Any:
    """Open the books as a process of its own would, with fresh secure bits, and close them."""
    with open_ledger_and_store(path) as (ledger, store):
        account = Account(ledger=ledger, store=store, budget=Budget(), occasion=SPRING, rng=rng.secure())
        return job(replace(account, **changes))


def train(*, ids: pd.Index = IDS, data: pd.DataFrame | None = None, may_draw: bool = True, **settings: Any) -> Job:
    which = mechanisms(**settings)
    return lambda account: list(account.columns(which, encoded(which, data), ids, may_draw=may_draw))


def predict(rows: Sequence[int], *, data: pd.DataFrame | None = None, **settings: Any) -> Job:
    which = mechanisms(**settings)
    asked = (table() if data is None else data).iloc[list(rows)]
    return lambda account: account.records(which, encoded(which, asked), IDS[list(rows)])


def same(first: Sequence[ReleasedColumn], second: Sequence[ReleasedColumn]) -> list[bool]:
    return [
        np.array_equal(a.codes, b.codes) and np.array_equal(a.is_missing, b.is_missing)
        for a, b in zip(first, second, strict=True)
    ]


def lines(path: Path) -> list[dict[str, Any]]:
    database = sqlite3.connect(path)
    rows = database.execute("SELECT fields FROM lines ORDER BY number").fetchall()
    database.close()
    return [json.loads(fields) for (fields,) in rows]


def kinds(path: Path) -> Counter[str]:
    return Counter(line["kind"] for line in lines(path))


def test_a_release_is_drawn_once_and_used_again_to_the_bit_at_no_cost(path: Path) -> None:
    first = on_account(path, train())
    assert kinds(path) == {"opened": 1, "charge": 3, "stored": 3}
    again = on_account(path, train(), occasion=Occasion(run_id="summer", task="train", peer="post"))
    assert same(first, again) == [True] * 3
    assert [column.schema.name for column in again] == ["spend", "visits", "town"]
    assert kinds(path) == {"opened": 1, "charge": 3, "stored": 3, "reuse": 3}
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
        balances = ledger.balances
        assert balances.worst("spend") == (promises[0].epsilon, 0.0, 0.0)
        assert balances.worst("visits") == (promises[1].epsilon, 2.0, 0.0)
        assert balances.worst("town") == (0.0, 4.0, 0.0)
        assert balances.units == dict.fromkeys(("spend", "visits"), Unit(1.0, "1 original unit"))
        total = sum(p.epsilon + p.missing_epsilon for p in promises)
        assert balances.worst_record() == pytest.approx((total, 0.0))


CHANGES: dict[str, tuple[Job, int]] = {
    "another mechanism": (train(mechanism="adj", theta=10), 2),
    "another budget": (train(epsilon=0.2), 2),
    "another budget for categories": (train(category_epsilon=1.0), 2),
    "other data": (train(data=table().assign(spend=table()["spend"].iloc[::-1].to_numpy())), 1),
    "other ids": (train(ids=pd.Index([f"m{i}" for i in range(N_ROWS)], dtype=object)), 3),
    "another order of ids": (train(ids=IDS[::-1]), 3),
}


@pytest.mark.parametrize(("job", "n_drawn"), CHANGES.values(), ids=CHANGES)
def test_only_what_changed_is_drawn_anew_and_charged(path: Path, job: Job, n_drawn: int) -> None:
    first = on_account(path, train())
    second = on_account(path, job)
    assert kinds(path)["charge"] == 3 + n_drawn
    assert kinds(path)["reuse"] == 3 - n_drawn
    assert sum(not unchanged for unchanged in same(first, second)) == n_drawn
    assert same(on_account(path, job), second) == [True] * 3


def test_another_schema_is_another_release_even_where_the_codes_are_the_same(path: Path) -> None:
    wider = (ColumnSchema(name="spend", lower=0, upper=200),)
    exact = [EncodedColumn(np.arange(1, 101), np.zeros(100, np.bool_), 0)]
    for schemas in (SCHEMAS[:1], wider):
        on_account(path, lambda account, s=schemas: list(account.columns(mechanisms(*s), exact, IDS[:100])))
    assert kinds(path)["charge"] == 2


def test_over_budget_nothing_is_drawn_or_stored(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charged_release, "desensitize", None)
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
        LedgerError, match=r"for 2 of its 3 columns the store holds no release that fits.*another run_id"
    ):
        on_account(path, train(epsilon=0.2, may_draw=False))
    assert kinds(path)["charge"] == 3


def test_seeded_bits_are_charged_like_no_noise_and_never_stand_in_for_secure_ones(path: Path) -> None:
    seeded = on_account(path, train(), rng=rng.seeded(1))
    with Ledger(path) as ledger:
        assert ledger.balances.worst("spend") == (math.inf, 0.0, 0.0)
        assert ledger.balances.worst("visits") == (math.inf, math.inf, 0.0)
        assert ledger.balances.worst("town") == (0.0, math.inf, 0.0)
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
    "before the draw": (charged_release, "desensitize", 3),
    "before it is put into the store": (ReleaseStore, "put", 3),
    "before the ledger knows what was drawn": (Ledger, "note_stored", 3),
}


@pytest.mark.parametrize(("place", "name", "n_charged"), STAGES.values(), ids=STAGES)
@pytest.mark.parametrize("keeps", [False, True], ids=["redraw", "keep"])
@pytest.mark.parametrize("job", [train(), predict(range(20))], ids=["columns", "records"])
def test_after_a_crash_the_next_attempt_pays_for_what_it_draws(
    path: Path, monkeypatch: pytest.MonkeyPatch, job: Job, keeps: bool, place: Any, name: str, n_charged: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(place, name, crash)
        with pytest.raises(Crash):
            on_account(path, job, keeps=keeps)
    assert kinds(path)["charge"] == n_charged
    first = on_account(path, job, keeps=keeps)
    assert (kinds(path)["charge"], kinds(path)["stored"]) == (n_charged + 3, 3)
    assert same(first, on_account(path, job, keeps=keeps)) == [True] * 3


def test_a_crash_after_the_draw_and_before_the_store_is_committed_costs_a_draw_but_never_gives_two_for_one(
    path: Path,
) -> None:
    def leave_early(account: Account) -> ReleasedColumn:
        columns = account.columns(mechanisms(), encoded(mechanisms()), IDS)
        return next(columns)

    on_account(path, leave_early)
    assert kinds(path) == {"opened": 1, "charge": 3}
    limit = Budget(Limit(epsilon=0.1))
    with pytest.raises(OverBudget, match=r"column 'spend' per unit would have spent 0\.2 of 0\.1"):
        on_account(path, train(), budget=limit)


KILLED = """
import os, signal, sys
from pathlib import Path
from opboost import rng
from parties.ledger import charged_release
from parties.ledger.release_ledger import Ledger
from test_release_store import *
place, name = {"draw": (charged_release, "desensitize"), "note": (Ledger, "note_stored")}[sys.argv[2]]
setattr(place, name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
on_account(Path(sys.argv[1]), train())
"""


@pytest.mark.parametrize("stage", ["draw", "note"])
def test_a_process_that_is_killed_between_charge_and_store_has_paid_for_nothing(path: Path, stage: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{KILLED}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), stage], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    on_account(path, train())
    assert kinds(path) == {"opened": 1, "charge": 6, "stored": 3}
    with Ledger(path) as ledger:
        assert ledger.balances.worst("town") == (0.0, 8.0, 0.0)


TWICE = """
import sys
from pathlib import Path
from test_release_store import *
print("ready", flush=True)
sys.stdin.readline()
print([column.codes.tolist() for column in on_account(Path(sys.argv[1]), train())])
"""


def test_a_run_that_is_started_twice_at_once_draws_once(path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{TWICE}"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    call = [sys.executable, "-c", code, str(path)]
    starts = [subprocess.Popen(call, text=True, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    try:
        assert [start.stdout.readline() for start in starts] == ["ready\n"] * 2
        for start in starts:
            start.stdin.write("go\n")
            start.stdin.flush()
        (first, error), (second, other_error) = [start.communicate(timeout=60) for start in starts]
    finally:
        for start in starts:
            start.kill()
            start.wait()
    assert (error, other_error) == ("", "")
    assert first == second
    assert kinds(path) == {"opened": 1, "charge": 3, "stored": 3, "reuse": 3}


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
    assert lines(path)[-1]["charges"] == [4, 13]


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


def by_record(columns: Sequence[ReleasedColumn], rows: Sequence[int]) -> list[dict[int, tuple[int, bool]]]:
    """Per column, what came out for each row of the table."""
    return [
        dict(zip(rows, zip(column.codes.tolist(), column.is_missing.tolist(), strict=True), strict=True))
        for column in columns
    ]


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
        return lambda account: list(account.columns(which, encoded(which, data), IDS[list(rows)]))

    first = by_record(on_account(path, grown(range(half), 4), keeps=True), range(half))
    shuffled = np.random.default_rng(3).permutation(N_ROWS).tolist()
    second = by_record(on_account(path, grown(shuffled, 5), keeps=True), shuffled)
    for before, after in zip(first, second, strict=True):
        assert {row: after[row] for row in range(half)} == before
    charged = [line for line in lines(path) if line["kind"] == "charge"]
    assert [line["n_records"] for line in charged] == [half] * 3 + [N_ROWS - half] * 3
    assert {line["terms"]["changed_values"] for line in charged} == {"keep"}
    reuses = [line for line in lines(path) if line["kind"] == "reuse"]
    assert [(line["charges"], line["n_records"]) for line in reuses] == [([2], half), ([3], half), ([4], half)]
    with Ledger(path) as ledger:
        assert ledger.balances.worst("town") == (0.0, 4.0, 0.0)
        assert ledger.balances.n_records == N_ROWS


def test_draws_that_are_kept_and_draws_that_are_not_never_stand_in_for_each_other(path: Path) -> None:
    drawn = on_account(path, train())
    kept = on_account(path, train(), keeps=True)
    assert same(drawn, kept) == [False] * 3
    assert same(on_account(path, train()), drawn) == [True] * 3
    assert same(on_account(path, train(), keeps=True), kept) == [True] * 3
    assert kinds(path)["charge"] == 6


def test_a_run_that_has_released_keeps_to_it_although_its_data_changed_and_draws_no_new_record(path: Path) -> None:
    first = on_account(path, train(), keeps=True)
    assert same(on_account(path, train(data=table(9), may_draw=False), keeps=True), first) == [True] * 3
    others = pd.Index([*IDS[1:], "stranger"], dtype=object)
    with pytest.raises(LedgerError, match=r"for 3 of its 3 columns the store lacks the draws of some records"):
        on_account(path, train(ids=others, may_draw=False), keeps=True)
    assert kinds(path)["charge"] == 3


def test_a_record_pays_for_training_and_prediction_together(path: Path) -> None:
    on_account(path, train())
    on_account(path, predict([0]))
    with Ledger(path) as ledger:
        assert ledger.balances.worst("town") == (0.0, 8.0, 0.0)
        assert ledger.balances.n_records == N_ROWS
    limit = Budget(Limit(category_epsilon=9))
    with pytest.raises(
        OverBudget, match=r"categories of column 'town' would have spent 10 of 9\. Nothing was released"
    ):
        on_account(path, predict([0], category_epsilon=1.0), budget=limit)
    on_account(path, predict([1], category_epsilon=1.0), budget=limit)


def test_nothing_is_charged_for_no_records(path: Path) -> None:
    assert [len(column.codes) for column in on_account(path, predict([]))] == [0, 0, 0]
    assert kinds(path) == {"opened": 1}


def store_of(path: Path) -> Path:
    return path.with_suffix(".releases.sqlite")


def meddle(path: Path, statement: str) -> None:
    database = sqlite3.connect(store_of(path))
    database.execute(statement)
    database.commit()
    database.close()


DAMAGES = {
    "a code was changed": (
        "UPDATE drawn SET content = CAST(substr(content, 1, 200) || x'07' || substr(content, 202) AS BLOB)"
    ),
    "the end is lost": "UPDATE drawn SET content = substr(content, 1, 100)",
    "two releases were exchanged": "UPDATE drawn SET charge = CASE charge WHEN 2 THEN 30 WHEN 3 THEN 2 ELSE charge END",
}


@pytest.mark.parametrize("statement", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("job", [train(), predict(range(100))], ids=["columns", "records"])
def test_a_damaged_release_is_refused(path: Path, job: Job, statement: str) -> None:
    on_account(path, job)
    meddle(path, statement)
    with pytest.raises(LedgerError, match=r"is not the one that was drawn|an older copy has taken its place"):
        on_account(path, job)


def test_an_answer_that_points_to_another_records_draw_is_refused(path: Path) -> None:
    on_account(path, predict(range(10)))
    meddle(path, "UPDATE answered SET position = (position + 1) % 10")
    with pytest.raises(LedgerError, match=r"is not the one that was drawn"):
        on_account(path, predict([4]))


def test_a_release_that_was_removed_is_drawn_and_paid_for_anew(path: Path) -> None:
    on_account(path, train())
    store_of(path).unlink()
    on_account(path, train())
    assert kinds(path) == {"opened": 1, "charge": 6, "stored": 6}


def test_a_ledger_begun_anew_beside_old_releases_is_refused(path: Path) -> None:
    on_account(path, train())
    path.unlink()
    path.with_suffix(".head.json").unlink()
    with pytest.raises(LedgerError, match="holds releases that were charged to another ledger than"):
        on_account(path, train())


def test_an_older_copy_of_ledger_and_head_together_is_refused(path: Path) -> None:
    on_account(path, train())
    files = [path, path.with_suffix(".head.json")]
    copies = [file.read_bytes() for file in files]
    on_account(path, train(epsilon=0.2))
    for file, copy in zip(files, copies, strict=True):
        file.write_bytes(copy)
    with pytest.raises(LedgerError, match=r"line 10 of .* charged, but the ledger has 7 lines: an older copy"):
        on_account(path, train())


def test_nobody_else_may_read_the_releases(path: Path) -> None:
    on_account(path, train())
    assert {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {
        "ledger.sqlite": 0o600,
        "ledger.head.json": 0o600,
        "ledger.releases.sqlite": 0o600,
    }
    store_of(path).chmod(0o644)
    with pytest.raises(LedgerError, match="has mode 0644; it must be readable by its owner alone"):
        on_account(path, train())


def test_a_release_is_stored_in_a_format_that_cannot_bring_code_along(path: Path) -> None:
    on_account(path, train())
    database = sqlite3.connect(store_of(path))
    contents = [content for (content,) in database.execute("SELECT content FROM drawn")]
    database.close()
    assert all(content.startswith(b"\x93NUMPY\x01\x00") and b"'descr': '|i1'" in content for content in contents)
