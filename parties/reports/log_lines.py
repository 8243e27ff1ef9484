"""Lines of a run's log: read from all of its parts, and refused where no run writes such a line."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, TypeAdapter, ValidationError

from parties.errors import RunFolderError
from parties.runs.run_folder import RunFolder
from parties.storage.paths import read_file


class _MessageLine(BaseModel):
    time: str
    event: Literal["sent", "received"]
    peer: str
    kind: str
    bytes: int
    sha256: str


class _StepLine(BaseModel):
    time: str
    seconds: float
    event: str
    message: str
    records: int = 0
    answered: int | None = None
    routed_bits: int | None = None
    messages: int = 0


_LINE: TypeAdapter[_MessageLine | _StepLine] = TypeAdapter(_MessageLine | _StepLine)


def log_lines(folder: RunFolder, *, passes_over: bool = False) -> list[dict[str, Any]]:
    """Read the lines of a run folder's log, in their order; see `read_parts`."""
    return in_time(read_parts(folder, passes_over=passes_over))


def in_time(parts: Mapping[Path, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The lines of all parts of a log, in their order."""
    ordered = sorted(parts.values(), key=lambda lines: str(lines[0]["time"]) if lines else "")
    return list(chain.from_iterable(ordered))


def read_parts(folder: RunFolder, *, passes_over: bool = False) -> dict[Path, list[dict[str, Any]]]:
    """Read a run folder's log, a service's messages, and parts that were renamed, compressed or not, by their files.

    A part that is being compressed lies beside what becomes of it, whole or not, and counts once. With `passes_over`,
    parts that were renamed and cannot be read are left out, and the log need not be there.

    Raises
    ------
    RunFolderError
    """
    paths = {*folder.path.glob("log.jsonl*"), *folder.path.glob("messages.jsonl*")}
    if not (passes_over or any(part.name.startswith("log.") for part in paths)):
        paths.add(folder.path / "log.jsonl")
    parts: dict[Path, list[dict[str, Any]]] = {}
    for part in sorted(paths):
        whole = part.with_suffix("") if part.suffix == ".gz" else None
        is_renamed = not part.name.endswith(".jsonl")
        may_fail = whole in parts or (passes_over and is_renamed)
        with suppress(RunFolderError) if may_fail else nullcontext():
            lines = read_lines(part)
            if whole not in parts or lines != parts[whole]:
                parts[part] = lines
    return parts


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read one file of a log.

    Raises
    ------
    RunFolderError
        If it cannot be read, or a line is not one that a run writes.
    """
    lines: list[dict[str, Any]] = []
    try:
        content = read_file(path)
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    except (EOFError, ValueError, zlib.error, gzip.BadGzipFile):
        raise RunFolderError(f"{path} cannot be read: it is damaged") from None
    for number, line in enumerate(text.splitlines(), start=1):
        # A crash may have cut a line short.
        with suppress(ValueError, RecursionError):
            lines.append(json.loads(line))
            if not _is_of_a_run(lines[-1]):
                raise RunFolderError(f"{path}: line {number} is not one that a run writes")
    return lines


def _is_of_a_run(line: object) -> bool:
    try:
        _LINE.validate_python(line, strict=True)
    except ValidationError:
        return False
    return True
