"""A peer that says anything at any moment: the party ends in a sentence, tells the peer, and has saved and spent
nothing that the protocol did not allow."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost import rng
from opboost.errors import OpBoostError
from opboost.routing import Router
from opboost.table_format import ColumnFormat, TableFormat
from opboost.trees.boosting import BoostingParameters
from parties.errors import EXPECTED_ERRORS, ConfigError
from parties.ledger.budget import Budget
from parties.ledger.charged_release import Account
from parties.ledger.ledger_lines import Occasion
from parties.ledger.release_ledger import Ledger
from parties.runs.joint_model import JointModel
from parties.runs.run_folder import RunFolder
from parties.storage.serialization import router_from_dict, router_to_dict
from parties.tables.blocks import EncodedTable
from parties.vertical import party_b, simulation
from parties.vertical.party_a import train_jointly
from parties.vertical.prediction_client import predict_jointly
from parties.vertical.release_offer import rank_type
from protocols.alignment.id_chunks import CHUNK_IDS
from protocols.alignment.private_set_intersection import AlignmentTerms, SetMethod, psi_initiate, psi_respond
from protocols.errors import PeerAborted, PeerLost
from protocols.messages.id_alignment import (
    BlindedIds,
    CommonIds,
    HeldOutShares,
    HiddenIds,
    IdConfirmation,
    MoreIds,
    OrderShare,
    ReblindedIds,
    TransferAnswer,
    TransferPoints,
)
from protocols.messages.liveness import Heartbeat
from protocols.messages.message import Message
from protocols.messages.prediction import Answers, Ask, RecordStatus
from protocols.messages.vertical import (
    Abort,
    Done,
    Held,
    Hello,
    MoreRanks,
    Offer,
    OfferedColumn,
    RankChunk,
    Role,
    SplitRanks,
    Task,
    Thresholds,
)
from protocols.messages.vertical import Terms as AgreedTerms
from protocols.transport.codec import Frame, encode
from tests.support.promises import promise_of
from tests.support.recital import PROOF, PROVED

Item = Message | list[Frame]

N_ROWS = 300
RANKS = (np.arange(N_ROWS) % 3).astype(np.uint8)
COLUMN = OfferedColumn(
    name="c0",
    n_ranks=3,
    has_missing=False,
    digest=hashlib.sha256(RANKS).hexdigest(),
    mechanism="global",
    law="clamped",
    epsilon=0.1,
)
OTHER = COLUMN.model_copy(update={"name": "c1"})
SHOP = Hello(
    role=Role.PASSIVE,
    party="shop",
    run_id="spring",
    task=Task.TRAIN,
    n_rows=N_ROWS,
    id_point=PROOF.point,
    names=("c0", "c1"),
)
BANK = SHOP.model_copy(update={"names": (), "role": Role.ACTIVE, "party": "bank", "plan": AgreedTerms(tests=1000)})
RELEASE = (SHOP, PROVED, Offer(columns=(COLUMN, OTHER), guarantee=promise_of(2))) + tuple(
    RankChunk(column=column, start=0, ranks=RANKS) for column in (0, 1)
)

counts = st.sampled_from((0, 1, 2, 3, 4, 255, 256, N_ROWS - 1, N_ROWS, N_ROWS + 1, 2**16, 2**31, 2**32 - 1))
lengths = st.sampled_from((0, 1, 2, 7, 8, N_ROWS - 1, N_ROWS, N_ROWS + 1))
words = st.sampled_from(("", "age", "c0", "shop", "bank", "spring", "x" * 200, "\x1b[2J", "town", "d", "\n", "\u202e"))
names = words.filter(bool)
numbers = st.sampled_from((0.0, -1.0, 0.1, 1e308, math.inf, -math.inf, math.nan))
losses = st.sampled_from((0.0, 0.1, 1e308, math.inf))
points = st.none() | st.binary(min_size=33, max_size=33) | st.just(PROOF.point)
digests = st.sampled_from((COLUMN.digest, "0" * 64, "f" * 64))
json = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2**63) | numbers | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)
seeds = st.integers(0, 2**32)


@st.composite
def arrays(draw: st.DrawFn, *dtypes: str, columns: tuple[int, ...] = ()) -> np.ndarray:
    """Random bytes of one of these types; with a number of columns, as a matrix."""
    shape: tuple[int, ...] = (draw(lengths),)
    if columns:
        shape += (draw(st.sampled_from(columns)),)
    highest = draw(st.sampled_from((1, 2, 3, 256)))
    found = np.random.default_rng(draw(seeds)).integers(0, highest, shape)
    dtype = draw(st.sampled_from(dtypes))
    return (found % 2).astype(dtype) if dtype == "|b1" else found.astype(dtype)


@st.composite
def routers(draw: st.DrawFn, of: Router) -> Any:
    """What may answer tests, with some of it replaced by anything."""
    document: Any = router_to_dict(of)
    for _ in range(draw(st.integers(1, 2))):
        place = document
        while isinstance(place, (dict, list)) and place:
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            if not isinstance(place[key], (dict, list)) or not place[key] or not draw(st.integers(0, 3)):
                place[key] = draw(json if draw(st.booleans()) else like(place[key]))
                break
            place = place[key]
    return document


def like(value: Any) -> st.SearchStrategy[Any]:
    """Other values of the same type."""
    match value:
        case bool():
            return st.booleans()
        case int() | float():
            return counts | numbers | st.just("inf")
        case str():
            return words | st.sampled_from(("spend", "visits", "unordered", "ordinal", "local", "clamped", "category"))
    return json


@st.composite
def guarantees(draw: st.DrawFn) -> Any:
    document: dict[str, Any] = promise_of(2)
    for key in draw(st.lists(st.sampled_from(sorted(document)), max_size=3)):
        document[key] = draw(json | numbers)
    if draw(st.integers(0, 3)) == 0:
        document.pop(draw(st.sampled_from(sorted(document))))
    return document


terms = st.builds(
    AgreedTerms,
    objective=st.none() | names,
    columns=st.none() | counts,
    law=st.none() | names,
    epsilon=st.none() | losses,
    share_thresholds=st.none() | st.booleans(),
)
_of_hello: dict[str, st.SearchStrategy[Any]] = {
    "role": st.sampled_from(Role),
    "party": names,
    "run_id": names,
    "task": st.sampled_from((Task.TRAIN, Task.PREDICT)),
    "n_rows": counts,
    "id_point": points,
    "alignment": words,
    "has_label": st.none() | st.booleans(),
    "plan": terms,
    "agreed": terms,
    "held": st.none() | st.builds(Held, offer=digests, column=counts, row=counts),
}
hellos = st.builds(Hello, **_of_hello) | st.sampled_from(sorted(_of_hello)).flatmap(
    lambda name: _of_hello[name].flatmap(
        lambda value: st.sampled_from((SHOP, BANK)).map(lambda sound: sound.model_copy(update={name: value}))
    )
)
columns = st.builds(
    OfferedColumn,
    name=names,
    n_ranks=counts,
    has_missing=st.booleans(),
    digest=digests,
    mechanism=words,
    law=words,
    epsilon=losses,
)
offers = st.builds(
    Offer,
    columns=st.lists(columns | st.sampled_from((COLUMN, OTHER)), max_size=3),
    guarantee=guarantees() | json.filter(lambda value: isinstance(value, dict)),
)
chunks = st.builds(RankChunk, column=counts, start=counts, ranks=arrays("|u1", "<u2", "<u4") | st.just(RANKS))


@st.composite
def split_ranks(draw: st.DrawFn) -> SplitRanks:
    n = draw(lengths)
    draws = np.random.default_rng(draw(seeds))
    highest = draw(st.sampled_from((1, 3, 33, 2**32)))
    return SplitRanks(
        columns=draws.integers(0, draw(st.sampled_from((1, 6, 2**32))), n).astype(np.uint32),
        ranks=draws.integers(0, highest, n).astype(np.uint32),
        missing_left=draws.integers(0, 2, n).astype(np.bool_),
    )


def thresholds(router: Router) -> st.SearchStrategy[Thresholds]:
    return st.builds(Thresholds, router=st.none() | routers(router))


asks = st.builds(Ask, ids=st.lists(words | st.just("r001"), max_size=4), desensitized=st.booleans())
statuses = arrays("|u1").map(lambda found: found % len(RecordStatus))
answers = st.builds(Answers, status=statuses, bits=arrays("|u1", columns=(0, 1, 2, 3)))
id_rows = arrays("|u1", columns=(0, 1, 32, 33, 34))
shares = st.binary(min_size=32, max_size=32)
KIN: dict[str, st.SearchStrategy[Message]] = {
    "hello": hellos,
    "offer": offers,
    "rank chunk": chunks,
    "split ranks": split_ranks(),
    "thresholds": st.builds(Thresholds, router=st.none() | st.dictionaries(words, json, max_size=3)),
    "ask": asks,
    "answers": answers,
    "heartbeat": st.just(Heartbeat()),
    "done": st.just(Done()),
    "abort": st.builds(Abort, phase=names, reason=words),
    "id confirmation": st.builds(IdConfirmation, tag=st.binary(min_size=32, max_size=32)) | st.just(PROVED),
    "order share": st.builds(OrderShare, random=shares),
    "held-out shares": st.builds(HeldOutShares, shares=st.lists(shares, min_size=1, max_size=3)),
    "blinded ids": st.builds(BlindedIds, start=counts, rows=id_rows),
    "transfer points": st.builds(TransferPoints, rows=id_rows),
    "transfer answer": st.builds(TransferAnswer, point=st.binary(min_size=32, max_size=32)),
    "hidden ids": st.builds(HiddenIds, number=counts, columns=id_rows, tags=id_rows),
    "reblinded ids": st.builds(ReblindedIds, start=counts, rows=id_rows),
    "more ids": st.just(MoreIds()),
    "more ranks": st.just(MoreRanks()),
    "common ids": st.builds(CommonIds, bits=arrays("|u1")),
}


@st.composite
def releases(draw: st.DrawFn) -> list[Message]:
    """A release that is what it says, of odd columns: no rank or one, every cell missing, names that others have."""
    offered, ranks = [], []
    for _ in range(draw(st.integers(0, 3))):
        n_ranks, has_missing = draw(st.sampled_from((0, 1, 2, 3, 255, 256, N_ROWS))), draw(st.booleans())
        highest = draw(st.sampled_from((n_ranks, max(0, n_ranks - 1), 0))) if has_missing else max(0, n_ranks - 1)
        values = np.random.default_rng(draw(seeds)).integers(0, highest, N_ROWS, endpoint=True)
        ranks.append(values.astype(rank_type(n_ranks)))
        digest = hashlib.sha256(ranks[-1]).hexdigest()
        changes = {"n_ranks": n_ranks, "has_missing": has_missing, "digest": digest, "name": draw(names)}
        offered.append(draw(columns).model_copy(update=changes))
    promise = draw(st.sampled_from((promise_of(len(offered)),) * 5 + (None,))) or draw(guarantees())
    script: list[Message] = [SHOP, PROVED, Offer(columns=tuple(offered), guarantee=promise)]
    for column, values in enumerate(ranks):
        cut = draw(st.sampled_from((0, 1, N_ROWS - 1)))
        script += [RankChunk(column=column, start=0, ranks=values[:cut])] if cut else []
        script.append(RankChunk(column=column, start=cut, ranks=values[cut:]))
    return [*script, Thresholds(router=None), Done()]


@st.composite
def garbled(draw: st.DrawFn) -> list[Frame]:
    """The frames of a message, of which one lost its end."""
    frames = [bytes(frame) for frame in encode(draw(offers | chunks | hellos | split_ranks() | answers))]
    which = draw(st.integers(0, len(frames) - 1))
    return [*frames[:which], frames[which][: draw(st.integers(0, len(frames[which])))], *frames[which + 1 :]]


@st.composite
def scripts(
    draw: st.DrawFn, sound: Sequence[Message] | st.SearchStrategy[list[Message]], *others: st.SearchStrategy[Message]
) -> list[Item]:
    """A sound script in which messages are replaced by others of their kind or of any, left out, repeated, exchanged,
    or mixed with anything."""
    script: list[Item] = list(sound if isinstance(sound, tuple | list) else draw(sound))
    any_kind = st.one_of(*others, *KIN.values(), garbled())
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, max(0, len(script) - 1)))
        match draw(st.sampled_from((*["kin"] * 6, "replace", "insert", "repeat", "drop", "swap", "end"))):
            case "kin":
                kin = [KIN[item.kind] for item in script[place : place + 1] if isinstance(item, Message)]
                script[place : place + 1] = [draw(st.one_of(*kin, *others) if kin else any_kind)]
            case "replace":
                script[place : place + 1] = [draw(any_kind)]
            case "insert":
                script.insert(place, draw(any_kind))
            case "repeat":
                script[place:place] = script[place : place + 1]
            case "drop":
                del script[place : place + 1]
            case "swap":
                script[place : place + 2] = script[place : place + 2][::-1]
            case "end":
                del script[place + 1 :]
    return script


def outcome_of(call: Callable[[], Any], channel: Any) -> Any:
    """What a party returns; or None where it ended in an error of ours and the peer, if there, was told a sentence."""
    try:
        return call()
    except EXPECTED_ERRORS as expected:
        error = expected
    assert str(error).isprintable(), repr(str(error))
    assert len(channel.aborts) == 1
    assert channel.aborts[0].isprintable()
    if not isinstance(error, PeerLost | PeerAborted):
        assert channel.aborts[0]
    return None


@pytest.fixture(scope="module")
def share(trial: Any, outcomes: Any) -> Any:
    """A model and the shop's router, from a sound run."""
    from protocols.transport.memory import memory_pair

    near, far = memory_pair("bank", "shop")
    job = trial.active(parameters=BoostingParameters(n_estimators=2, max_depth=2))
    return outcomes(
        {
            "bank": lambda: train_jointly(job, [near]),
            "shop": lambda: party_b.train(trial.passive("shop", epsilon=math.inf), far),
        }
    )


