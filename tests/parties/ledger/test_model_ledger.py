"""A worker's account: charged once per run, refused over budget, and never rewritten."""

from __future__ import annotations

import math
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from parties.errors import LedgerError, OverBudget, RunFolderError
from parties.ledger.model_ledger import ledger_position, worker_ledger
from parties.ledger.release_ledger import Ledger
from parties.ledger.run_charge import RunBudget, RunCharge


def charge(run: str = "spring", *, epsilon: float = 1.0, delta: float = 1e-6, coordinator: str = "hub") -> RunCharge:
    return RunCharge(run=run, coordinator=coordinator, epsilon=epsilon, delta=delta)


def test_runs_add_up_and_the_one_that_would_be_over_budget_is_refused(tmp_path: Path) -> None:
    with worker_ledger(tmp_path / "ledger.sqlite", RunBudget(epsilon=2.0)) as ledger:
        ledger.charge(charge("a"))
        ledger.charge(charge("b"))
        for refuse in (ledger.check, ledger.charge):
            with pytest.raises(OverBudget, match=r"epsilon 2 was spent and this run costs 0\.5, .* of 2"):
                refuse(charge("c", epsilon=0.5))
        assert ledger.spent() == (2.0, 2e-6)


def test_a_run_is_charged_once_however_often_it_is_started(tmp_path: Path) -> None:
    for _ in range(3):
        with worker_ledger(tmp_path / "ledger.sqlite", RunBudget(epsilon=1.0)) as ledger:
            ledger.check(charge())
            ledger.charge(charge())
            assert ledger.spent() == (1.0, 1e-6)


