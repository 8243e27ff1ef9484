"""The public random bits: no coordinator chooses them alone, whatever it tells a worker about when they were drawn."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parties.errors import Disagreement, RunFolderError
from parties.horizontal.public_randomness import commitment, drawing_digest
from parties.horizontal.worker import WorkerJob, run_worker
from parties.horizontal.worker_checkpoint import WorkerCheckpoint
from parties.runs.run_folder import RunFolder
from protocols.errors import PeerLost, ProtocolError
from protocols.messages.horizontal import Commitments, Join, Reveal, Reveals, Welcome
from protocols.secure_aggregation.epochs import Epoch
from protocols.secure_aggregation.worker import SummedWorker
from protocols.transport.channel import expect
from protocols.transport.memory import memory_pair
from tests.support.lasting_keys import lasting
from tests.support.workers import TERMS, job, recipe

# Bytes that a coordinator made up in the name of workers.
INVENTED = {name: bytes([number]) * 32 for number, name in enumerate(("w0", "w1", "w2", "w3", "ghost"))}


def known(others: Sequence[str] = ("w1", "w2")) -> dict[str, Any]:
    """What a worker w0 has that knows the others' keys."""
    return {"identity": lasting("w0"), "lasting_keys": {name: lasting(name).public for name in others}}


def rows(parts: Sequence[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(parts), np.uint8).reshape(-1, 32)


def listed(names: Sequence[str]) -> np.ndarray:
    return rows([commitment("spring", name, INVENTED[name]) for name in names])


def outcome(a_job: WorkerJob, names: Sequence[str], *, is_open: bool = False, commits: Any = None) -> BaseException:
    """How a worker's run ends whose coordinator shows bytes of its own making, and leaves if they are accepted."""
    here, there = memory_pair("hub", a_job.party)
    found: list[BaseException] = []

    def take_part() -> None:
        try:
            run_worker(a_job, there)
        except (ProtocolError, Disagreement) as error:
            found.append(error)
        finally:
            there.close()

    thread = threading.Thread(target=take_part, daemon=True)
    thread.start()
    join = expect(here, Join)
    here.send(Welcome(terms=TERMS))
    table = listed(names) if commits is None else commits(join)
    here.send(Commitments(names=tuple(names), rows=table, is_open=is_open))
    shown = [INVENTED[name] for name in names]
    if is_open:
        try:
            revealed = expect(here, Reveal).random
        except ProtocolError:
            thread.join(10)
            return found[0]
        shown[names.index(a_job.party)] = revealed
    here.send(Reveals(rows=rows(shown)))
    here.close()
    thread.join(10)
    return found[0]


def test_a_fresh_worker_takes_no_bits_that_the_coordinator_says_were_drawn_before() -> None:
    """Such a list would be of the coordinator's choice alone."""
    of = recipe()
    for names in (["w1", "w2"], ["w0", "w1", "w2"]):
        end = outcome(job(of, 0), names)
        assert isinstance(end, Disagreement), end
        assert "Nothing was sent" in str(end)


def test_a_worker_that_is_late_takes_bits_that_enough_workers_whose_keys_it_knows_are_said_to_have_drawn() -> None:
    end = outcome(job(recipe(), 0, **known()), ["w1", "w2"])
    assert isinstance(end, PeerLost)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["w1"], "drawn by 1 of the workers whose keys"),
        (["w1", "ghost"], "drawn by 1 of the workers whose keys"),
        (["w1", "w1"], "drawn by 1 of the workers whose keys"),
        (["w0", "w1", "w2"], "did not reveal its bytes for"),
    ],
)
def test_it_takes_no_others(names: list[str], words: str) -> None:
    end = outcome(job(recipe(), 0, **known()), names)
    assert isinstance(end, Disagreement), end
    assert words in str(end)


def test_a_worker_that_comes_back_takes_the_bits_of_its_earlier_process_and_no_others() -> None:
    names = ["w0", "w1", "w2"]
    drawing = drawing_digest("spring", tuple(names), listed(names))
    assert isinstance(outcome(job(recipe(), 0, drawing=drawing), names), PeerLost)
    end = outcome(job(recipe(), 0, drawing=drawing, **known()), ["w0", "w1", "w3"])
    assert isinstance(end, Disagreement), end
    assert "did not reveal its bytes for" in str(end)


