"""What a run may have resolved is counted over all its attempts, and kept before it is answered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opboost.ranking import RankTable
from opboost.trees.boosting import BoostingParameters
from parties.errors import RunFolderError
from parties.vertical.release_offer import PackedColumn
from parties.vertical.resolution_limit import FILE, ResolvedTests, most_tests
from protocols.errors import UnexpectedMessage
from protocols.messages.vertical import Hello, Role, SplitRanks, Task, Terms


def asked(*ranks: int, column: int = 0, missing_left: bool = False) -> SplitRanks:
    n = len(ranks)
    return SplitRanks(
        columns=np.full(n, column, np.uint32), ranks=np.array(ranks, np.uint32), missing_left=np.full(n, missing_left)
    )


def ask(folder: Path, wanted: SplitRanks) -> None:
    """A run's attempt in which at most four tests may be resolved."""
    resolved = ResolvedTests(folder)
    resolved.keep(resolved.admit(wanted, most=4, peer="bank"))


def test_a_resumed_run_is_not_counted_twice_and_another_models_tests_add_up(tmp_path: Path) -> None:
    for _ in range(3):
        ask(tmp_path, asked(1, 2, 3))
    with pytest.raises(UnexpectedMessage, match=r"^bank asked for 5 split tests in this run; .* at most 4\. No thres"):
        ask(tmp_path, asked(4, 5))
    ask(tmp_path, asked(3, 4))
    for other in (asked(5), asked(1, column=1), asked(1, missing_left=True)):
        with pytest.raises(UnexpectedMessage, match="asked for 5 split tests"):
            ask(tmp_path, other)


def test_what_is_refused_does_not_count(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(UnexpectedMessage):
            ask(tmp_path, asked(*range(9)))
    assert not (tmp_path / FILE).exists()
    ask(tmp_path, asked(*range(4)))


@pytest.mark.parametrize("content", ["", "[[1, 2]]", "[[-1, 2, true]]", "{}", "[" * 100_000])
def test_what_cannot_be_read_is_not_taken_for_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(RunFolderError, match=r"resolved\.json cannot be read; choose another run_id"):
        ask(tmp_path, asked(1))


def column(n_ranks: int) -> PackedColumn:
    return PackedColumn("c", None, RankTable(np.arange(n_ranks)), False, "", 0)


def test_an_active_party_that_says_nothing_is_allowed_none() -> None:
    def hello(role: Role, **terms: Terms) -> Hello:
        return Hello(role=role, party="x", run_id="r", task=Task.TRAIN, n_rows=1, **terms)

    for planned, agreed, most in ((None, None, 0), (None, 5, 0), (7, None, 7), (7, 5, 5), (5, 7, 5), (5, 0, 0)):
        mine, theirs = hello(Role.PASSIVE, agreed=Terms(tests=agreed)), hello(Role.ACTIVE, plan=Terms(tests=planned))
        assert most_tests(mine, theirs, [column(100)]) == most
        assert most_tests(mine, theirs, [column(1), column(2)]) == min(6, most)
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
