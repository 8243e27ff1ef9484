"""The ledger: charged by one process at a time, refused over budget, and not trusted once it was meddled with."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parties.errors import LedgerError, OverBudget
from parties.ledger.budget import Budget, Limit
from parties.ledger.costs import Cells, Cost, Unit
from parties.ledger.hash_chain import HashChain
from parties.ledger.ledger_lines import ChargedColumn, Occasion, Reuse, canonical, records_digest, seal
from parties.ledger.record_sets import keep_records
from parties.ledger.release_ledger import Ledger
from parties.session.termination import termination_message
from parties.tables.key_sets import NAME
from tests.support.numbered_names import names
from tests.support.processes import at_once

SPRING = Occasion(run_id="spring", task="train", peer="bank")
NO_LIMIT = Budget()


def release(column: str = "spend", *, epsilon: float = 0.1, category: float = 0.0, n: int = 3) -> ChargedColumn:
    records = names(range(n))
    cost = Cost(
        column=column,
        loss=lambda points: points * epsilon,
        category_epsilon=category,
        point=2.0,
        unit=Unit(2.0, "2 original units"),
        records=records,
    )
    return ChargedColumn(schema="s", mechanism="m", terms={"mechanism": "global"}, cost=cost)


def store(ledger: Ledger, charge: int, family: str = "") -> None:
    """Three records' cells."""
    with ledger.changing():
        cells = ledger.cells.names.put(np.array([b"a", b"b", b"c"], NAME)), np.arange(3), np.arange(3)
        ledger.cells.put(charge, family or release().family, *cells)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "ledger.sqlite"


@pytest.fixture
def charged(path: Path) -> Path:
    """A ledger of a first line and two charges, one of them stored."""
    with Ledger(path) as ledger:
        first, _ = ledger.charge([release(), release("town", category=3.0)], {}, SPRING, NO_LIMIT)
        store(ledger, first)
    return path


def lines(path: Path) -> list[dict[str, Any]]:
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT fields FROM lines ORDER BY number").fetchall()
    database.close()
    return [json.loads(fields) for (fields,) in rows]


def meddle(path: Path, *statements: str) -> None:
    """Change the ledger as somebody would who knows SQLite: the triggers do not stop him."""
    database = sqlite3.connect(path)
    for table in ("lines", "record_sets"):
        for verb in ("UPDATE", "DELETE"):
            database.execute(f"DROP TRIGGER no_{verb}_{table}")
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()


def test_a_charge_says_what_to_whom_at_what_cost_and_when(charged: Path) -> None:
    opened, spend, town, stored = lines(charged)
    assert (opened["kind"], len(opened["name"])) == ("opened", 32)
    assert {key: spend[key] for key in ("kind", "column", "schema", "mechanism", "family")} == {
        "kind": "charge",
        "column": "spend",
        "schema": "s",
        "mechanism": "m",
        "family": release().family,
    }
    assert (spend["run_id"], spend["task"], spend["peer"], spend["n_records"]) == ("spring", "train", "bank", 3)
    assert (spend["epsilon"], spend["category_epsilon"], spend["unit"]) == (0.1, 0.0, 2.0)
    assert town["category_epsilon"] == 3.0
    assert (stored["kind"], stored["charge"], len(stored["names"]), len(stored["content"])) == ("stored", 2, 64, 64)
    assert [line["number"] for line in (opened, spend, town, stored)] == [1, 2, 3, 4]
    assert all(line["at"].endswith("+00:00") for line in (opened, spend, town, stored))


def test_a_ledger_reads_back_what_it_was_told(charged: Path) -> None:
    with Ledger(charged) as ledger:
        assert ledger.sums.balances.worst("spend") == (0.1, 0.0, 0.0)
        assert ledger.sums.balances.worst("town") == (0.1, 3.0, 0.0)
        assert ledger.sums.balances.worst_record() == pytest.approx((3.2, 0.0))
        names = lines(charged)[-1]["names"]
        assert (ledger.content(2, names), ledger.content(3, names)) == (lines(charged)[-1]["content"], None)
        assert ledger.n_stored == 1
        assert (ledger.n_lines, ledger.sums.peers) == (4, {"bank"})
        # Its line says that cells were stored, and nothing was drawn here.
        with pytest.raises(LedgerError, match="cells that line 2 charged are not those that were drawn"):
            ledger.verify()


