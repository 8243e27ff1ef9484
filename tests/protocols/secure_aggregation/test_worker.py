"""Workers that are told different lists of who takes part: no coordinator reads fewer vectors than the threshold."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from Crypto.PublicKey import ECC

from protocols.errors import SumRefused, TooFewWorkers
from protocols.secure_aggregation.epochs import Epoch, Flags, Parcel
from protocols.secure_aggregation.masking import SEED_BYTES, add, confirmation, derive, mask, pair_mask, unseal
from protocols.secure_aggregation.sharing import combine
from protocols.secure_aggregation.sum import SumRound
from protocols.secure_aggregation.worker import SummedWorker
from protocols.transport.keys import KeyPair

# Of lists to workers; 2401 are all there are among four.
N_ASSIGNMENTS = int(os.environ.get("OPBOOST_LIST_ASSIGNMENTS", "200"))

Lists = tuple[frozenset[int], frozenset[int]]


def lasting() -> KeyPair:
    key = ECC.generate(curve="Curve25519")
    return KeyPair(bytes(key.public_key().export_key(format="raw")), key.seed)


def group(n: int, threshold: int) -> tuple[list[SummedWorker], Epoch]:
    """Workers that know each other's lasting keys, and have joined an epoch."""
    pairs = {f"w{u}": lasting() for u in range(n)}
    workers = [SummedWorker(name, "run", identity=pair) for name, pair in pairs.items()]
    keys = tuple(worker.public_key for worker in workers)
    epoch = Epoch(run="run", number=1, names=tuple(pairs), keys=keys, threshold=threshold)
    for worker in workers:
        worker.join(epoch, {name: pair.public for name, pair in pairs.items()})
    return workers, epoch


def flags(n: int, some: Iterable[int]) -> Flags:
    found = np.zeros(n, np.bool_)
    found[list(some)] = True
    return found


@dataclass
class Liar:
    """A coordinator that tells each worker lists of its own, and passes on all that it has."""

    workers: list[SummedWorker]
    epoch: Epoch
    number: int = -1
    colluders: frozenset[int] = frozenset()

    def ask(self, lists: Sequence[Lists], vectors: np.ndarray) -> None:
        self.number += 1
        n = self.epoch.n_workers
        self.lists = lists
        self.parcels = [worker.prepare(self.number) for worker in self.workers]
        self.masked = [
            worker.mask(self.number, flags(n, told[0]), vector)
            for worker, told, vector in zip(self.workers, lists, vectors, strict=True)
        ]
        told = [worker.confirm(self.number, flags(n, of[1])) for worker, of in zip(self.workers, lists, strict=True)]
        self.shares: dict[int, np.ndarray] = {}
        for v, worker in enumerate(self.workers):
            rows = np.stack([self.forged(u, v) if u in self.colluders else told[u][v] for u in range(n)])
            sealed = np.stack([parcel.sealed[v] for parcel in self.parcels])
            shares, _ = worker.unmask(self.number, sealed, rows)
            if shares.any():
                self.shares[v] = shares

    def forged(self, author: int, reader: int) -> np.ndarray:
        """What a worker that helps the coordinator confirms to another one: whatever that was told."""
        present, survivors = (flags(self.epoch.n_workers, some) for some in self.lists[reader])
        view = self.epoch.view(self.number, present, survivors, sender=author, receiver=reader)
        key = self.workers[author]._pairs[reader].confirmations
        return np.frombuffer(confirmation(key, view), np.uint8)

    def holders(self, dealer: int, *, is_alive: bool) -> list[int]:
        """Who gave, or gives, a share of a worker's b, or of its k."""
        honest = [
            v
            for v, rows in self.shares.items()
            if v not in self.colluders and rows[dealer].any() and (dealer in self.lists[v][1]) == is_alive
        ]
        return honest + sorted(self.colluders)

    def secret(self, dealer: int, *, is_alive: bool) -> bytes:
        some = self.holders(dealer, is_alive=is_alive)[: self.epoch.threshold]
        return combine({v: self.shares[v][dealer].tobytes() for v in some})

    def readable(self) -> np.ndarray:
        """A basis of the combinations of honest workers' masked vectors from which all masks go away, one per row."""
        n, t = self.epoch.n_workers, self.epoch.threshold
        has_b, has_k = (
            [u in self.colluders or len(self.holders(u, is_alive=is_alive)) >= t for u in range(n)]
            for is_alive in (True, False)
        )
        honest = [u for u in range(n) if u not in self.colluders]
        masks = np.zeros((n, n, n))
        for u in honest:
            masks[u, u, u] = not has_b[u]
            for v in self.lists[u][0] - {u}:
                masks[u, min(u, v), max(u, v)] = 0 if has_k[u] or has_k[v] else (1 if u < v else -1)
        left, sizes, _ = np.linalg.svd(masks[honest].reshape(len(honest), -1))
        return left.T[sizes < 1e-9]

    def reads_too_few(self) -> bool:
        """Whether less comes out than the sum over as many honest workers as there are without colluders."""
        basis = self.readable()
        if not len(basis):
            return False
        weights = np.abs(basis[0][np.abs(basis[0]) > 1e-9])
        enough = self.epoch.threshold - len(self.colluders)
        return len(basis) > 1 or len(weights) < enough or not np.allclose(weights, weights[0])


