"""Tables that lie elsewhere, in databases and object stores, and become files of this party's own.

The result of a query goes into a Parquet file, record batch by record batch, and the files of an object store are
copied in pieces; from there they are read like any other file. What a driver says of an error may hold data, so it is
told on its owner's terminal alone.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit
from warnings import catch_warnings

from opboost.errors import nearest
from parties.errors import ConfigError, PartyError, TableError
from parties.storage.paths import odd_kind
from parties.tables.data_files import is_parquet
from parties.tables.query_results import plain_pieces, single_statement, with_all_digits
from protocols.private_files import private_folder, private_opener

if TYPE_CHECKING:
    import pyarrow as pa

# Schemes of URIs.
WRITABLE = ("postgresql", "postgres", "sqlite")
DATABASES = (*WRITABLE, "duckdb", "grpc", "grpc+tls", "odbc")
STORES = ("s3", "gs", "hdfs")
_FILES = ("sqlite", "duckdb")

# Packages that bring drivers, but for those of the extra `sql`.
_PACKAGES = {"adbc_driver_duckdb": "duckdb", "adbc_driver_flightsql": "adbc-driver-flightsql"}

# SQLite's driver takes the types of columns from the rows that it reads first.
RESULT_ROWS = 1 << 16
COPIED_BYTES = 1 << 23

# Arrow tries for a quarter of an hour to reach Google's store.
STORE_RETRY_S = 20

# PostgreSQL's library waits without end for a server that takes the connection and does not answer, deaf to signals.
CONNECT_S = 20

# How names of secrets end, in small letters and digits alone: ClientSecret, access_key, Auth_AccessToken.
_SECRETS = ("password", "passwd", "pwd", "passphrase", "secret", "token", "accesskey", "secretkey", "accountkey")


def scheme_of(uri: str) -> str:
    """The scheme of a URI."""
    return uri.partition(":")[0].casefold()


def holds_secret(uri: str) -> bool:
    """Whether a URI, or a connection string of ODBC, names a password or a key."""
    if scheme_of(uri) == "odbc":
        return any(_is_secret(part.partition("=")[0]) for part in uri[len("odbc:") :].split(";"))
    split_uri = urlsplit(uri)
    has_password = split_uri.password is not None or (scheme_of(uri) in STORES and "@" in split_uri.netloc)
    return has_password or any(_is_secret(key) for key, _ in parse_qsl(split_uri.query, keep_blank_values=True))


def _is_secret(name: str) -> bool:
    return "".join(filter(str.isalnum, name.casefold())).endswith(_SECRETS)


def check_uri(uri: str, schemes: Sequence[str]) -> None:
    """Refuse a URI that cannot be used, or that holds a secret.

    Raises
    ------
    ConfigError
    """
    scheme = scheme_of(uri)
    if scheme not in schemes:
        raise ConfigError(f"a URI begins with {', '.join(schemes)}{nearest(scheme, schemes)}. Nothing was sent")
    try:
        is_secret = holds_secret(uri)
    except ValueError:
        raise ConfigError("this is no URI: its host is malformed. Nothing was sent") from None
    if is_secret:
        raise ConfigError(
            "a URI must hold no password or key: run files name `password_env` or `password_file`, and drivers read "
            "their own, such as PGPASSWORD, PGPASSFILE or AWS_PROFILE. Nothing was sent"
        )
    if scheme in _FILES and not uri.partition(":")[2].startswith("///"):
        raise ConfigError(f"{scheme}: give the whole path of the file, as in {scheme}:///srv/crm.db. Nothing was sent")


def readable_uri(uri: str) -> str:
    """The parts of a URI that may be shown: scheme, host and path."""
    split_uri = urlsplit(uri)
    return "odbc" if scheme_of(uri) == "odbc" else f"{split_uri.scheme}://{split_uri.hostname or ''}{split_uri.path}"


def is_read(place: str, uri: str, query: str | None) -> bool:
    """Whether a place to write at is an object or a folder that is read, or a table that a query names."""
    target, source = urlsplit(place), urlsplit(uri)
    if _storage_of(target) != _storage_of(source) or target.hostname != source.hostname:
        return False
    if query is not None:
        table = target.fragment.rpartition(".")[2]
        return bool(table and re.search(rf"(?<!\w){re.escape(table)}(?!\w)", query, re.IGNORECASE))
    written, read = (Path(split_uri.netloc, unquote(split_uri.path).strip("/")) for split_uri in (target, source))
    return read in (written, written.parent)


def database_file(uri: str) -> Path | None:
    """The file that a database lies in, or will, if it lies in one.

    With a second slash before its path, as SQLAlchemy has it, a folder would be taken for a host.
    """
    return Path("/" + urlsplit(uri).path.lstrip("/")) if scheme_of(uri) in _FILES else None


def _storage_of(split_uri: SplitResult) -> tuple[str, str]:
    """Identity of the storage behind a URI: the kind of store, or the kind of database and which one."""
    scheme = scheme_of(split_uri.geturl())
    if scheme in STORES:
        return scheme, ""
    file = database_file(split_uri.geturl())
    return scheme.removesuffix("ql"), split_uri.path if file is None else os.path.realpath(file)


def fetch(uri: str, folder: Path, *, query: str | None = None, password: str | None = None) -> Path:
    """Copy a table into a folder; returns the file, or the folder of Parquet files, that it is there.

    Raises
    ------
    ConfigError
        If a driver is not installed.
    TableError
        If it cannot be read.
    """
    with reaching(uri, "read", password=password):
        if query is None:
            return _copied(uri, folder)
        import pyarrow.parquet as pq

        target = folder / f"{scheme_of(uri)}.parquet"
        with _result(uri, query, password) as pieces:
            schema = next(pieces).schema
            with open(target, "wb", opener=private_opener) as file, pq.ParquetWriter(file, schema) as writer:
                for rows in pieces:
                    writer.write_table(rows)
    return target


@contextmanager
def reaching(uri: str, verb: str, *, password: str | None = None) -> Iterator[None]:
    """Say in one sentence that a place cannot be reached; what the driver says becomes a note for the terminal alone.

    Raises
    ------
    ConfigError, TableError
    """
    try:
        yield
    except PartyError:
        raise
    except ImportError as error:
        missing = error.name or "a driver"
        package = _PACKAGES.get(missing.partition(".")[0], "'opboost[sql]'")
        raise ConfigError(
            f"{readable_uri(uri)} needs {missing}, which is not installed; `pip install {package}` installs it. "
            "Nothing was sent"
        ) from None
    except Exception as error:
        state = getattr(error, "sqlstate", None)
        reason = f"{type(error).__name__}{f', SQLSTATE {state}' if state else ''}"
        failed = TableError(f"{readable_uri(uri)} cannot be {verb} ({reason}). Nothing was sent")
        failed.add_note(_without(str(error), password) if password else str(error))
        raise failed from None


def _without(text: str, password: str) -> str:
    """The text with the password hidden, whichever of its characters are percent-encoded."""
    forms = (f"{re.escape(form)}|(?i:{re.escape(quote(form, safe=''))})" for form in password)
    return re.sub("".join(f"(?:{form})" for form in forms).replace("%20", r"%20|\+"), "***", text)


def connect(uri: str, password: str | None = None, *, writes: bool = False) -> Any:
    """A connection to a database by ADBC, in a transaction that has to be committed."""
    address = uri.partition("#")[0]
    if password is not None:
        address += f"{'&' if '?' in address else '?'}password={quote(password, safe='')}"
    match scheme_of(uri):
        case "sqlite":
            from adbc_driver_sqlite import dbapi as sqlite

            _check_file(uri, writes=writes)
            file = str(database_file(uri))
            if writes:
                # SQLite itself would make a file that others may read.
                with suppress(FileExistsError):
                    open(file, "xb", opener=private_opener).close()
            return sqlite.connect(f"file:{quote(file)}?mode={'rwc' if writes else 'ro'}")
        case "duckdb":
            from adbc_driver_duckdb import dbapi as duckdb

            _check_file(uri, writes=writes)
            return duckdb.connect(str(Path(urlsplit(uri).path).resolve(strict=True)))
        case "grpc" | "grpc+tls":
            from adbc_driver_flightsql import dbapi as flightsql

            # Of servers without transactions, which it is of no use to tell.
            with catch_warnings(action="ignore"):
                return flightsql.connect(address)
    from adbc_driver_postgresql import dbapi as postgresql

    if "connect_timeout" not in address and "PGCONNECT_TIMEOUT" not in os.environ:
        address += f"{'&' if '?' in address else '?'}connect_timeout={CONNECT_S}"
    return postgresql.connect(address)


def _check_file(uri: str, *, writes: bool) -> None:
    """Refuse a pipe or a device, which a database would wait for, and a missing file of a database that is read."""
    file = database_file(uri)
    if file is not None and (file.exists() or not writes) and (kind := odd_kind(file)) is not None:
        raise TableError(f"{readable_uri(uri)} is {kind}, and no database. Nothing was sent")


def store_at(uri: str) -> tuple[Any, str]:
    """An object store and the path in it."""
    from pyarrow import fs

    if scheme_of(uri) == "gs" and "retry_limit_seconds" not in uri:
        uri += f"{'&' if '?' in uri else '?'}retry_limit_seconds={STORE_RETRY_S}"
    return fs.FileSystem.from_uri(uri)


@contextmanager
def _result(uri: str, query: str, password: str | None) -> Iterator[Iterator[pa.Table]]:
    """The rows of a query's result in pieces, as `plain_pieces` gives them."""
    if scheme_of(uri) == "odbc":
        from arrow_odbc import read_arrow_batches_from_odbc

        connection_string = uri[len("odbc:") :]
        batches = read_arrow_batches_from_odbc(query, connection_string, batch_size=RESULT_ROWS, password=password)
        yield plain_pieces(batches.into_pyarrow_record_batch_reader())
        return
    is_sqlite = scheme_of(uri) == "sqlite"
    options = {"adbc.sqlite.query.batch_rows": RESULT_ROWS} if is_sqlite else {}
    if is_sqlite:
        query = single_statement(query)
    with closing(connect(uri, password)) as database, database.cursor(adbc_stmt_kwargs=options) as cursor:
        # Behind a comment at the end, what PostgreSQL's driver adds would be one, too.
        cursor.execute(f"{query}\n")
        with cursor.fetch_record_batch() as reader:
            pieces = plain_pieces(reader)
            yield with_all_digits(pieces, database, query) if is_sqlite else pieces


