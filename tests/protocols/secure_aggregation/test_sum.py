"""Secure aggregation: right sums whoever drops out wherever, and nothing else for the coordinator."""

from __future__ import annotations

import ast
import itertools
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from Crypto.PublicKey import ECC

from protocols.errors import SumRefused, TooFewWorkers
from protocols.secure_aggregation.epochs import Epoch, Parcel
from protocols.secure_aggregation.masking import derive, mask, pair_mask, unseal
from protocols.secure_aggregation.sharing import combine, split
from protocols.secure_aggregation.sum import SumRound
from protocols.secure_aggregation.worker import SummedWorker
from protocols.transport.keys import KeyPair
from tests.support.cancelling import cancelling
from tests.support.processes import in_a_fork

VECTORS = np.array([[5, -7, 2**62], [1, 1, -(2**61)], [-6, 0, 3], [100, -100, 0]])


class Group:
    """Workers that have joined one epoch, and what the coordinator does with them."""

    def __init__(self, n_workers: int, threshold: int, *, number: int = 1) -> None:
        names = tuple(f"w{u}" for u in range(n_workers))
        self.workers = [SummedWorker(name, "run") for name in names]
        keys = tuple(worker.public_key for worker in self.workers)
        self.epoch = Epoch(run="run", number=number, names=names, keys=keys, threshold=threshold)
        for worker in self.workers:
            worker.join(self.epoch)

    def parcels(self, number: int = 0, *, without: Iterable[int] = ()) -> dict[int, Parcel]:
        return {u: w.prepare(number) for u, w in enumerate(self.workers) if u not in without}

    def masked(self, of: SumRound, vectors: np.ndarray, *, without: Iterable[int] = ()) -> dict[int, np.ndarray]:
        asked = set(of.parcels) - set(without)
        return {u: self.workers[u].mask(of.number, of.present, vectors[u]) for u in asked}

    def unmasked(self, of: SumRound, *, without: Iterable[int] = ()) -> np.ndarray:
        self.confirmed(of)
        for u in set(np.flatnonzero(of.survivors).tolist()) - set(without):
            of.add_shares(u, *self.workers[u].unmask(of.number, *of.request(u)))
        return of.result()

    def confirmed(self, of: SumRound, *, without: Iterable[int] = ()) -> None:
        survivors = of.close()
        for u in set(np.flatnonzero(survivors).tolist()) - set(without):
            of.add_confirmations(u, self.workers[u].confirm(of.number, survivors))

    def sum(
        self,
        vectors: np.ndarray,
        *,
        number: int = 0,
        absent: Iterable[int] = (),
        late: Iterable[int] = (),
        gone: Iterable[int] = (),
    ) -> np.ndarray:
        """One round; `absent` send no parcel, `late` no vector, `gone` no shares."""
        of = SumRound(self.epoch, number, vectors.shape[1], self.parcels(number, without=absent))
        for u, vector in self.masked(of, vectors, without=late).items():
            of.add(u, vector)
        return self.unmasked(of, without=gone)


def test_the_sum_of_signed_vectors_comes_out() -> None:
    assert Group(4, 3).sum(VECTORS).tolist() == VECTORS.sum(axis=0).tolist()


def test_it_comes_out_round_after_round() -> None:
    group = Group(3, 2)
    for number in range(3):
        assert group.sum(VECTORS[:3] * number, number=number).tolist() == (VECTORS[:3] * number).sum(axis=0).tolist()


FATES = list(itertools.product(["stays", "absent", "late", "gone"], repeat=3))


def outcome(fates: tuple[str, ...], threshold: int) -> list[int] | None:
    """The sum of a round of three in which each worker leaves at its own step; None if it was refused."""
    left = {step: [u for u, fate in enumerate(fates) if fate == step] for step in ("absent", "late", "gone")}
    try:
        return Group(3, threshold).sum(VECTORS[:3], **left).tolist()
    except SumRefused:
        return None


def test_whoever_leaves_at_whatever_step_the_sum_is_that_of_the_vectors_that_came_or_refused() -> None:
    for fates in FATES:
        came = [u for u, fate in enumerate(fates) if fate in ("stays", "gone")]
        expected = VECTORS[came].sum(axis=0).tolist() if fates.count("stays") >= 2 else None
        assert outcome(fates, 2) == expected, fates