def test_what_is_noted_before_the_bytes_are_revealed_is_the_list_that_binds_everybody() -> None:
    noted: list[bytes] = []
    tables: list[np.ndarray] = []

    def with_its_own(join: Join) -> np.ndarray:
        tables.append(rows([join.commitment, listed(["w1"]).tobytes()]))
        return tables[0]

    end = outcome(job(recipe(), 0, note_drawing=noted.append), ["w0", "w1"], is_open=True, commits=with_its_own)
    assert isinstance(end, PeerLost)
    assert noted == [drawing_digest("spring", ("w0", "w1"), tables[0])]
    again = outcome(job(recipe(), 0, note_drawing=noted.append), ["w0", "w1"], is_open=True)
    assert "own commitment is not in the list" in str(again)
    assert len(noted) == 1


def test_a_worker_that_was_killed_reveals_the_same_bytes_for_the_same_commitments_and_no_others() -> None:
    """Bytes that were revealed once are known, so that other commitments could be chosen with them in mind."""
    noted: list[bytes] = []
    first = job(recipe(), 0)
    table = rows([commitment("spring", "w0", first.public_bytes(0)), listed(["w1"]).tobytes()])
    for again in ({}, {"drawing": drawing_digest("spring", ("w0", "w1"), table), "n_drawings": 1}):
        a_job = job(recipe(), 0, note_drawing=noted.append, **again)
        end = outcome(a_job, ["w0", "w1"], is_open=True, commits=lambda join: table)
        # The bytes fit their commitment, or the bits would have been refused.
        assert isinstance(end, PeerLost)
    assert len(noted) == 1
    other = rows([table[0].tobytes(), listed(["w2"]).tobytes()])
    end = outcome(job(recipe(), 0, **again), ["w0", "w1"], is_open=True, commits=lambda join: other)
    assert "own commitment is not in the list" in str(end)


def test_the_note_outlives_the_process_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    checkpoint = WorkerCheckpoint(RunFolder(tmp_path))
    assert checkpoint.drawings()["drawing"] == b""
    checkpoint.note_drawing(b"\x00\xff")
    assert WorkerCheckpoint(RunFolder(tmp_path)).drawings()["drawing"] == b"\x00\xff"
    for damaged in ("{}", '{"drawing": 5}', '{"drawing": "no digest"}', "5"):
        for name in ("drawing.json", "drawing.copy"):
            (tmp_path / name).write_text(damaged)
        with pytest.raises(RunFolderError, match=r"drawing\.json"):
            checkpoint.drawings()


def epoch_of(workers: Sequence[SummedWorker], drawing: bytes) -> Epoch:
    names = tuple(f"w{u}" for u in range(len(workers)))
    keys = tuple(worker.public_key for worker in workers)
    return Epoch(run="spring", number=1, names=names, keys=keys, threshold=2, drawing=drawing)


@pytest.mark.parametrize("is_fooled", [False, True])
def test_workers_with_other_public_bits_have_no_secret_in_common(is_fooled: bool) -> None:
    """Whoever was shown other bits than the rest adds up with nobody; with the same ones all do."""
    workers = [SummedWorker(f"w{u}", "spring") for u in range(3)]
    for u, worker in enumerate(workers):
        worker.join(epoch_of(workers, b"a" if u == 2 and is_fooled else b"b"))
    parcels = [worker.prepare(0) for worker in workers]
    everybody = np.ones(3, np.bool_)
    masked = [worker.mask(0, everybody, np.zeros(2, np.int64)) for worker in workers]
    assert len(masked) == 3
    sealed = np.stack([parcel.sealed[2] for parcel in parcels])
    confirmations = np.stack([worker.confirm(0, everybody)[2] for worker in workers])
    if is_fooled:
        shares, confirmed = workers[2].unmask(0, sealed, confirmations)
        assert (shares.any(), confirmed.tolist()) == (False, [False, False, True])
        assert (workers[0]._pairs[2].masks != workers[2]._pairs[0].masks) is True
    else:
        assert workers[2].unmask(0, sealed, confirmations)[0].any(axis=1).all()
        assert workers[0]._pairs[2].masks == workers[2]._pairs[0].masks


def test_bits_that_do_not_fit_their_commitments_are_refused_late_too() -> None:
    other = {**INVENTED, "w1": bytes(32)}
    table = rows([commitment("spring", name, other[name]) for name in ("w1", "w2")])
    end = outcome(job(recipe(), 0, **known()), ["w1", "w2"], commits=lambda join: table)
    assert "not those it was committed to" in str(end)
