"""Remote row holder: open questions are one round, splits of several levels one message, in the order of the core."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opboost.trees.splitting import Splits
from parties.horizontal.remote_holder import RemoteHolder
from protocols.messages.horizontal import Divide, FinishTree, StartTree, WantHistograms, WantTotals
from protocols.messages.message import Message


class Group:
    """Workers whose sums are 0, 1, 2, ... in the order in which they are asked for."""

    def __init__(self) -> None:
        self.told: list[Message] = []
        self.lengths: list[int] = []

    def tell(self, message: Message) -> None:
        self.told.append(message)

    want = tell

    def total(self, length: int) -> NDArray[np.int64]:
        self.lengths.append(length)
        return np.arange(length, dtype=np.int64)


def splits(*nodes: int) -> Splits:
    n = len(nodes)
    given: dict[str, Any] = {
        "nodes": np.array(nodes),
        "columns": np.arange(n),
        "cuts": np.full(n, 3),
        "missing_left": np.zeros(n, np.bool_),
    }
    names = set(Splits.__dataclass_fields__)
    given |= {name: np.zeros(n) for name in names - set(given)}
    return Splits(**given)


def test_questions_are_answered_in_one_round_when_the_first_answer_is_needed() -> None:
    group = Group()
    holder = RemoteHolder(group)
    first, second = holder.totals_later(np.array([1])), holder.totals_later(np.array([2, 5]))
    assert group.lengths == []
    np.testing.assert_array_equal(second(), [[2, 3], [4, 5]])
    np.testing.assert_array_equal(first(), [[0, 1]])
    np.testing.assert_array_equal(first(), [[0, 1]])
    assert group.lengths == [6]
    assert [type(message) for message in group.told] == [WantTotals, WantTotals]


def test_histograms_take_the_place_of_what_is_there() -> None:
    group, out = Group(), np.ones((1, 2, 3), np.int64)
    RemoteHolder(group).write_histograms(np.array([4]), out)
    np.testing.assert_array_equal(out, np.arange(6).reshape(1, 2, 3))
    (asked,) = group.told
    assert isinstance(asked, WantHistograms)
    assert asked.nodes.tolist() == [4]


def test_splits_of_several_levels_are_told_together_before_the_next_question() -> None:
    group = Group()
    holder = RemoteHolder(group)
    holder.divide(splits(0))
    holder.divide(splits(1, 2))
    assert group.told == []
    holder.totals(np.array([3]))
    divide = group.told[0]
    assert isinstance(divide, Divide)
    assert (divide.levels.tolist(), divide.nodes.tolist()) == ([1, 2], [0, 1, 2])
    assert isinstance(group.told[1], WantTotals)


def test_the_leaves_of_a_finished_tree_follow_its_last_splits() -> None:
    class Grown:
        values = np.array([0.0, 1.5, -2.0])
        is_leaf = np.array([False, True, True])

    group = Group()
    holder = RemoteHolder(group)
    holder.start_tree(0)
    holder.divide(splits(0))
    holder.finish_tree(Grown())  # type: ignore[arg-type]
    assert [type(message) for message in group.told] == [StartTree, Divide, FinishTree]
    finished = group.told[-1]
    assert isinstance(finished, FinishTree)
    assert finished.values.tolist() == [1.5, -2.0]