def test_reuse_is_entered_at_no_cost_with_what_paid_for_it(charged: Path) -> None:
    with Ledger(charged) as ledger:
        assert ledger.charge([], {"spend": Reuse((2,), 3)}, SPRING, Budget(Limit(0.0001), per_record=0.0001)) == []
        assert ledger.sums.balances.worst("spend") == (0.1, 0.0, 0.0)
        assert ledger.sums.n_reuses["spend"] == 1
    line = lines(charged)[-1]
    assert {key: line[key] for key in ("kind", "charges", "epsilon", "category_epsilon", "n_records")} == {
        "kind": "reuse",
        "charges": [2],
        "epsilon": 0.0,
        "category_epsilon": 0.0,
        "n_records": 3,
    }


@pytest.mark.parametrize("window_rows", [1, 3, 1 << 16])
def test_a_set_of_records_that_is_written_in_pieces_is_read_back_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch, window_rows: int
) -> None:
    for module in ("ledger.record_sets", "tables.key_sets"):
        monkeypatch.setattr(f"parties.{module}.WINDOW_ROWS", window_rows)
    sizes = {"spend": 7, "visits": 7, "age": 0}
    with Ledger(path) as ledger:
        ledger.charge([release(column, n=n) for column, n in sizes.items()], {}, SPRING, NO_LIMIT)
    with sqlite3.connect(path) as database:
        kept = {bytes(keys) for (keys,) in database.execute("SELECT records FROM record_sets")}
    assert kept == {names(range(n)).tobytes() for n in sizes.values()}
    with Ledger(path) as ledger:
        assert ledger.sums.balances.n_records == 7
        with pytest.raises(OverBudget):
            ledger.charge([release("spend", n=1)], {}, SPRING, Budget(per_record=0.01))


def test_over_budget_nothing_of_a_release_is_charged(charged: Path) -> None:
    before = lines(charged)
    with (
        Ledger(charged) as ledger,
        pytest.raises(
            OverBudget, match=r"column 'town' per unit would have spent 0\.2 of 0\.15\. Nothing was released"
        ),
    ):
        ledger.charge([release("age"), release("town")], {}, SPRING, Budget(Limit(0.15)))
    assert lines(charged) == before