def test_below_the_threshold_every_side_refuses_by_itself_at_every_step() -> None:
    group = Group(4, 3)
    parcels = group.parcels(without=[2, 3])
    with pytest.raises(SumRefused, match="2 of 4 workers are present where 3 must; nothing was revealed"):
        SumRound(group.epoch, 0, 3, parcels)
    few = np.array([True, True, False, False])
    with pytest.raises(SumRefused, match="2 of 4 workers take part where 3 must"):
        group.workers[0].mask(0, few, VECTORS[0])

    of = SumRound(group.epoch, 0, 3, {**parcels, 2: group.workers[2].prepare(0)})
    for u in (0, 1):
        of.add(u, group.workers[u].mask(0, of.present, VECTORS[u]))
    with pytest.raises(SumRefused, match="2 of 4 workers sent their vectors"):
        of.close()
    with pytest.raises(SumRefused, match="2 of 4 workers take part"):
        group.workers[0].confirm(0, few)
    with pytest.raises(SumRefused, match="0 of 4 workers confirmed who took part"):
        of.request(0)
    with pytest.raises(SumRefused, match="0 of 4 workers sent their shares"):
        of.result()


def looks_uniform(numbers: np.ndarray) -> bool:
    """Whether every bit of 20,000 words of 64 bits is 1 about half the time, and differs from the next one as often.

    A bit of uniform words is off by more than 0.02 with probability at most 2 exp(-2 * 20000 * 0.02^2) = 2.3e-7, so
    that a false alarm of any of the 64, or of the 63 comparisons, has probability below 3e-5.
    """
    bits = np.unpackbits(numbers[:, None].view(np.uint8)[:, ::-1], axis=1)
    shares = [bits.mean(axis=0), (bits[:, 1:] != bits[:, :-1]).mean(axis=0)]
    return bool(abs(np.concatenate(shares) - 0.5).max() < 0.02)


def masked_alone(group: Group, vector: np.ndarray, number: int = 0) -> np.ndarray:
    of = SumRound(group.epoch, number, len(vector), group.parcels(number))
    return group.workers[0].mask(number, of.present, vector)


def test_a_single_vector_is_uniformly_masked() -> None:
    assert looks_uniform(masked_alone(Group(3, 2), np.zeros(20_000, np.int64)))


def test_that_test_fails_for_a_vector_without_masks_and_for_masks_of_half_the_width() -> None:
    numbers = np.random.default_rng(0).integers(-(2**40), 2**40, 20_000)
    assert not looks_uniform(numbers.astype(np.uint64))
    assert not looks_uniform(mask(bytes(32), 20_000) & np.uint64(2**32 - 1))


def test_the_masks_of_two_rounds_differ_in_all_their_parts() -> None:
    group = Group(3, 2)
    zeros = np.zeros(500, np.int64)
    first, second = masked_alone(group, zeros, 0), masked_alone(group, zeros, 1)
    assert not (first == second).any()

    pair = group.workers[0]._pairs[1].masks
    seeds = [derive(pair, "round", group.epoch.nonce(number)) for number in (0, 1)]
    assert not (mask(seeds[0], 500) == mask(seeds[1], 500)).any()


def test_seeds_and_digests_of_another_length_are_refused_before_a_drop_out_needs_them() -> None:
    group = Group(3, 2)
    parcels = group.parcels()
    for digests in (parcels[2].digests[:2], parcels[2].digests[:, :32]):
        with pytest.raises(SumRefused, match="parcel is malformed"):
            SumRound(group.epoch, 0, 3, {**parcels, 2: replace(parcels[2], digests=digests)})
    parcels[2] = replace(parcels[2], seeds=parcels[2].seeds[:-32])
    with pytest.raises(SumRefused, match="parcel is malformed"):
        SumRound(group.epoch, 0, 3, parcels)


def late_round(group: Group) -> tuple[SumRound, np.ndarray]:
    """A round that was finished without worker 3, and the vector of worker 3 that came later."""
    of = SumRound(group.epoch, 0, 3, group.parcels())
    for u, vector in group.masked(of, VECTORS, without=[3]).items():
        of.add(u, vector)
    assert group.unmasked(of).tolist() == VECTORS[:3].sum(axis=0).tolist()
    return of, group.workers[3].mask(0, of.present, VECTORS[3])