def possible(n: int, threshold: int, worker: int) -> list[Lists]:
    """All lists that a worker by itself accepts."""
    sets = [frozenset(some) for k in range(threshold, n + 1) for some in itertools.combinations(range(n), k)]
    return [(p, s) for p in sets for s in sets if worker in s <= p]


def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: workers that take everybody's word."""
    monkeypatch.setattr(SummedWorker, "_agreeing", lambda self, epoch, number, present, survivors, rows: survivors)


VECTORS = np.array([[1000 + u, 7 * u] for u in range(5)])
# Workers 1 and 2 look lost to some, and worker 0 masked with nobody else; each list alone is sound.
ALL = frozenset(range(5))
ATTACK: list[Lists] = [
    (frozenset({0, 1, 2}), frozenset({0, 1, 2})),
    *((ALL, frozenset(some)) for some in ((0, 1, 3), (0, 2, 3), (0, 3, 4), (0, 3, 4))),
]


def single(liar: Liar) -> list[int]:
    """Worker 0's vector: its masked one without its own mask, and without those with workers 1 and 2."""
    total = liar.masked[0].copy()
    add(total, mask(derive(liar.secret(0, is_alive=True), "own mask"), 2), is_plus=False)
    for d in (1, 2):
        opening = derive(liar.secret(d, is_alive=False), "seeds")
        context = liar.epoch.context(liar.number, d, d)
        seeds = unseal(opening, liar.epoch.nonce(liar.number), liar.parcels[d].seeds, context)
        add(total, pair_mask(seeds[:SEED_BYTES], b"", 2), is_plus=False)
    return total.view("<i8").tolist()


def test_workers_that_took_everybodys_word_would_show_a_single_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    unchecked(monkeypatch)
    liar = Liar(*group(5, 3))
    liar.ask(ATTACK, VECTORS)
    assert single(liar) == VECTORS[0].tolist()
    assert liar.reads_too_few()


def test_a_coordinator_that_tells_each_worker_other_lists_gets_no_share() -> None:
    liar = Liar(*group(5, 3))
    liar.ask(ATTACK, VECTORS)
    assert liar.shares == {}


@pytest.mark.parametrize(("n", "threshold", "n_colluders"), [(2, 2, 0), (3, 2, 0), (4, 3, 0), (4, 3, 1)])
def test_whatever_lists_each_worker_is_told_at_most_one_pair_is_answered_and_no_smaller_sum_read(
    n: int, threshold: int, n_colluders: int
) -> None:
    """Every assignment of lists that workers accept, or as many at random as the machine is to take."""
    liar = Liar(*group(n, threshold), colluders=frozenset(range(n - n_colluders, n)))
    options = [possible(n, threshold, u) for u in range(n - n_colluders)]
    whole = (frozenset(range(n)), frozenset(range(n)))
    every = list(itertools.product(*options, *[[whole]] * n_colluders))
    for lists in random.Random(0).sample(every, min(len(every), N_ASSIGNMENTS)):
        liar.ask(lists, VECTORS[:n])
        assert len({lists[v] for v in liar.shares if v not in liar.colluders}) <= 1, lists
        liar.shares |= dict.fromkeys(liar.colluders, np.ones((n, 16), np.uint8))
        assert not liar.reads_too_few(), lists


def test_nor_among_five_with_few_different_lists() -> None:
    """Random assignments of one to three pairs of lists."""
    draw, liar = random.Random(0), Liar(*group(5, 3))
    every = sorted({lists for u in range(5) for lists in possible(5, 3, u)}, key=lambda of: [sorted(p) for p in of])
    for _ in range(60):
        pool = [(ALL, ALL), *draw.sample(every, 2)]
        liar.ask([draw.choice([of for of in pool if u in of[1]]) for u in range(5)], VECTORS)
        assert not liar.reads_too_few()


