"""Both sides prove that they hold the same ids; echoes, replays, other roles and other runs prove nothing."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.alignment.blinding import Cipher
from protocols.alignment.id_proof import IdProof, id_proof, is_same, password_of
from protocols.errors import DecodeError
from protocols.messages.id_alignment import IdConfirmation
from protocols.messages.vertical import Hello, Role, Task

HELLOS = {
    Role.PASSIVE: Hello(role=Role.PASSIVE, party="shop", run_id="r", task=Task.TRAIN, n_rows=3),
    Role.ACTIVE: Hello(role=Role.ACTIVE, party="bank", run_id="r", task=Task.TRAIN, n_rows=3),
}


@pytest.fixture(scope="module")
def ciphers() -> tuple[Cipher, Cipher]:
    """Keys of both sides; a fresh one takes milliseconds."""
    return Cipher(n_workers=1), Cipher(n_workers=1)


def meet(ciphers: tuple[Cipher, Cipher], passive: bytes, active: bytes) -> dict[Role, tuple[IdConfirmation, ...]]:
    """By side, what it sends and what it then expects, where each has its password."""
    proofs = dict(zip(HELLOS, (IdProof(passive, ciphers[0]), IdProof(active, ciphers[1])), strict=True))
    said = {role: HELLOS[role].model_copy(update={"id_point": proof.point}) for role, proof in proofs.items()}
    other = {Role.PASSIVE: Role.ACTIVE, Role.ACTIVE: Role.PASSIVE}
    return {role: proof.confirmations(said[role], said[other[role]]) for role, proof in proofs.items()}


@settings(max_examples=30, deadline=None)
@given(
    digests=st.tuples(st.text(max_size=5), st.text(max_size=5)),
    orders=st.tuples(*[st.none() | st.permutations(range(3))] * 2),
)
def test_two_sides_agree_exactly_if_ids_and_order_do(
    ciphers: tuple[Cipher, Cipher], digests: tuple[str, str], orders: tuple[list[int] | None, ...]
) -> None:
    passwords = [
        password_of(digest, None if order is None else np.array(order, np.int64))
        for digest, order in zip(digests, orders, strict=True)
    ]
    are_same = digests[0] == digests[1] and orders[0] == orders[1]
    assert (passwords[0] == passwords[1]) is are_same
    found = meet(ciphers, *passwords)
    for mine, theirs in ((Role.PASSIVE, Role.ACTIVE), (Role.ACTIVE, Role.PASSIVE)):
        assert is_same(found[mine][0], found[theirs][1]) is are_same


def test_a_confirmation_is_of_one_role_one_run_one_pair_of_names_and_points(ciphers: tuple[Cipher, Cipher]) -> None:
    """All that are sent under one key and password differ, so none can stand for another."""
    proof = IdProof(password_of("d"), ciphers[0])
    tags = set()
    for run_id, peer, role, cipher in product("rs", ("bank", "mall"), Role, (ciphers[1], Cipher(n_workers=1))):
        mine = HELLOS[role].model_copy(update={"run_id": run_id, "party": "shop", "id_point": proof.point})
        role_of_peer = Role.ACTIVE if role is Role.PASSIVE else Role.PASSIVE
        point = IdProof(password_of("d"), cipher).point
        theirs = HELLOS[role_of_peer].model_copy(update={"run_id": run_id, "party": peer, "id_point": point})
        tags |= {confirmation.tag for confirmation in proof.confirmations(mine, theirs)}
    assert len(tags) == 2 * 2 * 2 * 2 * 2


def test_a_point_that_is_sent_back_leads_to_a_key_that_its_echo_does_not_have(ciphers: tuple[Cipher, Cipher]) -> None:
    """The echo knows both points, and would need the square of the key behind them."""
    proof = IdProof(password_of("d"), ciphers[0])
    mine, theirs = (HELLOS[role].model_copy(update={"id_point": proof.point}) for role in (Role.PASSIVE, Role.ACTIVE))
    sent, due = proof.confirmations(mine, theirs)
    assert not is_same(sent, due)


@pytest.mark.parametrize("point", [bytes(33), b"\x02" + b"\xff" * 32, b"\x04" + bytes(32)])
def test_what_is_no_point_is_refused(ciphers: tuple[Cipher, Cipher], point: bytes) -> None:
    proof = IdProof(password_of("d"), ciphers[0])
    mine, theirs = HELLOS[Role.PASSIVE], HELLOS[Role.ACTIVE].model_copy(update={"id_point": point})
    with pytest.raises(DecodeError, match="bank sent ids that cannot be compared: a blinded id is not a point"):
        proof.confirmations(mine.model_copy(update={"id_point": proof.point}), theirs)


def test_a_point_is_fresh_in_every_conversation() -> None:
    """Whoever kept what was sent has nothing to compare a guess with."""
    points = set()
    for _ in range(20):
        with id_proof(password_of("d")) as proof:
            assert proof is not None
            points.add(proof.point)
    assert len(points) == 20
    with id_proof(None) as proof:
        assert proof is None