@pytest.mark.parametrize("is_there", [True, False])
def test_only_workers_that_were_asked_the_same_have_a_sum(is_there: bool) -> None:
    """Of four; the last one is there to the end, or lost when the others' vectors came."""
    found = {}
    for asked in ([b"leaves", b"leaves", b"leaves"], [b"leaves", b"leaves", b"other leaves"]):
        group = Group(4, 3)
        of = SumRound(group.epoch, 0, 3, group.parcels(), about=b"leaves")
        for u, about in enumerate([*asked, b"leaves"][: 3 + is_there]):
            of.add(u, group.workers[u].mask(0, of.present, VECTORS[u], about=about))
        found[len(set(asked))] = group.unmasked(of)
    assert found[1].tolist() == VECTORS[: 3 + is_there].sum(axis=0).tolist()
    assert not (found[1] == found[2]).any()


def peeled(group: Group, of: SumRound, late: np.ndarray, own: bytes | None) -> np.ndarray:
    """What a curious coordinator makes of the late vector with all it has, and with b if somebody told it."""
    seeds = of._seeds(3, of._secret(3))
    left = late.copy()
    for u in range(3):
        left += pair_mask(seeds[u], b"", 3)
    return (left - mask(derive(own, "own mask"), 3) if own is not None else left).view(np.int64)


def test_a_late_vector_is_refused_and_stays_masked_even_for_who_keeps_it() -> None:
    group = Group(4, 3)
    of, late = late_round(group)
    with pytest.raises(SumRefused, match="not asked for"):
        of.add(3, late)
    assert not (peeled(group, of, late, None) == VECTORS[3]).any()
    everybody = np.ones(4, np.bool_)
    for u in range(3):
        with pytest.raises(SumRefused, match="not the one to be unmasked; nothing was revealed"):
            group.workers[u].unmask(0, *of.request(u))
        with pytest.raises(SumRefused, match="not the one to be confirmed; nothing was revealed"):
            group.workers[u].confirm(0, everybody)


def test_only_the_shares_that_nobody_gives_keep_the_late_vector_masked() -> None:
    """The twin: with b, which the workers refuse to tell, it would be read."""
    group = Group(4, 3)
    of, late = late_round(group)
    nonce, shares = group.epoch.nonce(0), {}
    for u in range(3):
        context = group.epoch.context(0, 3, u)
        shares[u] = unseal(group.workers[u]._pairs[3].from_them, nonce, of.parcels[3].sealed[u].tobytes(), context)[:16]
    assert peeled(group, of, late, combine(shares)).tolist() == VECTORS[3].tolist()


def test_a_worker_that_is_told_it_did_not_survive_keeps_its_shares() -> None:
    group = Group(4, 3)
    of = SumRound(group.epoch, 0, 3, group.parcels())
    for u, vector in group.masked(of, VECTORS).items():
        of.add(u, vector)
    with pytest.raises(SumRefused, match="lacks this worker"):
        group.workers[3].confirm(0, np.array([True, True, True, False]))


def test_a_coordinator_that_lies_about_survivors_gets_one_kind_of_share_from_each_worker() -> None:
    """With 2 t > n, two groups of t workers overlap, and whoever is in both answers once."""
    group = Group(4, 3)
    of = SumRound(group.epoch, 0, 3, group.parcels())
    for u, vector in group.masked(of, VECTORS).items():
        of.add(u, vector)
    told_gone, told_alive = np.array([True, True, True, False]), np.ones(4, np.bool_)
    of.close()
    of.add_confirmations(0, group.workers[0].confirm(0, told_gone))
    for u in (1, 2, 3):
        of.add_confirmations(u, group.workers[u].confirm(0, told_alive))
    for u in (1, 2, 3):
        shares, confirmed = group.workers[u].unmask(0, *of.request(u))
        assert shares.any(axis=1).all()
        assert confirmed.tolist() == [False, True, True, True]
    with pytest.raises(SumRefused, match="not the one to be confirmed"):
        group.workers[0].confirm(0, told_alive)
    shares, confirmed = group.workers[0].unmask(0, *of.request(0))
    assert (shares.any(), confirmed.tolist()) == (False, [True, False, False, False])
    with pytest.raises(SumRefused, match="more than half"):
        Epoch(run="run", number=1, names=group.epoch.names, keys=group.epoch.keys, threshold=2)


