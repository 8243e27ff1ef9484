"""Accounts of records hold against any coordinator: whatever it sends in whatever order, and however often the worker
is started again, no record contributes more to what is released than its account was made for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from opboost.errors import AccountError
from opboost.horizontal.noise.distributed_noise import shared_leaf_noise
from opboost.horizontal.noise.leaf_noise import LeafNoise, leaf_noise
from opboost.horizontal.rows.record_holder import RecordHolder, WalkingHolder, contributions
from opboost.horizontal.sgbdt.owners import SGBDTAmongOwners
from opboost.horizontal.tree_rules import TreeRules
from opboost.rng import seeded
from opboost.trees.kernels.packing import grad_of, hess_of
from parties.errors import EXPECTED_ERRORS
from parties.horizontal.answered_questions import Answered
from parties.horizontal.verified_rows import VerifiedRows
from parties.horizontal.worker import WorkerJob
from protocols.errors import UnexpectedMessage
from protocols.messages.horizontal import Divide, FinishTree, Masked, StartTree, WantHistograms, WantTotals
from protocols.messages.message import Message
from tests.support.one_worker import LoneWorker
from tests.support.workers import CLIPPING, job, recipe, rows

pytestmark = pytest.mark.usefixtures("one_thread")

BUDGET: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "n_trees": 2, "has_filter": True}
# The budget is for two trees of full contributions.
N_TREES = 12

NOISES: dict[str, Callable[[], LeafNoise]] = {
    "all records in every round": cache(lambda: leaf_noise(CLIPPING, initial_share=0, **BUDGET)),
    "sampled records": cache(lambda: leaf_noise(CLIPPING, initial_share=0, rate=0.5, **BUDGET)),
    "noise in shares": cache(lambda: shared_leaf_noise(CLIPPING, n_honest=2, n_extra_trees=N_TREES - 2, **BUDGET)),
}

ROOT = np.zeros(1, np.int32)
VALUES = st.lists(st.sampled_from((-1.0, 0.0, 0.5, 1.0)), min_size=4, max_size=4)


class Contributions:
    """What every record really adds to released sums, beside what an account of it says.

    Parameters
    ----------
    noise : LeafNoise
    """

    def __init__(self, noise: LeafNoise) -> None:
        self._std, self._prices = noise.grad_std, noise.prices()
        self._of_answers: dict[int, tuple[Any, Any]] = {}
        n_records = len(rows(0)[1])
        accounts = noise.filter_for(n_records)
        assert accounts is not None
        self.budget = accounts.budget
        self.spent = np.zeros(n_records)
        self._released: dict[Any, list[Any]] = {}

    def note(self, records: Any, totals: Any) -> None:
        """Keep what the records contribute to an answer, which is not released yet."""
        self._of_answers[id(totals)] = totals, records._rows.gradients.copy()

    def release(self, answers: list[Any], question: Any) -> None:
        """Count answers once; a question that comes again has the same ones."""
        known = self._released.setdefault(question, answers)
        if known is not answers:
            assert all(np.array_equal(one, other) for one, other in zip(known, answers, strict=True))
            return
        for answer in answers:
            _, words = self._of_answers[id(answer)]
            grad, hess = (np.array([of(word) for word in words]) for of in (grad_of, hess_of))
            mu_squared = CLIPPING.norms_squared(grad, hess) / self._std**2
            charges = mu_squared if self._prices is None else self._prices.charges(mu_squared)
            self.spent += np.where(words != 0, charges, 0.0)


@pytest.fixture
def noting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Contributions], None]]:
    """Let contributions be noted wherever records answer."""
    heard: list[Contributions] = []
    answer = WalkingHolder.totals

    def totals(self: WalkingHolder, nodes: Any) -> Any:
        found = answer(self, nodes)
        heard[-1].note(self, found)
        return found

    monkeypatch.setattr(WalkingHolder, "totals", totals)
    return heard.append


def job_with(noise: LeafNoise, kind: type[SGBDTAmongOwners] = SGBDTAmongOwners) -> WorkerJob:
    plain = recipe(n_trees=N_TREES)
    of = kind(task=plain.task, settings=plain.settings, noise=noise, n_trees=N_TREES, delta=1e-6)
    return replace(job(of, 0), make_rows=lambda: of.rows(*rows(0), rng=seeded(1)))


class Attacker:
    """A coordinator that knows the public bits, and what its sums contain.

    Parameters
    ----------
    a_job : WorkerJob
    found : Contributions
    verified : callable
    """

    def __init__(
        self, a_job: WorkerJob, found: Contributions, verified: Callable[..., VerifiedRows] = VerifiedRows
    ) -> None:
        self._job, self._found, self._verified = a_job, found, verified
        self.worker = LoneWorker(a_job, verified)

    def tell(self, message: Message) -> bool:
        """Whether the worker took a message."""
        try:
            self.worker.handle(message)
        except EXPECTED_ERRORS:
            return False
        return True

    def divide(self, n_levels: int) -> bool:
        """Split the next levels as public bits say."""
        growing = self.worker.rows._growing
        if not growing:
            return False
        tree = growing[-1]
        levels = (tree.drawn or [])[len(tree.levels) :][:n_levels]
        if not levels:
            return False
        parts = {
            name: np.concatenate([getattr(level, name) for level in levels])
            for name in ("nodes", "columns", "cuts", "missing_left")
        }
        return self.tell(Divide(levels=np.array([len(level.nodes) for level in levels], "<i4"), **parts))

    def add_up(self, n_wanted: int) -> None:
        """Have the answers to the last questions released."""
        asked, n_sent = self.worker.session._wanted[-n_wanted:], len(self.worker.sent.messages)
        with suppress(*EXPECTED_ERRORS):
            self.worker.add_up(self.worker.handle, n_wanted)
        if any(isinstance(message, Masked) for message in self.worker.sent.messages[n_sent:]):
            answered = self.worker.rows.asked.answered
            self._found.release(asked, (answered.questions, n_wanted))

    def finish(self, values: Callable[[int], Any]) -> bool:
        growing = self.worker.rows._growing
        n_leaves = int(growing[0].is_leaf.sum()) if growing else 1
        return self.tell(FinishTree(values=np.asarray(values(n_leaves), float)))

    def restart(self) -> None:
        """The worker's process ends, and another one takes the run up."""
        answered = self.worker.notes[-1] if self.worker.notes else self.worker.job.answered
        self.worker = LoneWorker(replace(self._job, answered=answered), self._verified)