@pytest.mark.parametrize("is_checked", [True, False])
def test_around_the_attack_among_five_no_lists_show_too_much_unless_nothing_is_confirmed(
    monkeypatch: pytest.MonkeyPatch, is_checked: bool
) -> None:
    """Worker 0 masked with 1 and 2 alone; all lists of three survivors with it, at each of the others."""
    if not is_checked:
        unchecked(monkeypatch)
    liar, found = Liar(*group(5, 3)), 0
    options = [[(ALL, frozenset({0, u, v})) for v in range(1, 5) if v != u] for u in range(1, 5)]
    for lists in itertools.product(*options):
        liar.ask([ATTACK[0], *lists], VECTORS)
        found += liar.reads_too_few()
    assert found == (0 if is_checked else 4)


def test_without_confirmations_other_lists_are_answered_in_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    unchecked(monkeypatch)
    liar = Liar(*group(3, 2))
    whole, two = frozenset(range(3)), frozenset({0, 1})
    liar.ask([(whole, two), (whole, whole), (whole, whole)], VECTORS[:3])
    assert {liar.lists[v] for v in liar.shares} == {(whole, two), (whole, whole)}


def confirmed_round(
    *, spoil: Callable[[int, np.ndarray], np.ndarray] = lambda u, rows: rows, gone: int = 0
) -> SumRound:
    """A round of five over three, in which the last `gone` workers leave after they have confirmed."""
    workers, epoch = group(5, 3)
    of = SumRound(epoch, 0, 2, {u: worker.prepare(0) for u, worker in enumerate(workers)})
    for u, worker in enumerate(workers):
        of.add(u, worker.mask(0, of.present, VECTORS[u]))
    survivors = of.close()
    for u, worker in enumerate(workers):
        of.add_confirmations(u, spoil(u, worker.confirm(0, survivors).copy()))
    for u, worker in enumerate(workers[: 5 - gone]):
        of.add_shares(u, *worker.unmask(0, *of.request(u)))
    return of


def wrong_of(liars: set[int]) -> Callable[[int, np.ndarray], np.ndarray]:
    """Confirmations of which those of some are wrong, to everybody."""

    def spoil(u: int, rows: np.ndarray) -> np.ndarray:
        if u in liars:
            rows[:, 0] ^= 1
        return rows

    return spoil


@pytest.mark.parametrize("gone", [0, 1, 2, 3])
def test_who_leaves_after_it_confirmed_changes_nothing_while_enough_remain(gone: int) -> None:
    of = confirmed_round(gone=gone)
    if gone == 3:
        with pytest.raises(SumRefused, match="2 of 5 workers sent their shares"):
            of.result()
        return
    assert of.result().tolist() == VECTORS.sum(axis=0).tolist()
    assert not of.wrong_confirmations


@pytest.mark.parametrize(("liars", "is_refused"), [({4}, False), ({3, 4}, False), ({2, 3, 4}, True)])
def test_wrong_confirmations_are_named_and_passed_over_while_enough_are_right(
    liars: set[int], is_refused: bool
) -> None:
    """They are named too where too few are right, and no share leaves."""
    of = confirmed_round(spoil=wrong_of(liars))
    assert of.wrong_confirmations == set(itertools.product(liars, range(5)))
    assert of.answered == set(range(5))
    assert of.kept_back == (set(range(5)) if is_refused else set())
    assert of.has_enough_shares is not is_refused
    if is_refused:
        with pytest.raises(TooFewWorkers, match="0 of 5 workers sent their shares"):
            of.result()
    else:
        assert of.result().tolist() == VECTORS.sum(axis=0).tolist()


