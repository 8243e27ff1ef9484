"""What a worker refuses of its coordinator's messages, and that a refusal leaves everything as it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opboost.errors import AccountError, ParameterError
from opboost.horizontal.federated.question_verifier import AskedRows
from opboost.rng import seeded
from parties.horizontal.answered_questions import Answered
from protocols.errors import SumRefused, UnexpectedMessage
from protocols.messages.horizontal import AddUp, Divide, FinishTree, Place, StartTree, WantHistograms, WantTotals
from protocols.messages.message import Message
from protocols.secure_aggregation.masking import mask
from tests.support import federated_workers, workers
from tests.support.digests import digest
from tests.support.one_worker import EVERYBODY, LoneWorker
from tests.support.workers import rows

pytestmark = pytest.mark.usefixtures("one_thread")

# Three columns with eight cuts each; two levels.
HIST = federated_workers.recipe(split_method="hist", split_candidates="ih")
TR = federated_workers.recipe(batch_size=3)
REFINED = federated_workers.recipe(split_candidates="ih", hessian_rounds=1)
SHARED = federated_workers.recipe(n_honest=2)
SGBDT = workers.recipe()


def worker(of: Any, *said: Message, answered: Answered | None = None) -> LoneWorker:
    """A worker that was told something."""
    of_recipe: Any = workers if of is SGBDT else federated_workers
    job = replace(of_recipe.job(of, 0), make_rows=lambda: of.rows(*rows(0), rng=seeded(1)))
    found = LoneWorker(replace(job, answered=answered or Answered()))
    for message in said:
        found.handle(message)
    return found


def nodes(*numbers: int) -> Any:
    return np.array(numbers, "<i4")


def divide(*levels: Sequence[int], column: int = 0, cut: int = 3, **changes: Any) -> Divide:
    """Split these nodes, level by level, all at one cut."""
    together = nodes(*(node for level in levels for node in level))
    parts: dict[str, Any] = {
        "levels": nodes(*map(len, levels)),
        "nodes": together,
        "columns": np.full_like(together, column),
        "cuts": np.full_like(together, cut),
        "missing_left": np.zeros(len(together), np.bool_),
    }
    return Divide(**{**parts, **changes})


def finish(*values: float) -> FinishTree:
    return FinishTree(values=np.array(values, float))


def place(cuts: Any) -> Place:
    return Place(cuts=np.asarray(cuts, float))


START, ROOT = StartTree(output=0), nodes(0)
CUTS = np.tile(np.arange(8) / 8, (3, 1))

REFUSED: dict[str, tuple[Any, Sequence[Message], Message, str]] = {
    "a tree out of its turn": (SGBDT, [], StartTree(output=1), "for the output 0 and not 1: it was begun out of its"),
    "gradients of the tree before": (SGBDT, [START, finish(0)], StartTree(output=1), "out of its turn"),
    "another output of the batch": (TR, [START], StartTree(output=2), "for the output 1 and not 2"),
    "a tree before the last is finished": (HIST, [START], START, "before the one before it was finished"),
    "a batch before the last is finished": (
        TR,
        [START, StartTree(output=1), StartTree(output=2)],
        START,
        "before the one before it was finished",
    ),
    "a split of no tree": (HIST, [], divide([0]), "a split came where no tree is grown"),
    "a split of a finished tree": (HIST, [START, finish(0)], divide([0]), "a split came where no tree is grown"),
    "no levels": (HIST, [START], divide(), "splits do not fit their levels"),
    "an empty level": (HIST, [START], divide([0], levels=nodes(1, 0)), "splits do not fit their levels"),
    "levels of other sizes": (HIST, [START], divide([0], levels=nodes(2)), "splits do not fit their levels"),
    "levels that overflow": (HIST, [START], divide([0], levels=nodes(*[2**31 - 1] * 2)), "do not fit their levels"),
    "cuts of another length": (HIST, [START], divide([0], cuts=nodes(3, 3)), "splits do not fit their levels"),
    "a level too many": (HIST, [START], divide([0], [1, 2], [3, 4]), "or these are more than 2 in all"),
    "a level too many, later": (HIST, [START, divide([0], [2])], divide([3]), "or these are more than 2 in all"),
    "a node that is no leaf": (HIST, [START, divide([0])], divide([0]), "nodes that are not the newest level"),
    "a node of an older level": (
        federated_workers.recipe(split_method="hist", max_depth=3),
        [START, divide([0], [2])],
        divide([1]),
        "nodes that are not the newest level",
    ),
    "a node beyond": (HIST, [START, divide([0])], divide([1, 3]), "nodes that are not the newest level"),
    "a negative node": (HIST, [START], divide([-1]), "nodes that are not the newest level"),
    "a node twice": (HIST, [START, divide([0])], divide([1, 1]), "nodes that are not the newest level"),
    "nodes in another order": (HIST, [START, divide([0])], divide([2, 1]), "nodes that are not the newest level"),
    "half a level of a complete tree": (TR, [START, divide([0])], divide([1]), "nodes that are not the newest level"),
    "a column beyond": (HIST, [START], divide([0], column=3), "a column that is not one of 3"),
    "a negative column": (HIST, [START], divide([0], column=-1), "a column that is not one of 3"),
    "the last cell": (HIST, [START], divide([0], cut=8), "a cut that its column does not have"),
    "a negative cut": (HIST, [START], divide([0], cut=-1), "a cut that its column does not have"),
    "a wrong second level": (HIST, [START], divide([0], [0, 1]), "nodes that are not the newest level"),
    "a split of the coordinator's own": (SGBDT, [START], divide([0], cut=14), "not the one that the public random"),
    "a question about no tree": (SGBDT, [], WantTotals(nodes=ROOT), "a question came where no tree is grown"),
    "a question about no node": (SGBDT, [START], WantTotals(nodes=nodes()), "of 0 nodes at once is no question"),
    "a node that is not there": (SGBDT, [START], WantTotals(nodes=nodes(5)), "does not have as leaves"),
    "a node that split": (HIST, [START, divide([0])], WantHistograms(nodes=ROOT), "does not have as leaves"),
    "a leaf twice": (HIST, [START, divide([0])], WantHistograms(nodes=nodes(1, 1)), "does not have as leaves"),
    "too many histograms": (
        HIST,
        [START, divide([0], [1, 2])],
        WantHistograms(nodes=nodes(3, 4, 5)),
        "of 3 nodes at once is no question",
    ),
    "histograms of sums alone": (SGBDT, [START], WantHistograms(nodes=ROOT), "of 1 nodes at once is no question"),
    "cells that stay": (TR, [START], place(CUTS), "the cells of this recipe stay where they are now"),
    "cells after the last round of Hessians": (
        REFINED,
        [START, finish(0), START],
        place(CUTS),
        "stay where they are now",
    ),
    "cells twice": (REFINED, [START, place(CUTS)], place(CUTS), "stay where they are now"),
    "cells under a tree that grows": (HIST, [START], place(CUTS), "cells were moved before the tree was finished"),
    "descending cells": (REFINED, [START], place(-CUTS), "need 8 ascending cuts"),
    "too few cells": (REFINED, [START], place(CUTS[:, 1:]), "need 8 ascending cuts"),
    "a question about a tree in old cells": (
        REFINED,
        [START, place(CUTS)],
        WantHistograms(nodes=ROOT),
        "a question came where no tree is grown",
    ),
    "a split of a tree in old cells": (REFINED, [START, place(CUTS)], divide([0]), "a split came where no tree"),
    "a finished tree that never began": (HIST, [], finish(0), "a finished tree came where no tree is grown"),
    "too few leaves": (HIST, [START, divide([0])], finish(0), "needs 2 values of leaves, each at most 0.6"),
    "too many leaves": (HIST, [START, divide([0])], finish(0, 0, 0), "needs 2 values of leaves"),
    "a leaf beyond what the recipe can give": (HIST, [START], finish(0.61), "each at most 0.6"),
    "a sum of nothing": (SGBDT, [START], AddUp(n_wanted=1, epoch=1, round=0, present=EVERYBODY), "but not of what"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_recipe_does_not_allow_is_refused_and_changes_nothing(name: str) -> None:
    of, said, wrong, words = REFUSED[name]
    each = worker(of, *said)
    before = digest([each.rows, each.session.trees, each.session._wanted])
    with pytest.raises(UnexpectedMessage) as caught:
        each.handle(wrong)
    assert words in str(caught.value)
    assert digest([each.rows, each.session.trees, each.session._wanted]) == before
    assert not each.notes


def test_a_refusal_by_the_account_changes_nothing_either(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_changed() -> bool:
        each = worker(SHARED, START, WantTotals(nodes=ROOT))
        before = digest(each.rows)
        with pytest.raises(AccountError, match="does not split further"):
            each.handle(divide([0]))
        return digest(each.rows) != before

    def note_first(self: Any, splits: Any) -> None:
        self._split.append(splits.nodes)
        self._holder.divide(splits)

    assert not is_changed()
    monkeypatch.setattr(AskedRows, "divide", note_first)
    assert is_changed()


def test_a_worker_is_told_nothing_that_it_derives_itself() -> None:
    assert set(Divide.model_fields) == {"levels", "nodes", "columns", "cuts", "missing_left"}
    assert set(FinishTree.model_fields) == {"values"}


def test_nothing_is_noted_as_answered_where_the_sum_is_refused() -> None:
    """The note comes after all that may be refused, and before the answer leaves."""
    each = worker(SGBDT, START, WantTotals(nodes=ROOT))
    each.meet(each.handle)
    with pytest.raises(SumRefused):
        each.handle(AddUp(n_wanted=1, epoch=1, round=0, present=~EVERYBODY))
    assert not each.notes
    each.add_up(each.handle, 1)
    assert [(one.n_trees, one.survivors) for one in each.notes] == [(1, ()), (1, ("mate", "w0"))]


def test_what_was_asked_for_but_never_summed_is_forgotten_with_its_batch() -> None:
    each = worker(SGBDT, START, WantTotals(nodes=ROOT), finish(0), START)
    with pytest.raises(UnexpectedMessage, match="but not of what"):
        each.add_up(each.handle, 1)


@pytest.mark.parametrize("is_about_anything", [False, True])
def test_no_worker_is_asked_anew_while_the_others_repeat_an_answer(
    is_about_anything: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The difference of two such sums would have this worker's own share of the noise alone; the broken twin has it."""
    if is_about_anything:
        monkeypatch.setattr("protocols.secure_aggregation.worker.pair_mask", lambda seed, about, n: mask(seed, n))
    each = worker(SHARED, START, WantTotals(nodes=ROOT))
    about = each.rows.asked.about(1)
    each.add_up(each.handle, 1)
    for message in (finish(0), START, WantTotals(nodes=ROOT)):
        each.handle(message)
    beside_repeated, beside_new = each.add_up(each.handle, 1, about=about), each.add_up(each.handle, 1)
    assert (beside_repeated == beside_new).all() == is_about_anything


