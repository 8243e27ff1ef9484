"""Run log: one JSON line per step, and the same as a sentence for people. It holds no value of the data."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from parties.errors import Stopped
from parties.progress import Progress, no_progress
from parties.storage.atomic_files import write_json
from parties.storage.paths import writing
from protocols.private_files import private_opener
from protocols.transport.codec import Frame, size_bytes

# Event of steps that count cells by their content: reports, which may be passed on, leave them out.
CELL_COUNTS = "other categories"

# Between two notes of progress on disk.
PROGRESS_S = 1.0

# Lines of a service's messages that are kept beside the last full part of them: some 30,000.
PART_BYTES = 1 << 23

# Events of one kind, such as a peer's reconnections, that are logged one by one; later ones are throttled.
LOGGED_IN_FULL = 100


def is_logged(number: int) -> bool:
    """Whether an event of this number, counted from 1, is logged: each at first, then only the 128th, 256th, 512th."""
    return number <= LOGGED_IN_FULL or number & (number - 1) == 0


class EventThrottle:
    """Throttle of a service's steps, by kind and day, which several logs of one file can share."""

    def __init__(self) -> None:
        self._day, self._numbers = "", Counter[str]()

    def is_due(self, event: str, day: str) -> bool:
        """Count a step, and say whether it is logged."""
        if day != self._day:
            self._day, self._numbers = day, Counter()
        self._numbers[event] += 1
        return is_logged(self._numbers[event])


class RunLog:
    """Writes ``log.jsonl`` and ``log.txt`` in a run folder.

    Parameters
    ----------
    folder : Path
    echo : callable
        Called with each sentence, for the terminal.
    progress : Progress
        Told of progress, for the terminal; ``progress.json`` in the run folder is behind it by a second at most.
    is_service : bool
        Messages then have a log of their own, ``messages.jsonl``, of which the last two parts are kept, and
        ``log.jsonl`` the digest of each part: an endless service fills no disk.
    throttle : EventThrottle, optional
        Of steps that a peer can cause without end.

    Raises
    ------
    RunFolderError
        Here and at every line, if it cannot be written: a run that is not logged does not go on.
    """

    def __init__(
        self,
        folder: Path,
        *,
        echo: Callable[[str], None] = lambda sentence: None,
        progress: Progress = no_progress,
        is_service: bool = False,
        throttle: EventThrottle | None = None,
    ) -> None:
        self._throttle = throttle
        self._lines, self._text = _LogFile(folder / "log.jsonl"), _LogFile(folder / "log.txt")
        self._messages = _LogFile(folder / "messages.jsonl") if is_service else self._lines
        self._echo = echo
        self._progress, self._progress_path, self._noted_at = progress, folder / "progress.json", -PROGRESS_S
        # That of an earlier job, which is over.
        with writing(self._progress_path):
            self._progress_path.unlink(missing_ok=True)
        self._started = time.monotonic()
        self._n_messages: Counter[str] = Counter()
        self.before_close: list[Callable[[], None]] = []
        # Told every line, for metrics.
        self.observe: Callable[[Mapping[str, object]], None] = lambda line: None

    def step(self, event: str, sentence: str, **facts: object) -> None:
        """Note a step: a short name for machines, a sentence for people, and facts; unless it is throttled."""
        if self._throttle is None or self._throttle.is_due(event, day=datetime.now(UTC).date().isoformat()):
            self._write(event, sentence, facts)
        Stopped.raise_if_lost()

    def _write(self, event: str, sentence: str, facts: Mapping[str, object]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        seconds = round(time.monotonic() - self._started, 3)
        line = {"time": now, "seconds": seconds, "event": event, "message": sentence, **facts}
        self._echo(sentence)
        self._lines.write(json.dumps(line))
        self._text.write(f"{now} {sentence}")
        self.observe(line)

    def progress(self, step: str, done: int, total: int) -> None:
        """Note progress."""
        self._progress(step, done, total)
        if time.monotonic() - self._noted_at >= PROGRESS_S:
            self._noted_at = time.monotonic()
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            write_json(self._progress_path, {"time": now, "step": step, "done": done, "total": total})

    def measure(self, **amounts: int) -> None:
        """Tell metrics amounts that come too often for the log."""
        self.observe({"event": "measured", **amounts})

    def sent(self, peer: str) -> Callable[[str, Sequence[Frame]], None]:
        """An auditor for the messages to `peer`: one line each, with size and SHA-256 of the bytes that left."""
        return self._auditor("sent", peer)

    def received(self, peer: str) -> Callable[[str, Sequence[Frame]], None]:
        """A callback that logs the messages from `peer`."""
        return self._auditor("received", peer)

    def _auditor(self, event: str, peer: str) -> Callable[[str, Sequence[Frame]], None]:
        def note(kind: str, frames: Sequence[Frame]) -> None:
            digest = hashlib.sha256()
            for frame in frames:
                digest.update(frame)
            self._n_messages[event] += 1
            line = {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "seconds": round(time.monotonic() - self._started, 3),
                "event": event,
                "number": self._n_messages[event],
                "peer": peer,
                "kind": kind,
                "bytes": size_bytes(frames),
                "sha256": digest.hexdigest(),
            }
            self._messages.write(json.dumps(line))
            self.observe(line)
            if self._messages is not self._lines and self._messages.n_bytes >= PART_BYTES:
                self._end_part()
            Stopped.raise_if_lost()

        return note

    def _end_part(self) -> None:
        """Note the digest of the messages' lines, of which those before the last part go."""
        path = self._messages.path
        with writing(path):
            content = path.read_bytes()
        name, digest, n_messages = f"{path.name}.1", hashlib.sha256(content).hexdigest(), content.count(b"\n")
        self._write(
            "messages",
            f"{n_messages} messages were sent and received; their lines are in {name} until as many have followed, "
            f"and have the SHA-256 {digest}",
            {"messages": n_messages, "sha256": digest},
        )
        with writing(path):
            path.rename(path.with_name(name))

    def close(self) -> None:
        """Close the files, after whoever still has something to note."""
        for call in self.before_close:
            call()
        # What could not be written was told when it was tried; closing tries again.
        for file in {self._lines, self._text, self._messages}:
            with suppress(OSError):
                file.close()


class _LogFile:
    """A file that is appended to, and opened anew when it was renamed or removed, as programs that rotate logs do."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = self._opened()

    @property
    def n_bytes(self) -> int:
        """Length of the file."""
        return os.fstat(self._file.fileno()).st_size

    def write(self, line: str) -> None:
        with writing(self.path):
            if not self._is_in_place():
                self._file.close()
                self._file = self._opened()
            self._file.write(line + "\n")

    def close(self) -> None:
        self._file.close()

    def _opened(self) -> TextIO:
        with writing(self.path):
            # Whatever the terminal's encoding is; names of files may hold bytes that are no text.
            return open(self.path, "a", buffering=1, encoding="utf-8", errors="backslashreplace", opener=private_opener)

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False