def test_workers_that_took_everybodys_word_would_give_shares_on_wrong_confirmations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The twin of shares that are kept back."""
    unchecked(monkeypatch)
    assert confirmed_round(spoil=wrong_of({2, 3, 4})).result().tolist() == VECTORS.sum(axis=0).tolist()


def test_who_has_kept_its_shares_back_or_sent_them_sends_no_others() -> None:
    """A worker that says that it gives none, and gives some, would be counted among those that are free."""
    some = np.ones((5, 16), np.uint8)
    for liars in (set[int](), {2, 3, 4}):
        of = confirmed_round(spoil=wrong_of(liars))
        with pytest.raises(SumRefused, match="not asked for"):
            of.add_shares(0, some, np.ones(5, np.bool_))


@pytest.mark.parametrize(("n_right", "is_kept_back"), [(0, True), (2, True), (3, False), (5, False)])
def test_shares_are_kept_back_for_too_few_right_confirmations_alone(n_right: int, is_kept_back: bool) -> None:
    """Who has enough and sends none sends wrong ones, of its own secret too."""
    of = confirmed_round(gone=1)
    of.add_shares(4, np.zeros((5, 16), np.uint8), flags(5, range(n_right)))
    assert of.kept_back == ({4} if is_kept_back else set())
    assert of.result().tolist() == VECTORS.sum(axis=0).tolist()
    assert ((4, 4) in of.wrong_shares) is not is_kept_back


def test_a_confirmation_is_of_one_round_epoch_pair_of_workers_and_direction() -> None:
    workers, epoch = group(3, 2)
    whole = np.ones(3, np.bool_)

    def view(of: Epoch = epoch, number: int = 0, *, present: Flags = whole, survivors: Flags = whole) -> bytes:
        return of.view(number, present, survivors, sender=0, receiver=1)

    some = flags(3, (0, 1))
    others = [
        view(replace(epoch, number=2)),
        view(replace(epoch, run="summer")),
        view(replace(epoch, drawing=b"other")),
        view(replace(epoch, threshold=3)),
        view(replace(epoch, keys=epoch.keys[::-1])),
        view(replace(epoch, names=("w0", "w1", "w3"))),
        view(number=1),
        view(present=some),
        view(survivors=some),
        epoch.view(0, whole, whole, sender=1, receiver=0),
        epoch.view(0, whole, whole, sender=0, receiver=2),
    ]
    assert len({view(), *others}) == 1 + len(others)
    key = workers[0]._pairs[1].confirmations
    assert key == workers[1]._pairs[0].confirmations
    assert len({key, *(getattr(workers[0]._pairs[1], name) for name in ("masks", "to_them", "from_them"))}) == 4


def masked_group() -> tuple[list[SummedWorker], list[Parcel]]:
    workers, _ = group(3, 2)
    parcels = [worker.prepare(0) for worker in workers]
    for u, worker in enumerate(workers):
        worker.mask(0, np.ones(3, np.bool_), VECTORS[u])
    return workers, parcels


def test_a_worker_confirms_once_and_nobody_who_was_not_present_and_gives_shares_to_who_asks_after_that() -> None:
    workers, parcels = masked_group()
    whole = np.ones(3, np.bool_)
    sealed = np.stack([parcel.sealed[0] for parcel in parcels])
    with pytest.raises(SumRefused, match="not the one to be unmasked"):
        workers[0].unmask(0, sealed, np.zeros((3, 32), np.uint8))
    rows = [worker.confirm(0, whole) for worker in workers]
    with pytest.raises(SumRefused, match="not the one to be confirmed"):
        workers[0].confirm(0, whole)
    # What the worker itself has confirmed, sent back in the others' names, confirms nothing.
    shares, confirmed = workers[0].unmask(0, sealed, rows[0])
    assert (shares.any(), confirmed.tolist()) == (False, [True, False, False])
    with pytest.raises(SumRefused, match="not the one to be unmasked"):
        workers[0].unmask(0, sealed, np.stack([row[0] for row in rows]))
    with pytest.raises(SumRefused, match="malformed"):
        workers[1].unmask(0, sealed, rows[1][:2])

    others, _ = group(3, 2)
    others[0].prepare(0)
    others[0].mask(0, flags(3, (0, 1)), VECTORS[0])
    with pytest.raises(SumRefused, match="workers that were not present"):
        others[0].confirm(0, whole)


def test_confirmations_that_are_malformed_or_not_asked_for_are_not_counted() -> None:
    workers, epoch = group(3, 2)
    of = SumRound(epoch, 0, 2, {u: worker.prepare(0) for u, worker in enumerate(workers)})
    for u in (0, 1):
        of.add(u, workers[u].mask(0, of.present, VECTORS[u]))
    rows = np.zeros((3, 32), np.uint8)
    with pytest.raises(SumRefused, match="not asked for"):
        of.add_confirmations(0, rows)
    of.close()
    for worker, wrong in ((2, rows), (0, rows[:2]), (0, rows[:, :31])):
        with pytest.raises(SumRefused, match="malformed or were not asked for"):
            of.add_confirmations(worker, wrong)
    of.add_confirmations(0, rows)
    with pytest.raises(SumRefused, match="not asked for"):
        of.add_confirmations(0, rows)
    with pytest.raises(SumRefused, match="1 of 3 workers confirmed who took part"):
        of.request(0)