def test_an_infinite_cost_is_kept_without_leaving_json(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.charge([release(epsilon=math.inf)], {}, SPRING, NO_LIMIT)
    assert lines(path)[1]["epsilon"] == "inf"
    with Ledger(path) as ledger:
        assert ledger.sums.balances.worst("spend") == (math.inf, 0.0, 0.0)


def test_a_later_release_is_charged_in_the_unit_of_the_first(charged: Path) -> None:
    fine = release()
    fine = ChargedColumn(schema="s", mechanism="fine", terms={}, cost=replace(fine.cost, point=0.5))
    with Ledger(charged) as ledger:
        ledger.charge([fine], {}, SPRING, NO_LIMIT)
        assert ledger.sums.balances.worst("spend")[0] == pytest.approx(0.1 + 4 * 0.1)
    assert (lines(charged)[-1]["epsilon"], lines(charged)[-1]["unit"]) == (0.4, 2.0)


def test_the_cells_of_a_local_map_have_a_line_of_their_own(path: Path) -> None:
    local = replace(release(), cost=replace(release().cost, cells=Cells(10, 100)))
    with Ledger(path) as ledger:
        numbers = ledger.charge([local, release("age")], {}, SPRING, NO_LIMIT)
        assert ledger.sums.balances.worst("spend") == (0.1, 0.0, math.log2(10))
        assert ledger.sums.balances.worst_record() == pytest.approx((0.2, math.log2(10)))
        assert ledger.sums.n_releases == {"spend": 1, "age": 1}
    charge, cells, other = lines(path)[1:]
    assert numbers == [charge["number"], other["number"]] == [2, 4]
    assert {key: cells[key] for key in ("kind", "column", "n_cells", "narrowest", "bits", "records", "n_records")} == {
        "kind": "cells",
        "column": "spend",
        "n_cells": 10,
        "narrowest": 100,
        "bits": math.log2(10),
        "records": charge["records"],
        "n_records": 3,
    }
    with Ledger(path) as ledger:
        assert ledger.sums.balances.worst("spend").cell_bits == math.log2(10)
        with pytest.raises(OverBudget, match=r"column 'spend'.*would have spent 6\.64386 of 4"):
            ledger.charge([local], {}, SPRING, Budget(Limit(cell_bits=4)))


def test_a_charge_says_of_what_difference_it_speaks(charged: Path) -> None:
    assert [(line["unit"], line["unit_words"], line["points"]) for line in lines(charged)[1:3]] == [
        (2.0, "2 original units", 1),
        (2.0, "2 original units", 1),
    ]
    with Ledger(charged) as ledger:
        assert ledger.sums.balances.units["spend"] == Unit(2.0, "2 original units")


# A charge as versions wrote it that knew neither units of columns nor lines of cells.
CHARGE_BEFORE = {
    "kind": "charge",
    "at": "2025-01-01T00:00:00.000+00:00",
    "run_id": "spring",
    "task": "train",
    "peer": "bank",
    "column": "spend",
    "schema": "s",
    "mechanism": "m",
    "data": "d",
    "ids": "i",
    "epsilon": 0.1,
    "category_epsilon": 0.5,
    "unit": 0.25,
    "key": "k",
    "n_records": 3,
    "terms": {"mechanism": "local", "theta": 100.0, "domain_size": 950.0},
}


def test_a_charge_of_a_version_before_keeps_its_meaning_and_its_cells_are_counted(path: Path) -> None:
    with Ledger(path) as ledger:
        digest = records_digest(release().cost.records)
        with ledger._lines.adding() as add:
            keep_records(ledger._lines.database, digest, release().cost.records)
            add({**CHARGE_BEFORE, "records": digest})
    with Ledger(path) as ledger:
        assert ledger.sums.balances.worst("spend") == (0.1, 0.5, math.log2(10))
        assert ledger.sums.balances.units["spend"] == Unit(0.25, "0.25 original units, one point of the mapped domain")
        # A later release is charged in that unit still: 0.25 is less than one of its points.
        ledger.charge([release()], {}, SPRING, NO_LIMIT)
        assert ledger.sums.balances.worst("spend").epsilon == pytest.approx(0.2)
    assert (lines(path)[-1]["unit"], lines(path)[-1]["points"]) == (0.25, 1)


def test_two_openings_of_one_ledger_see_each_others_charges(path: Path) -> None:
    with Ledger(path) as mine, Ledger(path) as theirs:
        mine.charge([release()], {}, SPRING, Budget(Limit(0.15)))
        with pytest.raises(OverBudget):
            theirs.charge([release()], {}, SPRING, Budget(Limit(0.15)))
        theirs.charge([release("age")], {}, SPRING, Budget(Limit(0.15)))
        with mine.changing():
            assert mine.sums.balances.worst("age") == theirs.sums.balances.worst("age") == (0.1, 0.0, 0.0)


@pytest.mark.parametrize("earlier_version", [False, True])
def test_what_others_add_is_read_for_training_records_only_if_some_are_among_it(
    path: Path, earlier_version: bool
) -> None:
    """The time of the lookup would tell whether records that were just asked for had been released before."""
    charge = replace(SPRING, task="predict")
    with Ledger(path) as mine, Ledger(path) as theirs:
        mine.note_released(names(range(3)), SPRING)
        n_lines = mine.n_lines
        for n in range(4, 7):
            theirs.charge([release(n=n)], {}, charge, NO_LIMIT)
            mine.refresh_trained()
            assert mine.n_lines == n_lines
        theirs.note_released(names(range(5)), replace(SPRING, peer="other"))
        if earlier_version:
            head = json.loads((head_path := path.with_suffix(".head.json")).read_text())
            head_path.write_text(json.dumps({key: head[key] for key in ("lines", "digest", "verified")}))
        mine.refresh_trained()
        assert mine.n_lines == theirs.n_lines > n_lines
        assert [len(found) for found in mine.trained("other")] == [5]


def test_a_ledger_behind_links_of_both_files_hears_of_releases_for_training(path: Path, tmp_path: Path) -> None:
    """The head was written beside the links, and hid that another process had released records."""
    (linked := tmp_path / "linked").mkdir()
    with Ledger(path) as theirs:
        for name in ("ledger.sqlite", "ledger.head.json"):
            (linked / name).symlink_to(path.parent / name)
        with Ledger(linked / path.name) as mine:
            mine.charge([release()], {}, replace(SPRING, task="predict"), NO_LIMIT)
            theirs.note_released(names(range(3)), SPRING)
            mine.refresh_trained()
            assert [len(found) for found in mine.trained("bank")] == [3]
    assert all(one.is_symlink() for one in linked.iterdir())
    assert len(list(linked.iterdir())) == 2


def test_training_records_of_lines_that_the_head_does_not_tell_yet_are_known(path: Path) -> None:
    """A process that was killed between line and head, and one that opens the ledger with sums that were kept."""
    with Ledger(path) as mine:
        mine.note_released(names(range(3)), SPRING)
        before = path.with_suffix(".head.json").read_bytes()
        mine.note_released(names(range(5)), SPRING)
        path.with_suffix(".head.json").write_bytes(before)
        mine.refresh_trained()
        assert len(mine.trained("bank")) == 2
        with Ledger(path) as theirs:
            assert len(theirs.trained("bank")) == 2


def trained_on(path: Path, *sizes: int) -> Path:
    """A ledger of releases for training of so many records."""
    with Ledger(path) as ledger:
        for n in sizes:
            ledger.note_released(names(range(n)), SPRING)
    return path


@pytest.mark.parametrize("how", ["renamed", "written over", "removed"])
def test_who_has_a_ledger_open_that_was_replaced_answers_and_writes_nothing_more(
    path: Path, tmp_path: Path, how: str
) -> None:
    """As many releases for training were in the other one: the records of its last one would have got exact answers."""
    other = trained_on(tmp_path / "other" / "ledger.sqlite", 3, 7)
    with Ledger(trained_on(path, 3, 5)) as ledger:
        for name in ("ledger.sqlite", "ledger.head.json"):
            if how == "renamed":
                (other.parent / name).replace(path.parent / name)
            elif how == "removed":
                (path.parent / name).unlink()
            else:
                (path.parent / name).write_bytes((other.parent / name).read_bytes())
        left = {one.name: one.read_bytes() for one in path.parent.iterdir() if one.name.endswith(".json")}
        for use in (ledger.refresh_trained, lambda: ledger.charge([release()], {}, SPRING, NO_LIMIT)):
            with pytest.raises(LedgerError, match="Nothing was released"):
                use()
        assert {one.name: one.read_bytes() for one in path.parent.iterdir() if one.name.endswith(".json")} == left


def charge_often(path: Path) -> int:
    """How many of 40 charges are within the limit."""
    n_charged = 0
    with Ledger(path) as ledger:
        for _ in range(40):
            with suppress(OverBudget):
                ledger.charge([release()], {}, SPRING, Budget(Limit(5.0)))
                n_charged += 1
    return n_charged


@pytest.mark.parametrize("exists", [True, False], ids=["on an old ledger", "on one that both begin"])
def test_processes_that_race_cannot_overspend_together(path: Path, exists: bool) -> None:
    if exists:
        with Ledger(path):
            pass
    # 120 tries at 0.1 under a limit of 5.
    assert sum(at_once(3, charge_often, path)) == 50
    with Ledger(path) as ledger:
        assert ledger.sums.balances.worst("spend")[0] == pytest.approx(5.0)
        assert ledger.n_lines == 51


TAMPERINGS: dict[str, tuple[str, ...]] = {
    "a cheaper charge": ("UPDATE lines SET fields = replace(fields, '\"epsilon\":0.1', '\"epsilon\":0.0')",),
    "another peer": ("UPDATE lines SET fields = replace(fields, 'bank', 'tank') WHERE number = 2",),
    "a row in the middle removed": ("DELETE FROM lines WHERE number = 3",),
    "a row removed and the next moved up": (
        "DELETE FROM lines WHERE number = 3",
        "UPDATE lines SET number = 3 WHERE number = 4",
    ),
    "the last row removed": ("DELETE FROM lines WHERE number = 4",),
    "all but the first removed": ("DELETE FROM lines WHERE number > 1",),
    "all rows removed": ("DELETE FROM lines",),
    "two rows exchanged": (
        "UPDATE lines SET number = 99 WHERE number = 2",
        "UPDATE lines SET number = 2 WHERE number = 3",
        "UPDATE lines SET number = 3 WHERE number = 99",
    ),
    "another digest": ("UPDATE lines SET digest = 'x' || substr(digest, 2) WHERE number = 4",),
    "fewer records": ("UPDATE record_sets SET records = substr(records, 9)",),
    "no records": ("DELETE FROM record_sets",),
    "a row added": ("INSERT INTO lines VALUES (5, '{\"number\":5}', 'x')",),
}


@pytest.mark.parametrize("statements", TAMPERINGS.values(), ids=TAMPERINGS)
def test_a_ledger_that_was_meddled_with_is_refused(charged: Path, statements: tuple[str, ...]) -> None:
    meddle(charged, *statements)
    with pytest.raises(LedgerError, match=r"ledger\.sqlite cannot be trusted: .*Nothing was released$"):
        Ledger(charged)


def test_the_meddling_above_is_what_is_found(charged: Path) -> None:
    meddle(charged)
    with Ledger(charged) as ledger:
        assert ledger.n_lines == 4


@pytest.mark.parametrize("statements", TAMPERINGS.values(), ids=TAMPERINGS)
def test_meddling_under_an_open_ledger_is_found_at_the_next_charge_or_at_the_next_opening(
    charged: Path, statements: tuple[str, ...]
) -> None:
    """Lines that were read before count as they were; it is the last one that every charge looks at again."""

    def go_on() -> None:
        with Ledger(charged) as ledger:
            meddle(charged, *statements)
            ledger.charge([release("age", n=4)], {}, SPRING, NO_LIMIT)
        Ledger(charged)

    with pytest.raises(LedgerError, match="cannot be trusted"):
        go_on()


@pytest.mark.parametrize("held_out", [False, True])
def test_records_that_were_released_or_held_out_are_verified_with_the_cells(path: Path, held_out: bool) -> None:
    records = names(range(5))
    with Ledger(path) as ledger:
        ledger.note_released(records, SPRING, held_out=held_out)
        ledger.verify()
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("DROP TRIGGER no_UPDATE_record_sets")
    changed = (bytes(16) * 5, records_digest(records))
    assert database.execute("UPDATE record_sets SET records = ? WHERE digest = ?", changed).rowcount == 1
    database.close()
    with Ledger(path) as ledger, pytest.raises(LedgerError, match="the records of a line were changed or removed"):
        ledger.verify()


def test_rows_are_not_changed_or_removed_by_accident(charged: Path) -> None:
    database = sqlite3.connect(charged)
    for statement in ("UPDATE lines SET digest = ''", "DELETE FROM lines", "DELETE FROM record_sets"):
        with pytest.raises(sqlite3.IntegrityError, match="only ever added"):
            database.execute(statement)
    database.close()


def other_ledger(path: Path) -> Path:
    with Ledger(path) as ledger:
        ledger.charge([release(), release("town", category=3.0)], {}, SPRING, NO_LIMIT)
        store(ledger, 2)
    return path


def without_head(path: Path) -> None:
    path.with_suffix(".head.json").unlink()


def without_ledger(path: Path) -> None:
    path.unlink()


def another_head(path: Path) -> None:
    other_ledger(path.parent / "other" / "ledger.sqlite")
    shutil.copyfile(path.parent / "other" / "ledger.head.json", path.with_suffix(".head.json"))


def another_ledger(path: Path) -> None:
    shutil.copyfile(other_ledger(path.parent / "other" / "ledger.sqlite"), path)


def an_older_copy(path: Path) -> None:
    copy = path.read_bytes()
    with Ledger(path) as ledger:
        ledger.charge([release("age")], {}, SPRING, NO_LIMIT)
    path.write_bytes(copy)


def a_broken_head(path: Path) -> None:
    path.with_suffix(".head.json").write_text("{}")


def no_database(path: Path) -> None:
    path.write_bytes(b"once upon a time " * 400)


def a_cut_file(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


@pytest.mark.parametrize(
    ("exchange", "words"),
    [
        (without_head, r"ledger\.head\.json, which tells how many lines there must be, is not there"),
        (without_ledger, "is not there although its head is. Restore it from a backup"),
        (another_head, r"it is not the ledger of ledger\.head\.json"),
        (another_ledger, r"it is not the ledger of ledger\.head\.json"),
        (an_older_copy, r"it has 4 lines where ledger\.head\.json says 5"),
        (a_broken_head, r"ledger\.head\.json cannot be read as the head of a ledger"),
        (no_database, "cannot be used: file is not a database"),
        (a_cut_file, "cannot be used: |cannot be trusted: "),
    ],
)
def test_a_ledger_that_was_exchanged_or_lost_is_refused(
    charged: Path, exchange: Callable[[Path], None], words: str
) -> None:
    exchange(charged)
    with pytest.raises(LedgerError, match=rf"{words}.*Nothing was released$"):
        Ledger(charged)


class Crash(BaseException):
    """The process dies here."""


def test_a_crash_between_line_and_head_keeps_the_charge_and_the_next_user_moves_the_head(
    charged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise Crash

    with Ledger(charged) as ledger, monkeypatch.context() as patch:
        patch.setattr(HashChain, "_write_head", crash)
        with pytest.raises(Crash):
            ledger.charge([release("age")], {}, SPRING, NO_LIMIT)
    head = charged.with_suffix(".head.json")
    assert json.loads(head.read_text())["lines"] == 4
    with Ledger(charged) as ledger:
        assert ledger.sums.balances.worst("age") == (0.1, 0.0, 0.0)
    assert json.loads(head.read_text())["lines"] == 5


def test_a_crash_while_a_ledger_is_begun_leaves_nothing_that_stops_the_next(path: Path) -> None:
    path.parent.mkdir()
    with Ledger(path.parent / "other.sqlite"):
        pass
    shutil.copyfile(path.parent / "other.head.json", path.with_suffix(".head.json"))
    path.touch(0o600)
    with Ledger(path) as ledger:
        assert ledger.n_lines == 1


def test_a_line_of_a_later_version_is_refused_rather_than_overlooked(charged: Path) -> None:
    database = sqlite3.connect(charged)
    before = database.execute("SELECT digest FROM lines WHERE number = 4").fetchone()[0]
    text = canonical({"number": 5, "kind": "refund", "column": "spend"})
    database.execute("INSERT INTO lines VALUES (5, ?, ?)", (text, seal(before, text)))
    database.commit()
    database.close()
    with pytest.raises(LedgerError, match=r"line 5 is not one that this version writes\. Nothing was released"):
        Ledger(charged)


def test_nobody_else_may_read_the_ledger(charged: Path) -> None:
    files = [charged, charged.with_suffix(".head.json")]
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600, 0o600]
    charged.chmod(0o640)
    with pytest.raises(LedgerError, match=r"has mode 0640; it must be readable by its owner alone \(0600\)"):
        Ledger(charged)


def test_every_commit_is_written_through_to_a_write_ahead_log(path: Path) -> None:
    with Ledger(path) as ledger:
        database = ledger._lines.database
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert database.execute("PRAGMA synchronous").fetchone() == (2,)
        assert {file.name for file in path.parent.iterdir()} >= {"ledger.sqlite", "ledger.sqlite-wal"}
    assert {file.name for file in path.parent.iterdir()} == {"ledger.sqlite", "ledger.head.json"}


def test_what_is_not_there_is_not_begun_by_those_who_only_look(path: Path) -> None:
    with pytest.raises(LedgerError, match="is not there"):
        Ledger(path, create=False)
    assert not path.parent.exists()
    path.parent.mkdir()
    path.touch(0o600)
    with pytest.raises(LedgerError, match="holds no ledger"):
        Ledger(path, create=False)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match=r"cannot be used: .*\. Nothing was released"):
        Ledger(tmp_path / "file" / "ledger.sqlite")


def test_what_the_peer_hears_names_no_column_and_no_place(charged: Path) -> None:
    with Ledger(charged) as ledger, pytest.raises(OverBudget) as refusal:
        ledger.charge([release()], {}, SPRING, Budget(Limit(0.15)))
    assert "spend" in str(refusal.value)
    assert termination_message(refusal.value, peer="bank") == (
        "it keeps account of what it releases, and its account does not allow this. Nothing was released"
    )