def test_two_folders_that_begin_one_run_at_once_do_not_share_a_charge(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with worker_ledger(path, RunBudget()) as mine, worker_ledger(path, RunBudget()) as theirs:
        for ledger in (mine, theirs):
            ledger.check(charge())
        for _ in range(2):
            mine.charge(charge(), "my noise")
        with pytest.raises(OverBudget, match="run 'spring' was charged for answers from another run folder"):
            theirs.charge(charge(), "their noise")
    with worker_ledger(path, RunBudget()) as again:
        again.charge(charge(), "my noise")
        with pytest.raises(OverBudget, match="from another run folder"):
            again.charge(charge(), "their noise")


def test_an_account_behind_a_link_that_leads_nowhere_is_neither_begun_nor_told_to_be_empty(tmp_path: Path) -> None:
    """The folder of a disk that is not mounted is there and empty: the budget began at 0 again."""
    (disk := tmp_path / "disk").mkdir()
    (path := tmp_path / "ledger.sqlite").symlink_to(disk / "ledger.sqlite")
    for use in (
        lambda: worker_ledger(path, RunBudget()).__enter__(),
        lambda: ledger_position(path, RunBudget(), charge()),
    ):
        with pytest.raises(LedgerError, match=r"is a link to .*, which is not there"):
            use()
    assert not list(disk.iterdir())


def test_a_turn_is_drawn_again_after_the_same_trees_alone_and_costs_nothing_more(tmp_path: Path) -> None:
    of_others = [(charge(), 4), (charge("autumn"), 1), (charge(coordinator="other"), 1)]
    for _ in range(2):
        with worker_ledger(tmp_path / "ledger.sqlite", RunBudget(epsilon=2.0)) as ledger:
            ledger.charge(charge(), "noise")
            ledger.note_turn(charge(), 1, "a" * 64)
            with pytest.raises(
                RunFolderError, match="the tree of turn 2 of run 'spring' was drawn before, after other"
            ):
                ledger.note_turn(charge(), 1, "b" * 64)
            for other, turn in of_others:
                ledger.note_turn(other, turn, "b" * 64)
            assert (ledger.spent(), ledger.charges()) == ((1.0, 1e-6), (charge(),))


def test_another_coordinators_run_of_the_same_name_is_another_run(tmp_path: Path) -> None:
    with worker_ledger(tmp_path / "ledger.sqlite", RunBudget()) as ledger:
        ledger.charge(charge())
        ledger.charge(charge(coordinator="other"))
        assert ledger.spent()[0] == 2.0


def test_the_same_run_with_another_promise_is_refused(tmp_path: Path) -> None:
    with worker_ledger(tmp_path / "ledger.sqlite", RunBudget()) as ledger:
        ledger.charge(charge())
        with pytest.raises(OverBudget, match="with another promise"):
            ledger.charge(charge(epsilon=0.5))


@pytest.mark.parametrize(
    ("budget", "cost"), [(RunBudget(epsilon=5.0), {"epsilon": math.inf}), (RunBudget(delta=1e-7), {})]
)
def test_no_noise_is_over_any_budget_and_delta_counts_too(
    tmp_path: Path, budget: RunBudget, cost: dict[str, float]
) -> None:
    with worker_ledger(tmp_path / "ledger.sqlite", budget) as ledger, pytest.raises(OverBudget):
        ledger.charge(charge(**cost))


def test_lines_cannot_be_changed_and_the_file_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with worker_ledger(path, RunBudget()) as ledger:
        ledger.charge(charge())
    database = sqlite3.connect(path)
    for statement in ("DELETE FROM lines", "UPDATE lines SET fields = ''"):
        with pytest.raises(sqlite3.IntegrityError, match="only ever added"):
            database.execute(statement)
    database.close()
    path.chmod(0o644)
    with pytest.raises(LedgerError, match="readable by its owner alone"), worker_ledger(path, RunBudget()):
        pass


def test_asking_where_a_run_stands_begins_no_ledger_and_charges_nothing(tmp_path: Path) -> None:
    path, budget = tmp_path / "runs" / "ledger.sqlite", RunBudget(epsilon=1.5)
    before = ledger_position(path, budget, charge("a"))
    assert not path.parent.exists()
    assert (before.n_runs, before.spent, before.is_charged) == (0, (0.0, 0.0), False)
    assert before.remaining == (0.5, None)
    with worker_ledger(path, budget) as ledger:
        ledger.charge(charge("a"))
    after = ledger_position(path, budget, charge("a"))
    assert (after.n_runs, after.spent, after.is_charged) == (1, (1.0, 1e-6), True)
    assert after.remaining == before.remaining
    # A second run would be over the budget, and is only told so.
    other = ledger_position(path, budget, charge("b"))
    assert (other.is_charged, other.remaining[0]) == (False, -0.5)
    assert ledger_position(path, budget, charge("a")) == after


OLD = """CREATE TABLE runs (run TEXT NOT NULL, coordinator TEXT NOT NULL, epsilon REAL NOT NULL,
    delta REAL NOT NULL, time TEXT NOT NULL, PRIMARY KEY (run, coordinator));
CREATE TRIGGER no_DELETE_runs BEFORE DELETE ON runs BEGIN SELECT RAISE(ABORT, 'lines are only ever added'); END;
INSERT INTO runs VALUES ('spring', 'hub', 1.5, 1e-6, '2026-03-01T10:00:00+00:00');
INSERT INTO runs VALUES ('autumn', 'hub', 9e999, 0.0, '2026-09-01T10:00:00+00:00');
"""


def test_a_charge_is_known_by_its_run_and_by_who_was_charged(tmp_path: Path) -> None:
    with worker_ledger(tmp_path / "ledger.sqlite", RunBudget()) as ledger:
        assert not ledger.knows(charge())
        ledger.charge(charge(), "a")
        assert [ledger.knows(charge(), *holder) for holder in ((), ("a",), ("b",))] == [True, True, False]


def test_an_account_of_an_earlier_version_is_taken_over_once_and_sealed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.touch(0o600)
    database = sqlite3.connect(path)
    database.executescript(OLD)
    for _ in range(2):
        with worker_ledger(path, RunBudget()) as ledger:
            assert ledger.knows(charge())
            assert ledger.spent() == (math.inf, 1e-6)
            with pytest.raises(OverBudget, match="with another promise"):
                ledger.charge(charge())
    assert database.execute("SELECT name FROM sqlite_master WHERE name = 'runs'").fetchall() == []
    assert database.execute("SELECT COUNT(*) FROM lines").fetchone() == (3,)
    database.close()


def cheaper(path: Path) -> None:
    database = sqlite3.connect(path)
    database.executescript(
        "DROP TRIGGER no_UPDATE_lines; UPDATE lines SET fields = replace(fields, '\"epsilon\":1.0', '\"epsilon\":0.1')"
    )
    database.close()


def one_line_less(path: Path) -> None:
    database = sqlite3.connect(path)
    database.executescript("DROP TRIGGER no_DELETE_lines; DELETE FROM lines WHERE number = 3")
    database.close()


def an_older_copy(path: Path) -> None:
    shutil.copyfile(path.with_name("before.sqlite"), path)


def nothing_at_all(path: Path) -> None:
    path.unlink()


def no_head(path: Path) -> None:
    path.with_suffix(".head.json").unlink()


@pytest.mark.parametrize("meddle", [cheaper, one_line_less, an_older_copy, nothing_at_all, no_head])
def test_an_account_that_was_meddled_with_is_refused(tmp_path: Path, meddle: Callable[[Path], None]) -> None:
    path = tmp_path / "ledger.sqlite"
    with worker_ledger(path, RunBudget()) as ledger:
        ledger.charge(charge("a"))
    shutil.copyfile(path, path.with_name("before.sqlite"))
    with worker_ledger(path, RunBudget()) as ledger:
        ledger.charge(charge("b"))
    meddle(path)
    with pytest.raises(LedgerError, match=r"cannot be trusted|is not there although"), worker_ledger(path, RunBudget()):
        pass


def test_a_passive_partys_ledger_is_not_taken_for_a_workers(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with worker_ledger(path, RunBudget()) as ledger:
        ledger.charge(charge())
    with pytest.raises(LedgerError, match="line 2 is not one that this version writes"):
        Ledger(path)


def test_a_run_that_goes_on_counts_for_both_and_once_only(tmp_path: Path) -> None:
    """A second one that goes on from the same run, or from one that is not here, costs as much as any."""
    path = tmp_path / "ledger.sqlite"

    def continued(run: str, before: str, epsilon: float = 1.0, coordinator: str = "hub") -> RunCharge:
        return RunCharge(
            run=run, coordinator=coordinator, epsilon=epsilon, delta=1e-6, continues=before, continued_holder=before
        )

    with worker_ledger(path, RunBudget(epsilon=2.5)) as ledger:
        ledger.charge(charge("spring"), "spring")
    position = ledger_position(path, RunBudget(epsilon=2.5), continued("autumn", "spring", 1.25))
    assert (position.cost, position.remaining[0]) == ((0.25, 0.0), 1.25)
    with worker_ledger(path, RunBudget(epsilon=2.5)) as ledger:
        ledger.charge(continued("autumn", "spring", 1.25), "autumn")
        assert ledger.spent() == (1.25, 1e-6)
        ledger.charge(continued("winter", "autumn", 1.25), "winter")
        assert ledger.spent() == (1.25, 1e-6)
        # Back to spring, from which autumn goes on.
        ledger.charge(continued("branch", "spring"), "branch")
        assert ledger.spent() == (2.25, 2e-6)
        for unknown in (continued("x", "summer"), continued("x", "winter", coordinator="other")):
            assert ledger.added(unknown) == (1.0, 1e-6)
            with pytest.raises(OverBudget, match=r"epsilon 2\.25 was spent and this run costs 1, .* of 2\.5"):
                ledger.charge(unknown)
    with worker_ledger(path, RunBudget()) as again:
        assert again.spent() == (2.25, 2e-6)
        assert [one.continues for one in again.charges()] == ["", "spring", "autumn", ""]
        again.charge(continued("x", "branch", math.inf), "x")
        assert again.spent()[0] == math.inf
        assert again.added(continued("y", "x", math.inf)) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("kept", "told", "added"), [("a", "a", 0.0), ("a", "b", 1.0), ("a", "", 1.0), ("", "a", 1.0), ("", "", 1.0)]
)
def test_a_run_goes_on_from_the_one_of_that_name_whose_noise_it_knows(
    tmp_path: Path, kept: str, told: str, added: float
) -> None:
    """Another project may have one of the same name, on other records. Early versions told no noise, nor went on."""
    path = tmp_path / "ledger.sqlite"
    later = RunCharge(
        run="autumn", coordinator="hub", epsilon=1.0, delta=1e-6, continues="spring", continued_holder=told
    )
    with worker_ledger(path, RunBudget()) as ledger:
        ledger.charge(charge("spring"), kept)
        assert ledger.added(later)[0] == added
        ledger.charge(later, "c")
        assert ledger.spent()[0] == 1.0 + added
        assert [one.continues for one in ledger.charges()] == ["", "" if added else "spring"]
    with worker_ledger(path, RunBudget()) as again:
        assert again.spent()[0] == 1.0 + added


def test_a_run_that_goes_on_does_not_lower_what_the_one_before_has_cost(tmp_path: Path) -> None:
    """Two calibrations for one budget differ by a millionth, and the records of before have spent the larger one."""
    path = tmp_path / "ledger.sqlite"
    with worker_ledger(path, RunBudget(epsilon=3.0)) as ledger:
        ledger.charge(RunCharge(run="spring", coordinator="hub", epsilon=1.25, delta=2e-6), "s")
        later = RunCharge(
            run="autumn", coordinator="hub", epsilon=1.0, delta=1e-6, continues="spring", continued_holder="s"
        )
        assert ledger.added(later) == (0.0, 0.0)
        ledger.charge(later, "a")
        ledger.charge(later, "a")
        assert ledger.spent() == (1.25, 2e-6)
        ledger.charge(replace(later, run="winter", continues="autumn", continued_holder="a", epsilon=1.5))
        assert ledger.spent() == (1.5, 2e-6)
    with worker_ledger(path, RunBudget()) as again:
        assert again.spent() == (1.5, 2e-6)