def test_the_bank_trains_with_whoever_recites(
    trial: Any, recital: Any, share: Any, one_thread: None, tmp_path: Path
) -> None:
    router, folder = share["shop"].router, RunFolder(tmp_path)
    job = trial.active(parameters=BoostingParameters(n_estimators=1, max_depth=2))
    n_trained = 0

    @settings(max_examples=400, deadline=None, derandomize=True)
    @given(script=scripts([*RELEASE, Thresholds(router=None), Done()], thresholds(router)) | scripts(releases()))
    def recite(script: list[Item]) -> None:
        nonlocal n_trained
        channel, saved = recital("shop", script), []

        def save(model: JointModel) -> None:
            folder.save_joint_model(model)
            saved.append(folder.load_joint_model())

        model = outcome_of(lambda: train_jointly(job, [channel], save=save), channel)
        # Everything up to the last word may have been sound.
        assert model is None or saved
        assert len(saved) <= 1
        assert list(tmp_path.glob(".*")) == []
        n_trained += model is not None

    recite()
    assert 0 < n_trained < 200


def test_nonsense_in_a_router_is_refused_or_answers(trial: Any, share: Any) -> None:
    """What B shares is read as data: it may be wrong, never more."""
    n_read = 0
    dates = {
        "spend": ColumnFormat(unit_s=86400, patterns=("%d.%m.%Y", "%Y%m%d")),
        "visits": ColumnFormat(has_other=True),
    }
    form = TableFormat(decimal=",", thousands=".", na_values=("-9", "n/a"), strip=True, columns=dates)

    @settings(max_examples=700, deadline=None, derandomize=True)
    @given(document=routers(replace(share["shop"].router, format=form)))
    def read(document: Any) -> None:
        nonlocal n_read
        try:
            found = router_from_dict(document)
        except ConfigError:
            return
        n_read += 1
        with suppress(OpBoostError):
            answers = found.answer(trial.tables["shop"].iloc[:9], rng=None)
            assert answers.shape == (9, found.tests.n_tests)

    read()
    assert 40 < n_read < 660