class Coordinator(RuleBasedStateMachine):
    """All that a coordinator may do, in any order; `make` and `listen` are set by tests."""

    make: Callable[[], tuple[WorkerJob, Contributions]]
    listen: Callable[[Contributions], None]
    most_spent: list[float]

    def __init__(self) -> None:
        super().__init__()
        a_job, self.found = type(self).make()
        type(self).listen(self.found)
        self.attacker = Attacker(a_job, self.found)
        self.n_restarts = 0

    @rule(is_next=st.booleans())
    def start_tree(self, is_next: bool) -> None:
        self.attacker.tell(StartTree(output=self.attacker.worker.rows.n_started if is_next else 0))

    @rule(n_levels=st.integers(1, 3))
    def divide(self, n_levels: int) -> None:
        self.attacker.divide(n_levels)

    @rule(nodes=st.sampled_from(([0], [1, 2], [3, 4, 5, 6], [5], [0, 1], [3, 3])), is_histogram=st.booleans())
    def want(self, nodes: list[int], is_histogram: bool) -> None:
        self.attacker.tell((WantHistograms if is_histogram else WantTotals)(nodes=np.array(nodes, "<i4")))

    @rule(n_wanted=st.integers(1, 3))
    def add_up(self, n_wanted: int) -> None:
        self.attacker.add_up(n_wanted)

    @rule()
    def ask(self) -> None:
        """A question for all leaves, and its answer."""
        growing = self.attacker.worker.rows._growing
        leaves = np.flatnonzero(growing[-1].is_leaf) if growing else np.zeros(1)
        if self.attacker.tell(WantTotals(nodes=leaves.astype("<i4"))):
            self.attacker.add_up(1)

    @rule(values=VALUES)
    def finish_tree(self, values: list[float]) -> None:
        self.attacker.finish(lambda n_leaves: np.resize(values, n_leaves))

    @rule(is_next=st.booleans(), n_levels=st.integers(0, 2), values=VALUES, is_finished=st.booleans())
    def whole_tree(self, is_next: bool, n_levels: int, values: list[float], is_finished: bool) -> None:
        self.start_tree(is_next)
        self.divide(n_levels)
        self.ask()
        if is_finished:
            self.finish_tree(values)

    @precondition(lambda self: self.n_restarts < 2)
    @rule()
    def restart(self) -> None:
        self.n_restarts += 1
        self.attacker.restart()

    @rule()
    def meet(self) -> None:
        with suppress(*EXPECTED_ERRORS):
            self.attacker.worker.meet(self.attacker.worker.handle)

    @invariant()
    def accounts_hold(self) -> None:
        assert (self.found.spent <= self.found.budget).all()
        self.most_spent.append(float(self.found.spent.max() / self.found.budget))


