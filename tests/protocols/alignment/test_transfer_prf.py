"""The function by oblivious transfers: alike on both sides, as an oracle has it, and cheating peers are refused."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from protocols.alignment import sorted_rows, transfer_prf
from protocols.alignment.random_transfers import Chooser
from protocols.alignment.sorted_rows import ExternalSort
from protocols.alignment.transfer_prf import evaluate, query
from protocols.errors import DecodeError, PeerLost, ProtocolError, UnexpectedMessage
from protocols.messages.id_alignment import HiddenIds, MoreIds, TransferAnswer, TransferPoints
from protocols.messages.message import Message
from protocols.messages.vertical import Done
from protocols.transport.memory import memory_pair
from tests.support.sorted import by_id

SEED = bytes(range(32))
IDS = [b"r%03d" % number for number in range(150)]


def quiet(step: str, done: int, total: int) -> None:
    """Report nothing."""


def both(mine: Sequence[bytes], theirs: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """The function of ids at A and at B."""
    near, far = memory_pair("a", "b")
    found: list[ExternalSort] = []
    thread = threading.Thread(
        target=lambda: found.append(evaluate(far, theirs, SEED, size=len(mine), progress=quiet)), daemon=True
    )
    thread.start()
    values = query([near], mine, [SEED], quiet)
    thread.join(60)
    return by_id(values[0]), by_id(found[0])


def oracle(keys: Sequence[bytes], session: bytes, record_id: bytes, n_sparse: int) -> bytes:
    """The function of an id in one table, bit by bit, from the first key of every base transfer."""
    digest = hashlib.blake2b(SEED + record_id, digest_size=32, person=b"hidden id").digest()
    third = n_sparse // 3
    places = [int.from_bytes(digest[4 * at : 4 * at + 4], "little") * third // 2**32 + at * third for at in range(3)]
    places += [n_sparse + bit for bit in range(64) if int.from_bytes(digest[12:20], "little") >> bit & 1]
    row = 0
    for column, key in enumerate(keys[::2]):
        stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(n_sparse // 8 + 16))
        bits = int.from_bytes(stream, "little")
        row |= (sum(bits >> place & 1 for place in places) & 1) << column
    return hashlib.blake2b(row.to_bytes(64, "little") + digest + session, digest_size=16).digest()


def test_both_sides_have_the_function_that_an_oracle_has(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: dict[str, Any] = {}
    answer_points, session = transfer_prf.answer_points, transfer_prf._session

    def note_keys(*given: Any) -> Any:
        answer, noted["keys"] = answer_points(*given)
        return answer, noted["keys"]

    def note_session(*given: Any) -> bytes:
        noted["session"] = session(*given)
        return noted["session"]

    monkeypatch.setattr(transfer_prf, "answer_points", note_keys)
    monkeypatch.setattr(transfer_prf, "_session", note_session)
    mine, theirs = both(IDS[:3], [IDS[2], b"another"])
    n_sparse = transfer_prf._TableSizes(3).n_sparse
    for record_id, row in zip([*IDS[:3], IDS[2]], [*mine, theirs[0]], strict=True):
        assert row.tobytes() == oracle(noted["keys"], noted["session"], record_id, n_sparse)
    # Of an id that A did not hide, A's rows give something else than the function.
    assert theirs[1].tobytes() != oracle(noted["keys"], noted["session"], b"another", n_sparse)


@pytest.mark.parametrize(("n_a", "n_b"), [(150, 70), (150, 1), (1, 150)])
def test_ids_in_several_buckets_are_alike_on_both_sides_and_no_others(
    monkeypatch: pytest.MonkeyPatch, n_a: int, n_b: int
) -> None:
    monkeypatch.setattr(transfer_prf, "BUCKET_BITS", 6)
    mine, theirs = both(IDS[:n_a], IDS[::-1][:n_b])
    found = {row.tobytes() for row in mine} & {row.tobytes() for row in theirs}
    assert len(found) == max(n_a + n_b - len(IDS), 0)
    for at, record_id in enumerate(IDS[::-1][:n_b]):
        if record_id in IDS[:n_a]:
            assert theirs[at].tobytes() == mine[IDS.index(record_id)].tobytes()


def test_who_announces_a_single_id_does_not_make_the_other_side_work_id_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step costs a quarter of a millisecond: ten million ids would take the better part of an hour."""
    sizes, reading = [], transfer_prf.read_table

    def counted(rows: Any, digests: Any, n_sparse: int) -> Any:
        sizes.append(len(digests))
        return reading(rows, digests, n_sparse)

    monkeypatch.setattr(transfer_prf, "read_table", counted)
    mine, theirs = both([b"x7"], [b"x%d" % number for number in range(3000)])
    assert sorted(sizes) == [1, 3000]
    assert np.flatnonzero((theirs == mine[0]).all(axis=1)).tolist() == [7]


