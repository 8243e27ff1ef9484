"""Party folder: a party's keys, schema and run file, written together; no file that exists is replaced."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from opboost.errors import shown
from parties.errors import ConfigError
from parties.onboarding.run_draft import run_file_text
from parties.onboarding.schema_text import Draft
from parties.storage.atomic_files import write_text
from parties.storage.documents import holds_control
from parties.storage.paths import is_taken
from protocols.transport.keys import generate

SCHEMA, RUN = "schema.yaml", "run.yaml"


@dataclass(frozen=True, slots=True)
class Made:
    """Result of onboarding: files, columns whose public bounds are still to be stated, and columns left out.

    `open_marks` are keys of the reader, of which it is open which marks numbers have. With `is_label_open`, all owners
    have yet to say which label means 1. With `has_repeats`, the data file repeats ids.
    """

    files: tuple[Path, ...]
    to_send: Path
    open_bounds: tuple[str, ...] = ()
    open_marks: tuple[str, ...] = ()
    is_label_open: bool = False
    ignored: tuple[str, ...] = ()
    has_repeats: bool = False

    @classmethod
    def by(cls, draft: Draft, files: tuple[Path, ...], to_send: Path, *, has_repeats: bool = False) -> Made:
        """The result with the draft of a schema."""
        return cls(
            files,
            to_send,
            open_bounds=tuple(draft.open_bounds),
            open_marks=tuple(draft.open_marks),
            is_label_open=draft.is_label_open,
            ignored=tuple(draft.ignore),
            has_repeats=has_repeats,
        )


def common_keys(role: str, party: str, run_id: str) -> dict[str, str]:
    """The keys that the run files of all roles have in such a folder."""
    return {"role": role, "party": party, "run_id": run_id, "schema": SCHEMA, "secret_key": f"keys/{party}.secret"}


def named_key(name: str) -> dict[str, str]:
    """Another party, whose public key comes to the folder of keys."""
    return {"name": name, "public_key": f"keys/{name}.public"}


def write_folder(
    folder: Path, kind: type[BaseModel], given: Mapping[str, Any], schema: str | None
) -> tuple[tuple[Path, ...], Path]:
    """Write keys, schema and run file; returns all files, and the public key among them.

    Parameters
    ----------
    folder : Path
    kind : type of BaseModel
    given : mapping of str to Any
        Keys of the run file, which were checked.
    schema : str or None
        Text of the schema file; None if that lies in the folder.

    Raises
    ------
    KeyFileError, RunFolderError
        If one of them cannot be written; the others are removed.
    """
    with all_or_nothing(folder) as made:
        secret, public = generate(folder / "keys", given["party"])
        made += [secret, public]
        for name, text in ((SCHEMA, schema), (RUN, run_file_text(kind, given))):
            if text is not None:
                check_free(folder / name)
                made.insert(-2, folder / name)
                write_text(folder / name, text)
    return tuple(made), public


@contextmanager
def all_or_nothing(*folders: Path) -> Iterator[list[Path]]:
    """If the block fails, remove the files that it has listed, and the new folders that hold nothing else."""
    needed = [path for folder in folders for path in (folder / "keys", folder, *folder.parents)]
    new_folders, made = [path for path in needed if not is_taken(path)], list[Path]()
    try:
        yield made
    except BaseException:
        for path in made:
            with suppress(OSError):
                path.unlink()
        for new_folder in new_folders:
            with suppress(OSError):
                new_folder.rmdir()
        raise


def check_free(path: Path) -> None:
    """Refuse a place where something is.

    Raises
    ------
    ConfigError
    """
    if is_taken(path):
        raise ConfigError(f"{path} exists and is not replaced; remove it, or give another place. Nothing was made")


def check_path(data: Path, folder: Path) -> None:
    """Refuse a data file whose path from the folder no run file can name.

    Raises
    ------
    ConfigError
    """
    if holds_control(seen_from(folder, data)):
        raise ConfigError(
            f"{shown(str(data))}: its path holds a line break, a control character or bytes that are no UTF-8: no "
            "run file can name it. Rename it. Nothing was made"
        )


def seen_from(folder: Path, file: Path) -> str:
    """The path of a file from a folder, as it is followed where there are links to folders; one to a file stays."""
    return os.path.relpath(Path(os.path.realpath(file.parent), file.name), os.path.realpath(folder))
