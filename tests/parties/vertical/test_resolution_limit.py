"""What may be resolved is counted over all attempts of a run and over all runs, and entered before it is answered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.ranking import Ranking, RankTable
from opboost.schema import ColumnSchema
from opboost.trees.boosting import BoostingParameters
from parties.ledger.ledger_lines import Occasion
from parties.ledger.release_ledger import Ledger
from parties.vertical.resolution_limit import ResolvedTests, most_tests
from protocols.errors import UnexpectedMessage
from protocols.messages.vertical import Hello, Role, SplitRanks, Task, Terms

MECHANISMS = tuple(ColumnMechanism(ColumnSchema(name=name, lower=0, upper=9), MechanismSettings()) for name in "ab")


def asked(*ranks: int, column: int = 0, missing_left: bool = False) -> SplitRanks:
    n = len(ranks)
    return SplitRanks(
        columns=np.full(n, column, np.uint32), ranks=np.array(ranks, np.uint32), missing_left=np.full(n, missing_left)
    )


def column(name: str, n_ranks: int) -> Ranking:
    return Ranking(name, None, RankTable(np.arange(n_ranks)), True, None)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.sqlite") as found:
        yield found


def ask(
    ledger: Ledger, wanted: SplitRanks, *, run: str = "spring", peer: str = "bank", agreed: int | None = None
) -> int:
    """A run's attempt in which at most four tests may be resolved; tells how many were entered of column a."""
    resolved = ResolvedTests(ledger, Occasion(run_id=run, task="train", peer=peer))
    columns = [column("a", 10), column("b", 10)]
    found = resolved.resolve(wanted, columns, MECHANISMS, is_secure=True, most=4, agreed=agreed, peer=peer)
    assert found.thresholds.tolist() == [rank + 0.5 for rank in wanted.ranks.tolist()]
    if "a" not in ledger.sums.families.values():
        ledger.sums.families.update({test[0]: "a" for test in ledger.sums.tests(peer)})
    return ledger.sums.n_tests("a")


def test_a_resumed_run_is_not_counted_twice_and_another_models_tests_add_up(ledger: Ledger) -> None:
    for _ in range(3):
        assert ask(ledger, asked(1, 2, 3)) == 3
    assert ledger.n_lines == 2
    with pytest.raises(UnexpectedMessage, match=r"^bank asked for 5 split tests in this run; .* at most 4\. No thres"):
        ask(ledger, asked(4, 5))
    assert ask(ledger, asked(3, 4)) == 4
    for other in (asked(5), asked(1, column=1), asked(1, missing_left=True)):
        with pytest.raises(UnexpectedMessage, match="asked for 5 split tests"):
            ask(ledger, other)


def test_runs_together_get_no_more_of_a_release_than_was_agreed(ledger: Ledger) -> None:
    """Nine runs with four tests each would have all thresholds."""
    assert [ask(ledger, asked(run), run=f"run{run}", agreed=4) for run in range(4)] == [1, 2, 3, 4]
    with pytest.raises(UnexpectedMessage, match=r"asked for 5 split tests of these columns in all runs"):
        ask(ledger, asked(4), run="run4", agreed=4)
    assert ask(ledger, asked(0, 3), run="run4", agreed=4) == 4
    assert ask(ledger, asked(8), run="run5", peer="post", agreed=4) == 5
    assert [ask(ledger, asked(run), run=f"run{run}", agreed=10) for run in range(4, 9)] == [6, 7, 8, 9, 9 + 1]


def test_where_no_number_was_agreed_on_all_runs_together_get_what_one_model_asks(ledger: Ledger) -> None:
    assert [ask(ledger, asked(run), run=f"run{run}") for run in range(4)] == [1, 2, 3, 4]
    assert ask(ledger, asked(3, 2, 1, 0), run="run4") == 4
    with pytest.raises(UnexpectedMessage, match=r"5 split tests of these columns in all runs; `agreed.tests` or"):
        ask(ledger, asked(4), run="run5")
    assert ask(ledger, asked(4), run="run4", peer="post") == 5


def test_what_was_counted_is_known_when_the_ledger_is_opened_again(tmp_path: Path, ledger: Ledger) -> None:
    ask(ledger, asked(1, 2, 3, 4))
    with Ledger(tmp_path / "ledger.sqlite") as again:
        assert again.sums.tests("bank") == ledger.sums.tests("bank")
        with pytest.raises(UnexpectedMessage):
            ask(again, asked(5))


def test_what_is_refused_does_not_count(ledger: Ledger) -> None:
    for wanted in (asked(*range(9)), asked(1, 1)):
        with pytest.raises(UnexpectedMessage):
            ask(ledger, wanted)
    assert ledger.n_lines == 1
    ask(ledger, asked(*range(4)))


def test_an_active_party_that_says_nothing_is_allowed_none() -> None:
    def hello(role: Role, **terms: Terms) -> Hello:
        return Hello(role=role, party="x", run_id="r", task=Task.TRAIN, n_rows=1, **terms)

    for planned, agreed, most in ((None, None, 0), (None, 5, 0), (7, None, 7), (7, 5, 5), (5, 7, 5), (5, 0, 0)):
        mine, theirs = hello(Role.PASSIVE, agreed=Terms(tests=agreed)), hello(Role.ACTIVE, plan=Terms(tests=planned))
        assert most_tests(mine, theirs, [column("a", 100)]) == most
        assert most_tests(mine, theirs, [column("a", 1), column("b", 2)]) == min(6, most)
        assert most_tests(mine, theirs, []) == 0


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({"max_depth": 3}, 7),
        ({"max_depth": 3, "max_leaves": 5}, 4),
        ({"max_depth": 3, "max_leaves": 50}, 7),
        ({"max_depth": 0, "max_leaves": 50}, 49),
    ],
)
def test_a_tree_has_no_more_splits_than_its_depth_and_leaves_allow(settings: dict[str, int], most: int) -> None:
    assert BoostingParameters(**settings).max_splits == most  # type: ignore[arg-type]