def test_no_round_is_answered_twice_and_none_before_the_last() -> None:
    group = Group(3, 2)
    group.sum(VECTORS[:3], number=4)
    for number in (3, 4):
        with pytest.raises(SumRefused, match="is over"):
            group.workers[0].prepare(number)
    everybody = np.ones(3, np.bool_)
    with pytest.raises(SumRefused, match="not the one that is due"):
        group.workers[0].mask(4, everybody, VECTORS[0])
    with pytest.raises(SumRefused, match="not the one that is due"):
        group.workers[0].mask(5, everybody, VECTORS[0])


def test_who_dropped_out_comes_back_in_a_new_epoch_with_its_old_key_or_a_new_one() -> None:
    group = Group(3, 2)
    group.sum(VECTORS[:3], absent=[2])
    group.workers[2] = SummedWorker("w2", "run")
    keys = tuple(worker.public_key for worker in group.workers)
    group.epoch = replace(group.epoch, number=2, keys=keys)
    for worker in group.workers:
        worker.join(group.epoch)
    assert group.sum(VECTORS[:3], number=1).tolist() == VECTORS[:3].sum(axis=0).tolist()
    with pytest.raises(SumRefused, match="another run or is an old one"):
        group.workers[0].join(group.epoch)


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros(2, np.uint64),
        np.zeros(4, np.uint64),
        np.zeros(3, np.uint32),
        np.zeros(3, np.int64),
        np.zeros((3, 1), np.uint64),
    ],
    ids=["short", "long", "smaller field", "signed", "two dimensions"],
)
def test_a_vector_of_another_length_or_field_is_refused(wrong: np.ndarray) -> None:
    group = Group(3, 2)
    of = SumRound(group.epoch, 0, 3, group.parcels())
    with pytest.raises(SumRefused, match="where 3 of uint64 are due"):
        of.add(0, wrong)
    assert not of.survivors.any()


def test_a_second_vector_of_a_worker_is_refused() -> None:
    group = Group(3, 2)
    of = SumRound(group.epoch, 0, 3, group.parcels())
    of.add(0, np.zeros(3, np.uint64))
    with pytest.raises(SumRefused, match="not asked for"):
        of.add(0, np.zeros(3, np.uint64))


def tampered(change: Mapping[str, object]) -> list[int]:
    """A round in which one thing is not as it should be."""
    group = Group(3, 2)
    parcels = group.parcels()
    of = SumRound(group.epoch, 0, 3, parcels)
    for u, vector in group.masked(of, VECTORS, without=[2]).items():
        of.add(u, vector)
    group.confirmed(of)
    for u in (0, 1):
        rows, confirmations = of.request(u)
        if change.get("rows") == u:
            rows[1, 0] ^= 1
        shares, confirmed = group.workers[u].unmask(0, rows, confirmations)
        if change.get("shares") == u:
            shares[change["of"], 3] ^= 1
        of.add_shares(u, shares, confirmed)
    return of.result().tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 0}, "1 right shares of w1's secret came where 2 must: those of w0 are not the ones"),
        ({"shares": 1, "of": 0}, "1 right shares of w0's secret came where 2 must: those of w1 are not the ones"),
        ({"shares": 1, "of": 2}, "1 right shares of w2's secret came where 2 must: those of w1 are not the ones"),
    ],
)
def test_whatever_was_altered_on_the_way_is_noticed(change: dict[str, object], message: str) -> None:
    assert tampered({}) == VECTORS[:2].sum(axis=0).tolist()
    with pytest.raises(SumRefused, match=message):
        tampered(change)


def lying(
    group: Group,
    errors: Mapping[int, np.ndarray],
    dealers: Iterable[int],
    *,
    late: Iterable[int] = (),
    parcels: Mapping[int, Parcel] | None = None,
) -> SumRound:
    """A round to which everybody who is not late has sent shares; to the shares of these dealers some add errors."""
    n, dealt = group.epoch.n_workers, list(dealers)
    of = SumRound(group.epoch, 0, 3, parcels or group.parcels())
    vectors = np.resize(VECTORS, (n, 3))
    for u, vector in group.masked(of, vectors, without=late).items():
        of.add(u, vector)
    group.confirmed(of)
    for u in np.flatnonzero(of.survivors).tolist():
        shares, confirmed = group.workers[u].unmask(0, *of.request(u))
        if u in errors:
            shares[dealt] ^= errors[u]
        of.add_shares(u, shares, confirmed)
    return of