def test_the_shop_trains_with_whoever_recites_and_pays_once(trial: Any, recital: Any, tmp_path: Path) -> None:
    """One ledger for all: whatever is asked, and however often, the columns are charged and drawn once."""
    sound = SplitRanks(
        columns=np.array([0, 1], np.uint32), ranks=np.array([0, 32], np.uint32), missing_left=np.zeros(2, np.bool_)
    )
    n_saved = 0
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        account = Account(
            ledger=ledger,
            budget=Budget(),
            rng=rng.seeded(11),
            occasion=Occasion(run_id="spring", task="train", peer="bank"),
        )

        def release(mechanisms: Any, table: EncodedTable) -> None:
            table.named(trial.ids)
            account.release(mechanisms, table.blocks)

        job = trial.passive("shop", release=release)

        @settings(max_examples=150, deadline=None, derandomize=True)
        @given(script=scripts([BANK, PROVED, sound, Done()]))
        def recite(script: list[Item]) -> None:
            nonlocal n_saved
            channel, saved = recital("bank", script), []
            result = outcome_of(lambda: party_b.train(job, channel, save=saved.append), channel)
            assert len(saved) == (result is not None)
            n_saved += len(saved)
            kinds = [message.kind for message in channel.heard]
            assert kinds.count("offer") <= 1
            assert kinds.count("thresholds") <= 1
            assert set(ledger.sums.n_releases) <= {"spend", "visits", "town"}
            assert all(n == 1 for n in ledger.sums.n_releases.values())

        recite()
        assert ledger.sums.n_releases == {"spend": 1, "visits": 1, "town": 1}
        ledger.verify()
    assert 0 < n_saved < 75


