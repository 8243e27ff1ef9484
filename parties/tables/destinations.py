"""Destinations of predictions: a file of this machine, an object of a store, or a table of a database."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from urllib.parse import urlsplit
from uuid import uuid4

from parties.errors import ConfigError, RunFolderError, TableError
from parties.storage.atomic_files import replacing, write_or_keep
from parties.storage.csv_cells import as_text
from parties.storage.name_patterns import is_named_by
from parties.storage.paths import check_writable, is_taken, real_places
from parties.tables.column_types import check_column_types
from parties.tables.data_files import file_digest
from parties.tables.remote_tables import (
    STORES,
    WRITABLE,
    check_uri,
    connect,
    fetch,
    reaching,
    readable_uri,
    scheme_of,
    store_at,
)

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

ENDINGS = (".csv", ".parquet")


@runtime_checkable
class ReadElsewhere(Protocol):
    """A table that lies elsewhere."""

    def reads(self, place: str, /) -> bool:
        """Whether it is read from a place that is written."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where predictions go.

    Attributes
    ----------
    place : Path or str
        A file; or a URI, of a table as `postgresql://host/database#schema.table`.
    overwrite : bool
        Whether what is there is replaced.
    append : bool
        Whether rows are added to a table.
    spare : Path or None
        Beside which they are kept if they cannot be written: whoever was asked for them counts his answers.
    written : str or None
        What `write` has told of what is there, if the same request wrote it.
    """

    place: Path | str
    overwrite: bool = False
    append: bool = False
    spare: Path | None = None
    written: str | None = None

    def __str__(self) -> str:
        return str(self.place) if isinstance(self.place, Path) else readable_uri(self.place)

    @classmethod
    def of(
        cls,
        out: Path | str | None,
        default: Path,
        *,
        overwrite: bool,
        append: bool,
        own: Collection[str] = (),
        inputs: Iterable[object] = (),
    ) -> Destination:
        """A destination from the options of a command, checked before anybody is asked.

        Parameters
        ----------
        out : Path or str, optional
        default : Path
        overwrite, append : bool
        own : collection of str, optional
            What `write` has told in earlier processes of the same request.
        inputs : iterable, optional
            Paths and sources among them are of data, which predictions never replace or join.

        Raises
        ------
        ConfigError
            If it is of no kind that is written, something is there already, or it is one of the inputs.
        RunFolderError
            If no file can be written there.
        """
        place = default if out is None else out if isinstance(out, str) and "://" in out else Path(out)
        if isinstance(place, str):
            check_uri(place, (*WRITABLE, *STORES))
        if any(_is_of(place, source) for source in inputs):
            shown = place if isinstance(place, Path) else readable_uri(place)
            raise ConfigError(
                f"{shown} holds data that is read, or lies among it; give another place with --out. Nothing was sent"
            )
        destination = cls(place, overwrite, append, default)
        if (written := destination._written_before(own)) is not None:
            return replace(destination, written=written)
        destination._check()
        if isinstance(place, Path):
            try:
                check_writable(place)
            except RunFolderError as error:
                raise RunFolderError(f"{error}. Nothing was sent") from None
        return destination

    @property
    def name(self) -> str:
        """The name of the file, object or table."""
        return self._table[1] if self._is_table else Path(str(self)).name

    @property
    def _table(self) -> tuple[str | None, str]:
        """Schema and name of a table."""
        schema, _, name = urlsplit(str(self.place)).fragment.rpartition(".")
        return schema or None, name

    @property
    def _is_table(self) -> bool:
        return isinstance(self.place, str) and scheme_of(self.place) in WRITABLE

    def _check(self) -> None:
        if self._is_table and not self._table[1]:
            raise ConfigError(f"{self}: name the table after a #, as in postgresql://host/database#scores")
        path = self.place.name if isinstance(self.place, Path) else urlsplit(self.place).path
        if not self._is_table and not path.endswith(ENDINGS):
            raise ConfigError(f"{self}: predictions are written to {' or '.join(ENDINGS)}. Nothing was sent")
        if (self.overwrite and self.append) or (self.append and not self._is_table):
            raise ConfigError("--append adds to a table of a database, and goes without --overwrite. Nothing was sent")
        # Also one that may be replaced has to be within reach.
        if not self._exists() or self.overwrite or self.append:
            return
        shown, ways = str(self), "another file with --out, or --overwrite"
        if self._is_table:
            shown = f"table {self.name!r} of {self}"
            ways = "another one with --out, --append to add to it, or --overwrite to replace it"
        raise ConfigError(f"{shown} exists; give {ways}. Nothing was sent")

    def _exists(self) -> bool:
        if isinstance(self.place, Path):
            return is_taken(self.place)
        from pyarrow import fs

        with reaching(self.place, "written"):
            if self._is_table:
                with closing(connect(self.place, writes=True)) as database:
                    return _has_table(database, *self._table)
            store, place = store_at(self.place)
            return bool(store.get_file_info(place).type != fs.FileType.NotFound)

    def _written_before(self, own: Collection[str]) -> str | None:
        """Digest of the file or object that is there ("" of a table) if `own` has it: this request wrote it then."""
        if not own or not self._exists():
            return None
        digest = ""
        # An empty file, or one that cannot be read, is somebody else's.
        with suppress(TableError):
            if isinstance(self.place, Path):
                digest = file_digest(self.place)
            elif not self._is_table:
                with reaching(self.place, "read"), TemporaryDirectory(prefix="opboost-") as folder:
                    digest = file_digest(fetch(self.place, Path(folder)))
        return digest if digest in own else None

    def check_columns(self, rows: pd.DataFrame) -> None:
        """Refuse a table to append to that lacks columns of such rows, or would change their cells, if it is there.

        Parameters
        ----------
        rows : DataFrame
            A row at least, with the columns and types of the predictions.

        Raises
        ------
        ConfigError, TableError
        """
        if self.append and isinstance(self.place, str):
            with reaching(self.place, "written"), closing(connect(self.place, writes=True)) as database:
                self._check_types(database, _as_arrow(rows).schema)

    def _check_types(self, database: Any, given: pa.Schema) -> None:
        schema, name = self._table
        if self.append and _has_table(database, schema, name):
            check_column_types(database, given, place=str(self.place), schema=schema, name=name)

    def write(self, rows: pd.DataFrame, *, before: Callable[[str], None] = lambda digest: None) -> None:
        """Write predictions keyed by id; whole, or not at all.

        In CSV, ids and reasons that a spreadsheet would compute are marked (`parties.storage.csv_cells`).

        Parameters
        ----------
        rows : DataFrame
        before : callable, optional
            Takes the digest (`file_digest`) of a file or object before it has its place, or "" before a table has rows.

        Raises
        ------
        ConfigError, RunFolderError, TableError
            That says where they are kept instead, if they are.
        """
        if self.spare is None:
            self._write(rows, before)
            return
        kept = self.spare.with_name(f"{self.spare.stem}.{uuid4().hex[:8]}.csv")
        write_or_keep(lambda: self._write(rows, before), partial(_write_file, rows), kept)

    def _write(self, rows: pd.DataFrame, before: Callable[[str], None]) -> None:
        self._check()
        if isinstance(self.place, Path):
            _write_file(rows, self.place, before)
            return
        import pyarrow as pa

        with reaching(self.place, "written"), TemporaryDirectory(prefix="opboost-") as folder:
            if self._is_table:
                schema, name = self._table
                mode = "replace" if self.overwrite else "create_append" if self.append else "create"
                table = _as_arrow(rows)
                with closing(connect(self.place, writes=True)) as database, database.cursor() as cursor:
                    self._check_types(database, table.schema)
                    cursor.adbc_ingest(name, table, mode=mode, db_schema_name=schema)
                    before("")
                    database.commit()
                return
            store, place = store_at(self.place)
            _write_file(rows, local_copy := Path(folder, Path(place).name), before)
            # Arrow's own copying drops what a store says at the end, where it refuses an object.
            with pa.memory_map(str(local_copy)) as file, store.open_output_stream(place, compression=None) as target:
                target.write(file.read_buffer())


def _is_of(place: Path | str, data: object) -> bool:
    """Whether a place to write at holds data that is read, or lies among it."""
    if isinstance(place, str):
        return isinstance(data, ReadElsewhere) and data.reads(place)
    if not isinstance(data, Path):
        return False
    # A folder of files is read, or those that a pattern names; what lies there may be a link, which would be replaced.
    source = Path(os.path.realpath(data))
    return any(source in (real, real.parent) or is_named_by(real, data) for real in real_places(place))


def _has_table(database: Any, schema: str | None, name: str) -> bool:
    """Whether a connected database has a table; changes of its transaction that are not committed are undone if not."""
    from adbc_driver_manager import AdbcStatusCode, Error

    try:
        database.adbc_get_table_schema(name, db_schema_filter=schema)
    except Error as error:
        if error.status_code == AdbcStatusCode.NOT_FOUND:
            # PostgreSQL refuses whatever comes after an error in a transaction, and an absent table is an error.
            database.rollback()
            return False
        raise
    return True


def _as_arrow(rows: pd.DataFrame) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_pandas(rows, preserve_index=False)


def _write_file(rows: pd.DataFrame, path: Path, before: Callable[[str], None] = lambda digest: None) -> None:
    # Two predictions of one run may be written at the same time.
    with replacing(path, writer=f".{uuid4().hex}") as partial:
        if path.suffix == ".parquet":
            rows.to_parquet(partial, index=False)
        else:
            texts = rows.filter(regex=r"^(id(\.|$)|reason_)").map(as_text, na_action="ignore")
            rows.assign(**texts).to_csv(partial, index=False)
        before(file_digest(partial))