def unlike(liars: Iterable[int]) -> dict[int, np.ndarray]:
    """Errors of which no two are alike: those of two may cancel."""
    return {u: np.eye(1, 16, u % 16, dtype=np.uint8)[0] * np.uint8(1 + u) for u in liars}


def sum_of(workers: Iterable[int], n_workers: int = 5) -> list[int]:
    found: list[int] = np.resize(VECTORS, (n_workers, 3))[list(workers)].sum(axis=0).tolist()
    return found


@pytest.mark.parametrize("late", [(), (4,)], ids=["masks", "masks of a drop-out"])
def test_the_sum_comes_out_whoever_lies_as_long_as_enough_shares_are_right(late: tuple[int, ...]) -> None:
    """All sets of liars among five workers, of whom three right shares give every secret."""
    came = [u for u in range(5) if u not in late]
    for n_liars in range(len(came) + 1):
        for liars in itertools.combinations(came, n_liars):
            of = lying(Group(5, 3), unlike(liars), range(5), late=late)
            if len(came) - n_liars < 3:
                with pytest.raises(SumRefused, match=f"{len(came) - n_liars} right shares of w0's secret came"):
                    of.result()
            else:
                assert of.result().tolist() == sum_of(came), liars
            assert of.wrong_shares == set(itertools.product(liars, range(5)))


def test_whose_share_of_whose_secret_was_wrong_is_told() -> None:
    of = lying(Group(4, 3), unlike([1]), [2])
    assert of.result().tolist() == VECTORS.sum(axis=0).tolist()
    assert of.wrong_shares == {(1, 2)}


# Two of five workers, and the holders in whose shares the errors of the two cancel.
CANCELLING = [
    (liars, holders)
    for liars in itertools.combinations(range(5), 2)
    for holders in itertools.combinations(range(5), 3)
    if set(liars) < set(holders)
]


@pytest.mark.parametrize(("liars", "holders"), CANCELLING)
def test_of_two_whose_errors_cancel_in_some_holders_shares_these_two_are_found_and_nobody_else(
    liars: tuple[int, int], holders: tuple[int, ...]
) -> None:
    of = lying(Group(5, 3), cancelling(liars, holders), range(5))
    assert of.result().tolist() == sum_of(range(5))
    assert of.wrong_shares == set(itertools.product(liars, range(5)))


def wrong_beside_a_set_that_fits(of: SumRound) -> set[tuple[int, int]]:
    """The twin: shares that spoil the first set of shares which gives a secret, in the place of one of that set."""
    wrong = set()
    for dealer in of.parcels:
        shares = {holder: rows[dealer].tobytes() for holder, rows in of._shares.items()}
        for some in itertools.combinations(shares, of.epoch.threshold):
            if of._is_right(dealer, combine({holder: shares[holder] for holder in some})):
                break
        for holder in set(shares) - set(some):
            changed = {each: shares[each] for each in (*some[1:], holder)}
            if not of._is_right(dealer, combine(changed)):
                wrong.add((holder, dealer))
    return wrong


def test_without_digests_two_liars_would_have_honest_holders_found_wrong_about_every_dealer() -> None:
    of = lying(Group(5, 3), cancelling((0, 1), (0, 1, 2)), range(5))
    assert wrong_beside_a_set_that_fits(of) == set(itertools.product((3, 4), range(5)))


def test_every_secret_is_put_together_once_whoever_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    put_together: list[list[int]] = []

    def counted(shares: Mapping[int, bytes]) -> bytes:
        put_together.append(sorted(shares))
        return combine(shares)

    monkeypatch.setattr("protocols.secure_aggregation.sum.combine", counted)
    lying(Group(20, 11), unlike(range(0, 18, 2)), range(20)).result()
    assert put_together == [[*range(1, 18, 2), 18, 19]] * 20