def test_the_bank_predicts_with_whoever_answers(trial: Any, recital: Any, share: Any, one_thread: None) -> None:
    model = share["bank"]
    n_tests = sum(feature.owner == "shop" for feature in model.ensemble.features)
    assert n_tests > 0
    rows = pd.Index(trial.ids[:7])
    own = {"age": trial.age[:7]}
    hello = SHOP.model_copy(update={"task": Task.PREDICT, "n_rows": 0, "id_point": None})
    sound = Answers(status=np.zeros(7, np.uint8), bits=np.zeros((7, -(-n_tests // 8)), np.uint8))

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(script=scripts([hello, sound]))
    def recite(script: list[Item]) -> None:
        channel = recital("shop", script)
        result = outcome_of(
            lambda: predict_jointly(model, rows, own, [channel], party="bank", run_id="spring", desensitized=False),
            channel,
        )
        if result is not None:
            predictions, status = result
            assert np.isfinite(predictions[status == RecordStatus.ANSWERED]).all()
            assert np.isnan(predictions[status != RecordStatus.ANSWERED]).all()

    recite()


def test_the_shop_answers_whoever_asks(trial: Any, recital: Any, share: Any) -> None:
    hello = BANK.model_copy(update={"task": Task.PREDICT, "n_rows": 0, "id_point": None})
    script = scripts([hello, Ask(ids=("r001", "r002"), desensitized=True), Done()])

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(script=script)
    def recite(script: list[Item]) -> None:
        channel = recital("bank", script)
        outcome_of(
            lambda: simulation.serve(
                share["shop"].router,
                trial.ids,
                trial.tables["shop"],
                channel,
                party="shop",
                run_id="spring",
                rng=rng.seeded(3),
                may_route=False,
            ),
            channel,
        )
        kinds = [message.kind for message in channel.heard if not isinstance(message, Abort)]
        assert kinds == ["hello", *["answers"] * (len(kinds) - 1)]

    recite()


IDS = [f"r{i}".encode() for i in range(7)]
SECRET = bytes(32)


def aligned(call: Callable[[], Any]) -> Any:
    """What an alignment found, or None where it ended in an error of ours."""
    try:
        return call()
    except EXPECTED_ERRORS as expected:
        said = str(expected)
    assert said.isprintable()
    return None


@pytest.mark.parametrize("method", get_args(SetMethod))
@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data(), size=counts)
def test_ids_are_compared_with_whoever_recites(recital: Any, method: SetMethod, data: Any, size: int) -> None:
    terms = AlignmentTerms(run_id="spring", method=method, secret=SECRET)
    leading, following = _sound_alignment(method)
    n_ids = 7 if data.draw(st.booleans()) else size
    script = data.draw(scripts(leading))
    channel = recital("shop", script)
    common = aligned(lambda: psi_initiate([channel], IDS, sizes=[n_ids], terms=terms))
    assert common is None or 0 < len(common.positions) <= 7
    script = data.draw(scripts(following))
    common = aligned(lambda: psi_respond(recital("bank", script), IDS, size=n_ids, terms=terms))
    assert common is None or sorted({*common.positions.tolist()}) == common.positions.tolist() != []


@cache
def _sound_alignment(method: SetMethod) -> tuple[list[Message], list[Message]]:
    """What each side may send the other one: points of the curve, or values, that are nobody's ids."""
    from protocols.alignment.blinding import Cipher
    from protocols.alignment.random_transfers import Chooser
    from protocols.alignment.transfer_extension import N_TRANSFERS

    rng = np.random.default_rng(1)
    answered: list[Message] = []
    asked: list[Message] = []
    match method:
        case "psi-dh":
            with Cipher() as cipher:
                rows = cipher.blind(IDS)
            answered, asked = [ReblindedIds(start=0, rows=rows)], [BlindedIds(start=0, rows=rows)]
        case "psi":
            points = Chooser(N_TRANSFERS, bytes(32)).points
            answered = [TransferPoints(rows=np.frombuffer(b"".join(points), np.uint8).reshape(-1, 32))]
            bits = [rng.integers(0, 256, shape, np.uint8) for shape in ((511, 848), (591, 16))]
            asked = [TransferAnswer(point=points[0]), HiddenIds(number=0, columns=bits[0], tags=bits[1])]
    share = OrderShare(random=bytes(32))
    leading = [share, *answered, BlindedIds(start=0, rows=np.arange(112, dtype=np.uint8).reshape(7, 16))]
    return leading, [share, *asked, CommonIds(bits=np.array([0b1010_0000], np.uint8))]


def test_more_ids_than_a_chunk_are_due_in_order(recital: Any) -> None:
    """Chunks that overlap, leave a gap, or are twice as long."""
    rows = np.zeros((2 * CHUNK_IDS, 16), np.uint8)
    terms = AlignmentTerms(run_id="spring", method="hashed", secret=SECRET)
    for start, n_rows in itertools.product((0, 1, CHUNK_IDS - 1, CHUNK_IDS, 2**31), (1, CHUNK_IDS, 2 * CHUNK_IDS)):
        script = [OrderShare(random=bytes(32)), BlindedIds(start=start, rows=rows[:n_rows])]
        channel = recital("shop", script)
        with pytest.raises(EXPECTED_ERRORS):
            psi_initiate([channel], IDS, sizes=[CHUNK_IDS + 5], terms=terms)