def attack(make: Callable[[], tuple[WorkerJob, Contributions]], listen: Any, *, n_examples: int) -> float:
    """Run the machine; the largest share of an account that any record spent."""
    made = {"make": staticmethod(make), "listen": staticmethod(listen), "most_spent": []}
    kind: Any = type("Attack", (Coordinator,), made)
    size = settings(
        max_examples=n_examples, stateful_step_count=40, deadline=None, derandomize=True, phases=[Phase.generate]
    )
    run_state_machine_as_test(kind, settings=size)
    return max(kind.most_spent)


@pytest.mark.parametrize("name", NOISES)
def test_no_record_contributes_more_than_its_account(name: str, noting: Any) -> None:
    noise = NOISES[name]()
    most = attack(lambda: (job_with(noise), Contributions(noise)), noting, n_examples=30)
    assert most > 0.99


class UncheckedTurns(SGBDTAmongOwners):
    """The twin: trees may share gradients."""

    @property
    def tree_rules(self) -> TreeRules:
        return replace(super().tree_rules, batch_size=N_TREES)


def start_tree_without_paying(self: Any, output: int) -> None:
    self._rows.start_tree()
    if output == 0:
        self._contributions = contributions(self._gradients(self._scores, self._labels), self._clipping, self._admit)
    self._rows.gradients[:] = self._contributions


def test_the_machine_finds_trees_that_use_gradients_which_were_paid_for_once(
    monkeypatch: pytest.MonkeyPatch, noting: Any
) -> None:
    noise = NOISES["all records in every round"]()
    monkeypatch.setattr(RecordHolder, "start_tree", start_tree_without_paying)
    with pytest.raises(AssertionError):
        attack(lambda: (job_with(noise, UncheckedTurns), Contributions(noise)), noting, n_examples=100)


def test_a_holder_with_accounts_refuses_gradients_that_were_paid_for_once() -> None:
    """Also where nothing stands between it and who asks."""
    holder = job_with(NOISES["sampled records"]()).make_rows()
    holder.start_tree(0)
    with pytest.raises(AccountError, match="pay for the gradients of every tree anew"):
        holder.start_tree(1)


def spend_twice(found: Contributions, verified: Callable[..., VerifiedRows]) -> bool:
    """Two trees of full contributions; then a new process is told of others, which cost less, and is asked for more.

    Whether the new process took part.
    """
    attacker = Attacker(job_with(NOISES["all records in every round"]()), found, verified)
    nothing, away = (lambda n_leaves: np.zeros(n_leaves)), (lambda n_leaves: np.ones(n_leaves))
    for _ in range(2):
        attacker.tell(StartTree(output=0))
        attacker.tell(WantTotals(nodes=ROOT))
        attacker.add_up(1)
        attacker.finish(nothing)
    attacker.restart()
    for values in (away, away, nothing, away):
        is_in = attacker.tell(StartTree(output=0))
        if attacker.tell(WantTotals(nodes=ROOT)):
            attacker.add_up(1)
        attacker.finish(values)
    return is_in


class ForgetfulRows(VerifiedRows):
    """The twin that does not compare what a new process is told with what was answered on."""

    def __init__(self, *args: Any, answered: Answered, **options: Any) -> None:
        super().__init__(*args, answered=answered, **options)
        self.asked.answered = Answered()
        self._n_silent = answered.n_trees

    def answer(self, question: Any) -> Any:
        if self.n_started <= self._n_silent:
            raise UnexpectedMessage("answered before")
        return super().answer(question)


def test_a_worker_that_was_started_again_goes_on_with_the_trees_that_it_answered_on_or_not_at_all(noting: Any) -> None:
    noise = NOISES["all records in every round"]()
    noting(found := Contributions(noise))
    assert not spend_twice(found, VerifiedRows)
    assert (found.spent <= found.budget).all()
    assert found.spent.max() > 0.99 * found.budget
    noting(found := Contributions(noise))
    assert spend_twice(found, ForgetfulRows)
    assert (found.spent > found.budget).any()