@pytest.mark.parametrize("late", [(), (4,)], ids=["of a survivor", "of a drop-out"])
def test_wrong_digests_of_right_shares_keep_nobody_from_the_sum(late: tuple[int, ...]) -> None:
    """Worker 4 sends a wrong digest to every set of holders."""
    came = [u for u in range(5) if u not in late]
    for n_wrong in range(6):
        for wrong in itertools.combinations(range(5), n_wrong):
            group = Group(5, 3)
            parcels = group.parcels()
            digests = parcels[4].digests.copy()
            digests[list(wrong)] ^= 1
            of = lying(group, {}, (), late=late, parcels={**parcels, 4: replace(parcels[4], digests=digests)})
            assert of.result().tolist() == sum_of(came), wrong
            assert of.wrong_shares == {(holder, 4) for holder in set(wrong) & set(came)}


def misdealt(group: Group, dealer: int, holder: int) -> dict[int, Parcel]:
    """Parcels of which one has another share for one holder, and the digest of that share."""

    def split_wrong(secret: bytes, **numbers: int) -> list[bytes]:
        shares = split(secret, **numbers)
        shares[holder] = bytes([shares[holder][0] ^ 1]) + shares[holder][1:]
        return shares

    parcels = group.parcels(without=[dealer])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("protocols.secure_aggregation.worker.split", split_wrong)
        parcels[dealer] = group.workers[dealer].prepare(0)
    return parcels


@pytest.mark.parametrize("holder", range(5))
@pytest.mark.parametrize("late", [(), (4,)], ids=["of a survivor", "of a drop-out"])
def test_a_dealer_whose_shares_are_of_no_secret_is_at_fault_alone(holder: int, late: tuple[int, ...]) -> None:
    """Who survived ends the round, and one that dropped out is done without in the next one."""
    group = Group(5, 3)
    of = lying(group, {}, (), late=late, parcels=misdealt(group, 4, holder))
    if holder > 2:
        assert of.result().tolist() == sum_of(u for u in range(5) if u not in late)
        assert of.wrong_shares == set()
        return
    with pytest.raises(SumRefused, match="w4's secret do not fit together: it dealt wrong ones; nothing") as found:
        of.result()
    assert isinstance(found.value, TooFewWorkers) is bool(late)
    assert of.wrong_shares == {(4, 4)}


def test_a_worker_keeps_back_the_shares_that_do_not_open_and_all_if_these_are_too_many() -> None:
    """A worker that seals nonsense for the others must not stop them from answering."""
    for n_spoilt, is_refused in ((1, False), (2, False), (3, True)):
        group = Group(5, 3)
        of = SumRound(group.epoch, 0, 3, group.parcels())
        for u, vector in group.masked(of, np.resize(VECTORS, (5, 3))).items():
            of.add(u, vector)
        group.confirmed(of)
        rows, confirmations = of.request(0)
        rows[1 : 1 + n_spoilt, 0] ^= 1
        if is_refused:
            with pytest.raises(SumRefused, match="a sealed share was altered"):
                group.workers[0].unmask(0, rows, confirmations)
            continue
        shares, confirmed = group.workers[0].unmask(0, rows, confirmations)
        assert shares.any(axis=1).tolist() == [not 1 <= u <= n_spoilt for u in range(5)]
        of.add_shares(0, shares, confirmed)
        for u in range(1, 5):
            of.add_shares(u, *group.workers[u].unmask(0, *of.request(u)))
        assert of.result().tolist() == np.resize(VECTORS, (5, 3)).sum(axis=0).tolist()


def test_a_share_of_another_round_worker_or_epoch_does_not_open() -> None:
    group = Group(3, 2)
    first = SumRound(group.epoch, 0, 3, group.parcels(0))
    group.sum(VECTORS[:3], number=1)
    second = SumRound(group.epoch, 2, 3, group.parcels(2))
    for u, vector in group.masked(second, VECTORS).items():
        second.add(u, vector)
    group.confirmed(second)
    with pytest.raises(SumRefused, match="of another round or worker"):
        group.workers[0].unmask(2, first._sealed_for(0), second.request(0)[1])
    with pytest.raises(SumRefused, match="of another round or worker"):
        group.workers[1].unmask(2, second._sealed_for(0), second.request(1)[1])


