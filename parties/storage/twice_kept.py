"""Twice-kept files: JSON documents in two files, each with its digest.

What a power cut or a bad sector has damaged is read from the other file. The copy is written first, so it is never
behind the file that is read, nor behind what has left this party.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from opboost.trees.model_file import document_digest
from parties.errors import RunFolderError
from parties.storage.atomic_files import write_json
from parties.storage.paths import read_file

T = TypeVar("T")


def copies(path: Path) -> tuple[Path, Path]:
    """The files in which a document lies."""
    return path, path.with_suffix(".copy")


def is_kept(path: Path) -> bool:
    """Whether a document was written, whatever became of it."""
    return any(copy.exists() for copy in copies(path))


def write_twice(path: Path, document: Any) -> None:
    """Write a document to both files."""
    for copy in reversed(copies(path)):
        write_json(copy, with_digest(path.name, document))


def with_digest(name: str, document: Any) -> dict[str, Any]:
    """A document under its name, and a digest of both."""
    return {"digest": document_digest({name: document}), name: document}


def read_either(path: Path, content: TypeAdapter[T]) -> T:
    """Read a document from the first file that is as it was written; one without a digest counts as that.

    Raises
    ------
    RunFolderError
        If neither file is.
    """
    for copy in copies(path):
        with suppress(RunFolderError, ValueError, RecursionError):
            document = json.loads(read_file(copy))
            if isinstance(document, dict) and path.name in document:
                if document.pop("digest", None) != document_digest(document):
                    continue
                document = document[path.name]
            return content.validate_json(json.dumps(document), strict=True)
    raise RunFolderError(f"{path} cannot be read; choose another run_id. Nothing was sent")