def _copied(uri: str, folder: Path) -> Path:
    """A store's file, or its folder of Parquet files, as one version of it: a store serves each piece as it is then."""
    from pyarrow import fs

    store, path = store_at(uri)
    entries = _listed(store, path)
    if entries[0].type == fs.FileType.NotFound:
        raise TableError(f"{readable_uri(uri)} is not there. Nothing was sent")
    is_folder, target = entries[0].type == fs.FileType.Directory, folder / entries[0].base_name
    files = entries[is_folder:]
    if is_folder:
        private_folder(target)
    for entry in files:
        with (
            store.open_input_stream(entry.path, compression=None) as source,
            open(target / entry.base_name if is_folder else target, "wb", opener=private_opener) as file,
        ):
            shutil.copyfileobj(source, file, COPIED_BYTES)
    if _versions_of(_listed(store, path)[is_folder:]) != _versions_of(files):
        raise TableError(f"{readable_uri(uri)} was changed while it was copied. Nothing was sent")
    return target


def _listed(store: Any, path: str) -> list[Any]:
    """File information on a path of a store, and on the Parquet files in it if it is a folder."""
    from pyarrow import fs

    entry = store.get_file_info(path)
    if entry.type != fs.FileType.Directory:
        return [entry]
    inside = store.get_file_info(fs.FileSelector(path))
    return [entry, *(file for file in inside if is_parquet(Path(file.base_name)))]


def _versions_of(files: list[Any]) -> set[tuple[object, ...]]:
    """Paths, sizes and times of the last change, which show a change; Arrow's own records have no equality."""
    return {(file.path, file.size, file.mtime_ns) for file in files}
