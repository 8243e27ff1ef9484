"""Worker checkpoint in the run folder: the state that lets a restarted worker give every question the same answer.

==================  ====================================================================================
file                content
==================  ====================================================================================
``answers.json``    a digest of the rows and of the run that this one goes on from, what was answered for (`Answered`),
                    and whether that was charged; while the run is on, the key of coins and noise, from which a new
                    process of the same version of the package draws the same
``drawing.json``    the drawing of public bits for which the worker revealed its random bytes, how often it did, and the
                    key of these bytes, kept before it is committed to any
==================  ====================================================================================

Both are kept twice (`parties.storage.twice_kept`). Where neither copy can be read, the run cannot go on: without the
key, an answer that is asked for again would have other noise, which is another release.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from opboost.rng import BitSource, secure
from parties.errors import RunFolderError
from parties.horizontal.answered_questions import Answered
from parties.runs.installed_versions import check_same_version, package_version
from parties.runs.run_folder import RunFolder
from parties.storage.twice_kept import is_kept, read_either, write_twice

# Most drawings of public bits in one run: a coordinator that breaks off after it has seen them can choose among these.
MAX_DRAWINGS = 8

_KeyWord = Annotated[str, Field(pattern="^([0-9a-f]{64})?$")]


@dataclass(frozen=True, slots=True)
class _Answers:
    table: str
    answered: Answered
    key: _KeyWord
    version: str = ""
    holder: str = ""
    # Earlier versions noted no charge, and nothing before one.
    is_charged: bool = True


@dataclass(frozen=True, slots=True)
class _Drawing:
    drawing: Annotated[str, Field(pattern="^([0-9a-f]{2})*$")]
    count: int = 0
    key: _KeyWord = ""


_ANSWERS, _DRAWING = TypeAdapter(_Answers), TypeAdapter(_Drawing)


class WorkerCheckpoint:
    """The files of a run folder from which a restarted worker resumes.

    Parameters
    ----------
    folder : RunFolder
    charge : callable
        Called once before the first answer of this process leaves; may refuse by raising.

    Attributes
    ----------
    answered : Answered
    has_answered : bool
        Whether an answer was charged, in any process: what is noted before a charge that fails never leaves.

    Raises
    ------
    RunFolderError
        If neither copy of a file can be read, if another version of the package has drawn from the key, or if the run
        was over and the model is gone, as the key of its noise is.
    """

    def __init__(self, folder: RunFolder, *, charge: Callable[[], None] = lambda: None) -> None:
        self._folder = folder
        self._path, self._drawing_path = folder.path / "answers.json", folder.path / "drawing.json"
        self._charge = charge
        self._is_charged = self.has_answered = False
        self._rows = self._holder = ""
        self._key = secure().words(4).tobytes()
        self.answered = Answered()
        if folder.has_released:
            before = read_either(self._path, _ANSWERS)
            if not (before.key or folder.has_model):
                raise RunFolderError(
                    f"{folder.path} holds a run that was over, and its model.json is missing; bring it back or choose "
                    "another run_id. Nothing was sent"
                )
            if not folder.has_model:
                check_same_version(before.version, self._path)
            self._rows, self.answered, self._holder = before.table, before.answered, before.holder
            self.has_answered = before.is_charged
            self._key = bytes.fromhex(before.key) or self._key

    @property
    def holder(self) -> str:
        """Identifier of this run folder's answers, derived from the key of their noise."""
        return self._holder or self.bits().fork("holder").words(4).tobytes().hex()

    def bits(self) -> BitSource:
        """Bits of coins and noise: those of earlier processes of the run, once one of them has answered."""
        return BitSource(self._key, is_secure=True)

    def public_bits(self) -> BitSource:
        """Bits of this worker's part in the public bits: the same in every process of the run."""
        kept = self._kept_drawing()
        if not kept.key:
            kept = replace(kept, key=secure().words(4).tobytes().hex())
            write_twice(self._drawing_path, asdict(kept))
        return BitSource(bytes.fromhex(kept.key), is_secure=True)

    def check_rows(self, digest: str) -> None:
        """Refuse rows, or an earlier run to continue, that differ from those that the run began with.

        Raises
        ------
        RunFolderError
        """
        if self._rows not in ("", digest):
            raise RunFolderError(
                f"{self._folder.path} holds the beginning of a run on other rows, or one that goes on from another "
                "run; bring them back or choose another run_id. Nothing was sent"
            )
        self._rows = digest

    def note_answer(self, now: Answered) -> None:
        """Keep what is answered for, before the answer leaves."""
        self._write(now, key=self._key.hex())
        if not self._folder.has_released:
            self._folder.mark_release()
        if not self._is_charged:
            # After the key is kept: the charge is for its noise, and for no other.
            self._charge()
        if not self.has_answered:
            self.has_answered = True
            self._write(now, key=self._key.hex())
        self.answered, self._is_charged = now, True

    def conclude(self) -> None:
        """Delete the key of coins and noise when the run is over; nothing is answered any more."""
        self._write(self.answered, key="")

    def _write(self, answered: Answered, *, key: str) -> None:
        noted = _Answers(self._rows, answered, key, package_version(), self.holder, self.has_answered)
        write_twice(self._path, asdict(noted))

    def drawings(self) -> dict[str, Any]:
        """The digest of the drawing that `note_drawing` kept, empty if there was none, and how many there were.

        Raises
        ------
        RunFolderError
            If neither copy of the file can be read.
        """
        kept = self._kept_drawing()
        return {"drawing": bytes.fromhex(kept.drawing), "n_drawings": kept.count}

    def note_drawing(self, drawing: bytes) -> None:
        """Keep the digest of a drawing of public bits, before random bytes are revealed for it.

        Raises
        ------
        RunFolderError
            If the run has drawn too often.
        """
        kept = self._kept_drawing()
        if kept.count >= MAX_DRAWINGS:
            raise RunFolderError(
                f"this worker has drawn the public bits of this run {kept.count} times, and whoever breaks off each "
                "time could choose among them; ask the coordinator why, or choose another run_id. Nothing was released"
            )
        write_twice(self._drawing_path, asdict(replace(kept, drawing=drawing.hex(), count=kept.count + 1)))

    def _kept_drawing(self) -> _Drawing:
        """The digest of the last drawing, how many there were, and the key of the random bytes."""
        return read_either(self._drawing_path, _DRAWING) if is_kept(self._drawing_path) else _Drawing("")
