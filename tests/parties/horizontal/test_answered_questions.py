"""No question has two answers: what a worker that was started again answers, and what it refuses."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pytest

from parties.horizontal.answered_questions import Answered, AnsweredQuestions
from protocols.errors import UnexpectedMessage
from protocols.secure_aggregation.epochs import majority_threshold


def asked(*questions: str, trees: int = 1, answered: Answered = Answered(), batch_size: int = 1) -> AnsweredQuestions:  # noqa: B008
    """After so many trees, of whose last batch these questions were asked."""
    found = AnsweredQuestions(answered, batch_size=batch_size)
    for number in range(trees):
        found.now = found.begun(f"history {number}")
    for question in questions:
        found.now = found.asked(question)
    return found


def test_the_last_sum_is_answered_again_and_the_next_one_too() -> None:
    before = asked("a", "b", "c", "d", trees=2)
    kept = before.summed(2)
    again = asked("a", "b", "c", "d", trees=2, answered=kept)
    assert again.summed(2) == kept
    again.now = again.asked("e")
    assert again.summed(1).n_questions == 5


def test_of_all_ways_to_sum_the_answers_none_takes_a_part_of_what_was_summed() -> None:
    """Enumerated: the sum before of k of n answers, and now of l of m; only the same one, or new answers, pass."""
    names = "abcde"
    for n, m in itertools.product(range(1, 5), repeat=2):
        for k, now in itertools.product(range(1, n + 1), range(1, m + 1)):
            kept = asked(*names[:n]).summed(k)
            found = asked(*names[:m], answered=kept)
            is_right = (m == n and now == k) or m - now >= n
            if is_right:
                found.summed(now)
            else:
                with pytest.raises(UnexpectedMessage, match="in another sum; nothing was sent"):
                    found.summed(now)


def test_other_questions_in_the_place_of_those_before_are_refused() -> None:
    kept = asked("a", "b").summed(1)
    with pytest.raises(UnexpectedMessage, match="answered other questions about this tree"):
        asked("a", "c", answered=kept)
    with pytest.raises(UnexpectedMessage, match="answered other questions about this tree"):
        asked("c", "b", answered=kept)


@pytest.mark.parametrize(
    ("trees", "batch_size", "is_earlier"), [(1, 1, True), (2, 2, True), (3, 2, False), (3, 1, False)]
)
def test_nothing_is_answered_for_an_earlier_batch(trees: int, batch_size: int, is_earlier: bool) -> None:
    kept = asked("a", trees=3, batch_size=batch_size).summed(1)
    found = asked(trees=trees, answered=kept, batch_size=batch_size)
    if is_earlier:
        with pytest.raises(UnexpectedMessage, match="for a later tree; nothing was sent"):
            found.asked("a")
    else:
        found.asked("a")


def test_another_history_is_refused() -> None:
    kept = asked("a", trees=2).summed(1)
    found = asked(answered=kept)
    with pytest.raises(UnexpectedMessage, match="answered for other trees than it is told of now"):
        found.begun("another")


def test_a_sum_that_was_opened_is_opened_over_the_same_workers_alone() -> None:
    """The difference of two sums of the same answers would be a worker's own."""
    first = asked("a")
    first.answered = first.summed(1)
    kept = first.opened_over(("w0", "w1", "w2"))
    again = asked("a", answered=kept)
    assert again.summed(1) == again.opened_over(("w0", "w1", "w2")) == kept
    with pytest.raises(UnexpectedMessage, match="over other workers; nothing was revealed"):
        again.opened_over(("w0", "w1"))
    again.now = again.asked("b")
    again.answered = again.summed(1)
    again.opened_over(("w0", "w1"))


WORKERS = tuple(f"w{i}" for i in range(6))


def openings(threshold: int, n_colluders: int, draw: random.Random) -> list[tuple[str, ...]]:
    """Sets of workers over which a coordinator has one sum opened, among ever other workers, with some that help it."""
    own = Answered(n_trees=1, n_questions=1, n_summed=1)
    asked = {name: AnsweredQuestions(own, batch_size=1) for name in WORKERS[n_colluders:]}
    opened = []
    for _ in range(60):
        epoch = draw.sample(WORKERS, draw.randint(threshold, len(WORKERS)))
        n_needed = majority_threshold(threshold, len(epoch))
        survivors = tuple(sorted(draw.sample(epoch, draw.randint(n_needed, len(epoch)))))
        willing: dict[str, Answered] = {}
        for name in draw.sample(survivors, len(survivors)):
            with suppress(KeyError, UnexpectedMessage):
                willing[name] = asked[name].opened_over(survivors)
        n_asked = n_needed - sum(name not in asked for name in survivors)
        if len(willing) >= n_asked:
            for name in [*willing][: max(0, n_asked)]:
                asked[name].answered = willing[name]
            opened.append(survivors)
    return opened


def tells_one(opened: Sequence[tuple[str, ...]], n_colluders: int) -> bool:
    """Whether an honest worker's answer follows from these sums and the answers of those that help."""
    known = np.array(
        [[name in one for name in WORKERS] for one in (*opened, *zip(WORKERS[:n_colluders], strict=True))], float
    )
    rank = np.linalg.matrix_rank(known)
    units = np.eye(len(WORKERS))[n_colluders:]
    return any(np.linalg.matrix_rank(np.vstack([known, unit])) == rank for unit in units)


@pytest.mark.parametrize(
    ("threshold", "n_colluders", "is_safe"), [(2, 0, True), (4, 1, True), (5, 2, True), (3, 1, False), (4, 2, False)]
)
def test_sums_that_workers_open_tell_no_single_answer_if_twice_the_threshold_is_over_all_workers_and_helpers(
    threshold: int, n_colluders: int, is_safe: bool
) -> None:
    """The twins have one helper too many: it may be the only one in two openings of a sum."""
    draw = random.Random(threshold)
    found = [tells_one(openings(threshold, n_colluders, draw), n_colluders) for _ in range(60)]
    assert any(found) is not is_safe