def test_leaves_add_up_to_finite_scores() -> None:
    """Otherwise two of them could, and an end of the run would tell that some record is in both."""
    most = SGBDT.settings.learning_rate * SGBDT.settings.max_leaf
    each = worker(SGBDT, *[START, finish(most)] * SGBDT.n_trees)
    assert len(each.session.trees) == SGBDT.n_trees
    with pytest.raises(ParameterError, match="have no finite scores"):
        replace(SGBDT, settings=replace(SGBDT.settings, learning_rate=1e308))


def test_a_new_process_answers_only_after_the_same_history() -> None:
    said = [START, WantTotals(nodes=ROOT), finish(0.5), START]
    first = worker(SGBDT, *said)
    first.handle(WantTotals(nodes=ROOT))
    first.add_up(first.handle, 1)
    answered = first.notes[-1]
    told = [message for message in said if not isinstance(message, WantTotals)]
    with pytest.raises(UnexpectedMessage, match="this worker has answered for a later tree"):
        worker(SGBDT, START, WantTotals(nodes=ROOT), answered=answered)
    again = worker(SGBDT, *told, WantTotals(nodes=ROOT), answered=answered)
    for message in (finish(0), START, WantTotals(nodes=ROOT)):
        again.handle(message)
    with pytest.raises(UnexpectedMessage, match="answered for other trees than it is told of now"):
        worker(SGBDT, START, finish(0.25), START, answered=answered)