def test_a_worker_joins_only_under_its_own_key_and_with_keys_that_are_keys() -> None:
    worker, other = SummedWorker("w0", "run"), SummedWorker("w1", "run")
    with pytest.raises(SumRefused, match="under its own key"):
        worker.join(
            Epoch(run="run", number=1, names=("w0", "w1"), keys=(other.public_key, worker.public_key), threshold=2)
        )
    with pytest.raises(SumRefused, match="not valid"):
        worker.join(Epoch(run="run", number=1, names=("w0", "w1"), keys=(worker.public_key, bytes(32)), threshold=2))
    with pytest.raises(SumRefused, match="no list of workers"):
        other.prepare(0)


def lasting(name: str) -> KeyPair:
    key = ECC.construct(curve="Curve25519", seed=name.encode().ljust(32, b"."))
    return KeyPair(bytes(key.public_key().export_key(format="raw")), key.seed)


def middleman(*, with_identities: bool) -> bytes | None:
    """What a coordinator that hands w1 a key of its own in place of w0's reads of w1's shares for w0."""
    identities = {name: lasting(name) if with_identities else None for name in ("w0", "w1")}
    known = {name: pair.public for name, pair in identities.items() if pair is not None}
    victim = SummedWorker("w1", "run", identity=identities["w1"])
    fake = SummedWorker("w0", "run", identity=lasting("another") if with_identities else None)
    epoch = Epoch(run="run", number=1, names=("w0", "w1"), keys=(fake.public_key, victim.public_key), threshold=2)
    for worker in (victim, fake):
        worker.join(epoch, known if with_identities else None)
    sealed = victim.prepare(0).sealed[0].tobytes()
    try:
        return unseal(fake._pairs[1].from_them, epoch.nonce(0), sealed, epoch.context(0, 1, 0))
    except SumRefused:
        return None


def test_with_lasting_keys_a_coordinator_cannot_pass_off_keys_of_its_own() -> None:
    assert middleman(with_identities=True) is None


def test_without_them_it_can_which_is_why_it_is_trusted_then() -> None:
    assert middleman(with_identities=False) is not None


def test_workers_with_lasting_keys_agree_as_well() -> None:
    names = ("w0", "w1")
    workers = [SummedWorker(name, "run", identity=lasting(name)) for name in names]
    keys = tuple(worker.public_key for worker in workers)
    epoch = Epoch(run="run", number=1, names=names, keys=keys, threshold=2)
    group = Group(2, 2)
    group.workers, group.epoch = workers, epoch
    with pytest.raises(SumRefused, match="no public key is known here of the workers w1"):
        workers[0].join(epoch)
    for worker in workers:
        worker.join(epoch, {name: lasting(name).public for name in names})
    assert group.sum(VECTORS[:2]).tolist() == VECTORS[:2].sum(axis=0).tolist()


def test_the_field_is_wide_enough_for_sums_of_int64_and_not_wider() -> None:
    largest = np.full((2, 1), 2**62 - 1)
    assert Group(2, 2).sum(largest).tolist() == [2**63 - 2]
    assert Group(2, 2).sum(np.full((2, 1), -(2**62))).tolist() == [-(2**63)]


def test_a_forked_process_sends_nothing_under_masks_that_its_parent_may_use_too() -> None:
    group = Group(3, 2)
    of = SumRound(group.epoch, 0, 3, group.parcels())
    masked_twice = in_a_fork(lambda: group.workers[0].mask(0, of.present, VECTORS[1]).tolist())
    assert masked_twice.startswith("SumRefused: the keys of this worker belong to another process")
    assert in_a_fork(lambda: group.workers[0].prepare(1)).startswith("SumRefused")
    assert len(group.workers[0].mask(0, of.present, VECTORS[0])) == 3


def test_under_one_mask_two_vectors_would_show_their_difference() -> None:
    """What the refusal is for: the coordinator sees both, and the mask falls out."""
    group = Group(3, 2)
    of, worker = SumRound(group.epoch, 0, 3, group.parcels()), group.workers[0]

    def as_if_it_were_its_own() -> list[int]:
        worker._process = os.getpid()
        return worker.mask(0, of.present, VECTORS[1]).tolist()

    theirs = np.array(ast.literal_eval(in_a_fork(as_if_it_were_its_own)), np.uint64)
    difference = worker.mask(0, of.present, VECTORS[0]) - theirs
    assert difference.astype(np.int64).tolist() == (VECTORS[0] - VECTORS[1]).tolist()
