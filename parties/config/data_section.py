"""The `data` key: a file or a folder of this machine, or a place in a database or an object store."""

from __future__ import annotations

import os
import shutil
import weakref
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Discriminator, Field, PrivateAttr, Tag, model_validator

from parties.config.section import PlainName, Section
from parties.errors import ConfigError
from parties.storage.spool import on_disk
from parties.tables.data_files import reporting_faults
from parties.tables.remote_tables import DATABASES, STORES, check_uri, database_file, fetch, is_read, scheme_of


class DataSource(Section):
    """A table of a database or an object store, fetched once by a job into a private folder that ends with it."""

    uri: str = Field(
        description="Where it is: `postgresql://`, `sqlite:///`, `duckdb:///`, `grpc://` (Flight SQL) or `odbc:`; or a "
        "file, or a folder of Parquet files, at `s3://`, `gs://` or `hdfs://`."
    )
    query: str | None = Field(None, min_length=1, description="For a database: the query whose result is the table.")
    password_env: PlainName | None = Field(None, description="Environment variable that holds the password.")
    password_file: Path | None = Field(None, description="File that holds the password.")
    _fetched: Path | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _check(self) -> Self:
        scheme = scheme_of(self.uri)
        try:
            check_uri(self.uri, (*DATABASES, *STORES))
        except ConfigError as error:
            raise ValueError(str(error)) from None
        if (self.query is None) is (scheme in DATABASES):
            raise ValueError("a database needs a `query`, and an object store has none")
        n_secrets = (self.password_env is not None) + (self.password_file is not None)
        if n_secrets > (scheme in ("postgresql", "postgres", "odbc")):
            raise ValueError("give one of `password_env` and `password_file`, and only for PostgreSQL and ODBC")
        return self

    def file(self) -> Path:
        """The table as a file or a folder of this machine, fetched at the first call.

        Raises
        ------
        ConfigError, TableError
        RunFolderError
            If there is no place for it.
        """
        if self._fetched is None:
            with on_disk("the table"):
                folder = Path(mkdtemp(prefix="opboost-"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            self._fetched = fetch(self.uri, folder, query=self.query, password=self._password())
        return self._fetched

    def paths(self) -> Iterator[Path]:
        """Also the file that a database lies in."""
        yield from super().paths()
        if (file := database_file(self.uri)) is not None:
            yield file

    def reads(self, place: str) -> bool:
        """Whether this table is read from a place that is written."""
        return is_read(place, self.uri, self.query)

    def _password(self) -> str | None:
        if self.password_file is not None:
            with reporting_faults(self.password_file):
                return self.password_file.read_text().rstrip("\n")
        if self.password_env is not None and self.password_env not in os.environ:
            raise ConfigError(f"data.password_env: {self.password_env} is not set. Nothing was sent")
        return None if self.password_env is None else os.environ[self.password_env]


def _as_section(given: Any) -> Any:
    return {"uri": given} if isinstance(given, str) and "://" in given else given


# Tags in brackets are no keys in messages.
Data = Annotated[
    Annotated[Path, Tag("[file]")] | Annotated[DataSource, Tag("[source]")],
    Discriminator(lambda given: "[source]" if isinstance(given, (dict, DataSource)) else "[file]"),
    BeforeValidator(_as_section),
]
