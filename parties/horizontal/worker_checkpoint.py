"""Worker checkpoint: what a worker keeps in its run folder so that no tree is answered for twice.

==================  ====================================================================================
file                content
==================  ====================================================================================
``answers.json``    a digest of the rows, the last tree that was answered for, what was told up to there
``drawing.json``    the drawing of public bits for which the worker revealed its random bytes, and how often it did
==================  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Callable

from parties.errors import RunFolderError
from parties.horizontal.verified_rows import Answered
from parties.runs.run_folder import RunFolder

# Public bits that a worker draws for one run: who breaks off after it has seen them chooses among so many.
MAX_DRAWINGS = 8


class WorkerCheckpoint:
    """The part of a run folder that a worker needs to be started again.

    Parameters
    ----------
    folder : RunFolder
    rows : str
        A digest of the worker's rows.
    before_first : callable
        Called before the first answer is noted; may refuse by raising.

    Raises
    ------
    RunFolderError
        If the run began on other rows.
    """

    def __init__(self, folder: RunFolder, rows: str, *, before_first: Callable[[], None] = lambda: None) -> None:
        self._folder = folder
        self._rows = rows
        self._before_first = before_first
        self.answered = Answered()
        if folder.has_released:
            before = folder.read_json("answers.json")
            if before["table"] != rows:
                raise RunFolderError(
                    f"{folder.path} holds the beginning of a run on other rows; bring them back or choose another "
                    "run_id. Nothing was sent"
                )
            self.answered = Answered(n_trees=int(before["tree"]), history=str(before.get("history")))

    def note_answer(self, now: Answered) -> None:
        """Keep what is answered for, before the answer leaves."""
        is_first = not self._folder.has_released
        if is_first:
            self._before_first()
        self._folder.write_json("answers.json", {"table": self._rows, "tree": now.n_trees, "history": now.history})
        if is_first:
            self._folder.mark_release()

    def drawing(self) -> bytes:
        """The digest of the drawing that `note_drawing` kept; empty if there was none.

        Raises
        ------
        RunFolderError
            If the file is malformed.
        """
        return self._drawings()[0]

    def note_drawing(self, drawing: bytes) -> None:
        """Keep the digest of a drawing of public bits, before random bytes are revealed for it.

        Raises
        ------
        RunFolderError
            If the run has drawn too often.
        """
        n_before = self._drawings()[1]
        if n_before >= MAX_DRAWINGS:
            raise RunFolderError(
                f"this worker has drawn the public bits of this run {n_before} times, and whoever breaks off each time "
                "could choose among them; ask the coordinator why, or choose another run_id. Nothing was released"
            )
        self._folder.write_json("drawing.json", {"drawing": drawing.hex(), "count": n_before + 1})

    def _drawings(self) -> tuple[bytes, int]:
        """The digest of the last drawing, and how many there were."""
        path = self._folder.path / "drawing.json"
        if not path.exists():
            return b"", 0
        try:
            kept = self._folder.read_json(path.name)
            return bytes.fromhex(kept["drawing"]), int(kept.get("count", 1))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise RunFolderError(f"{path} is malformed; choose another run_id. Nothing was sent") from None