@pytest.mark.parametrize("run_bits", [3, 5, 7, 16])
def test_buckets_hold_every_id_once_and_overflow_is_an_error(monkeypatch: pytest.MonkeyPatch, run_bits: int) -> None:
    monkeypatch.setattr(transfer_prf, "BUCKET_BITS", 5)
    monkeypatch.setattr(sorted_rows, "RUN_BITS", run_bits)
    sizes = transfer_prf._TableSizes(len(IDS))
    buckets = transfer_prf._Buckets(IDS, SEED, sizes.n_bits)
    assert sizes.n_buckets == 8
    by_number = [list(buckets.pieces(number)) for number in range(8)]
    for number, own in enumerate(by_number):
        assert {row[30] >> 5 for _, digests in own for row in digests} == {number}
    pieces = [piece for own in by_number for piece in own]
    for positions, digests in pieces:
        assert (digests == transfer_prf._digests([IDS[at] for at in positions.tolist()], SEED)).all()
    assert sorted(at for positions, _ in pieces for at in positions.tolist()) == list(range(len(IDS)))
    assert max(sum(len(at) for at, _ in own) for own in by_number) <= sizes.capacity
    monkeypatch.setattr(transfer_prf._Buckets, "pieces", lambda self, number: 2 * pieces)
    near, far = memory_pair("a", "b")
    far.send(POINTS)
    with pytest.raises(ProtocolError, match="too unevenly"):
        query([near], IDS, [SEED], quiet)


@pytest.mark.parametrize("size", [1, 1000, 1 << 14, (1 << 14) + 1, 1_000_000, 1 << 26, 1 << 30])
def test_rooms_suffice_but_for_a_chance_below_two_to_the_minus_forty(size: int) -> None:
    """Bernstein's inequality: more than mean + t ids in a bucket have a chance of exp(-t^2 / 2 (mean + t / 3))."""
    sizes = transfer_prf._TableSizes(size)
    mean = size / sizes.n_buckets
    spare = sizes.capacity - mean
    is_enough = sizes.capacity == size
    assert is_enough or sizes.n_buckets * np.exp(-(spare**2) / (2 * (mean + spare / 3))) < 2.0**-40


CHOOSER = Chooser(transfer_prf.N_TRANSFERS, SEED)
POINTS = TransferPoints(rows=np.frombuffer(b"".join(CHOOSER.points), np.uint8).reshape(-1, 32))


def sent_to_a(script: Sequence[Message], ids: Sequence[bytes] = IDS[:3]) -> BaseException | None:
    """How A's side ends with a peer that sends a script and leaves."""
    near, far = memory_pair("a", "b")
    for message in script:
        far.send(message)
    far.close()
    try:
        query([near], ids, [SEED], quiet)
    except ProtocolError as error:
        return error
    return None


TO_A: dict[str, tuple[Message, type[ProtocolError], str]] = {
    "another message": (Done(), UnexpectedMessage, "'done' where 'transfer points' was due"),
    "too few points": (TransferPoints(rows=POINTS.rows[:-1]), UnexpectedMessage, "1022 were due"),
    "points of another width": (TransferPoints(rows=np.zeros((1022, 33), np.uint8)), UnexpectedMessage, "1022"),
    "no points": (TransferPoints(rows=np.full((1022, 32), 255, np.uint8)), DecodeError, "ids that cannot be compared"),
}


@pytest.mark.parametrize(("message", "kind", "words"), TO_A.values(), ids=TO_A)
def test_a_refuses_what_is_not_due(message: Message, kind: type[ProtocolError], words: str) -> None:
    error = sent_to_a([message])
    assert type(error) is kind
    assert words in str(error)


class Deviating:
    """A that follows the protocol but for what is done to its tables."""

    def __init__(self, change: Any) -> None:
        self.change = change

    def against_b(self, size: int = 3) -> str:
        """B's refusal."""
        near, far = memory_pair("a", "b")
        send = near.send
        sent: list[HiddenIds] = []

        def changed(message: Message) -> None:
            if isinstance(message, HiddenIds):
                sent.append(message)
                message = self.change(message, sent)
            send(message)

        near.send = changed  # type: ignore[method-assign]
        ended: list[BaseException] = []

        def lead() -> None:
            try:
                query([near], IDS[:size], [SEED], quiet)
            except ProtocolError as error:
                ended.append(error)
            near.close()

        thread = threading.Thread(target=lead, daemon=True)
        thread.start()
        with pytest.raises(ProtocolError) as refused:
            evaluate(far, IDS, SEED, size=size, progress=quiet)
        far.close()
        thread.join(60)
        return str(refused.value)


def garbage(message: HiddenIds, sent: list[HiddenIds]) -> HiddenIds:
    columns = np.random.default_rng(1).integers(0, 256, message.columns.shape, np.uint8)
    return message.model_copy(update={"columns": columns})


CHANGES: dict[str, tuple[Any, str]] = {
    "garbage": (garbage, "cannot be compared: a table of hidden ids does not pass its check"),
    "a longer table": (
        lambda message, sent: message.model_copy(update={"columns": np.zeros((511, 2_000), np.uint8)}),
        "table .* of hidden ids where",
    ),
    "a wider table": (
        lambda message, sent: message.model_copy(update={"columns": message.columns.repeat(2, 0)}),
        "table .* of hidden ids where",
    ),
    "no tags": (lambda message, sent: message.model_copy(update={"tags": message.tags[:0]}), "of hidden ids where"),
    "another number": (lambda message, sent: message.model_copy(update={"number": 1}), "of hidden ids where"),
    "something else": (lambda message, sent: MoreIds(), "'more ids' where 'hidden ids' was due"),
}


@pytest.mark.parametrize(("change", "words"), CHANGES.values(), ids=CHANGES)
def test_b_refuses_tables_that_deviate(change: Any, words: str) -> None:
    refusal = Deviating(change).against_b()
    assert any(part in refusal for part in words.split(".*"))
    assert "r00" not in refusal


def test_b_refuses_a_table_that_it_had_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer_prf, "BUCKET_BITS", 6)

    def replay(message: HiddenIds, sent: list[HiddenIds]) -> HiddenIds:
        return sent[0].model_copy(update={"number": message.number})

    assert "does not pass its check" in Deviating(replay).against_b(size=100)


@pytest.mark.parametrize(
    ("message", "kind"),
    [(TransferAnswer(point=b"\xff" * 32), DecodeError), (Done(), UnexpectedMessage), (None, PeerLost)],
)
def test_b_refuses_an_answer_that_is_no_point(message: Message | None, kind: type[ProtocolError]) -> None:
    near, far = memory_pair("a", "b")
    if message is None:
        near.close()
    else:
        near.send(message)
    with pytest.raises(kind):
        evaluate(far, IDS, SEED, size=3, progress=quiet)
