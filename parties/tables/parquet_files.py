"""Parquet files, and folders of them, as stored tables: names, rows and columns; what contradicts itself is refused."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from parties.errors import TableError
from parties.tables.data_files import MAX_NAME, check_names, named, parts, reporting_faults
from parties.tables.record_ids import MAX_WHOLE_DOUBLE
from protocols.transport.sanitize import readable

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# Rows that are read and encoded at a time.
STORED_ROWS = 1 << 16


def stored_names(path: Path, wanted: Collection[str] = ()) -> list[str]:
    """Names of the columns of a stored table, of which every file has the same.

    What pandas wrote as the index of rows is a column if it is `wanted`.

    Raises
    ------
    TableError
    """
    first, *later = [_names(part, wanted) for part in parts(path)]
    for part, names in zip(parts(path)[1:], later, strict=True):
        if odd := set(names) ^ set(first):
            raise TableError(f"{part} and the first file of its folder differ in columns {named(sorted(odd))}")
    return first


def _names(path: Path, wanted: Collection[str]) -> list[str]:
    # What pandas has noted in the file may be damaged, too.
    with opened(path) as file:
        schema = file.schema_arrow
        index = (schema.pandas_metadata or {}).get("index_columns", ())
        return [name for name in schema.names if name not in index or name in wanted]


def stored_schemas(path: Path) -> Iterator[pa.Schema]:
    """The schema of every file of a stored table."""
    for part in parts(path):
        with opened(part) as file:
            yield file.schema_arrow


def stored_length(path: Path) -> int:
    """Rows of a stored table."""
    n_rows = 0
    for part in parts(path):
        with opened(part) as file:
            n_rows += file.metadata.num_rows
    return n_rows


def stored_frames(path: Path, names: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Columns of a stored table, at most `STORED_ROWS` rows at a time.

    Raises
    ------
    TableError
    """
    return chain.from_iterable(_frames(part, names) for part in parts(path))


def _frames(path: Path, names: Sequence[str]) -> Iterator[pd.DataFrame]:
    import pyarrow as pa

    with opened(path, names) as file:
        n_left = file.metadata.num_rows
        # One group of rows at a time: asked for all, pyarrow would read the columns ahead as a whole.
        for group in range(file.num_row_groups):
            # Threads of Arrow's take a tenth of the time for handing over such small pieces.
            for batch in file.iter_batches(STORED_ROWS, row_groups=[group], columns=list(names), use_threads=False):
                n_left -= len(batch)
                if n_left < 0:
                    raise ValueError("more rows than the file says")
                yield _frame(pa.Table.from_batches([batch]), names)
        if n_left:
            raise ValueError("fewer rows than the file says")


def read_stored(path: Path, names: Sequence[str] | None = None) -> pd.DataFrame:
    """Columns of a stored table; all of them, if none is named.

    Raises
    ------
    TableError
    """
    import pyarrow as pa

    frames, tables = [], []
    for part in parts(path):
        with opened(part, names) as file:
            tables.append(file.read(columns=None if names is None else list(names)))
            if len(tables[-1]) != file.metadata.num_rows:
                raise ValueError("other rows than the file says")
            columns = _named(tables[-1]) if names is None else names
            frames.append(_frame(tables[-1], columns))
    if len(tables) == 1:
        return frames[0]
    try:
        return _frame(pa.concat_tables(tables, promote_options="permissive"), columns)
    except pa.ArrowException:
        raise TableError(f"{path}: its files hold cells of different kinds in a column{_kinds(tables)}") from None


def _kinds(tables: Sequence[pa.Table]) -> str:
    """The first column whose cells no type takes together, with the types of the files."""
    import pyarrow as pa

    for name in tables[0].column_names:
        fields = [table.schema.field(name) for table in tables]
        try:
            pa.unify_schemas([pa.schema([field]) for field in fields], promote_options="permissive")
        except pa.ArrowException:
            types = dict.fromkeys(readable(str(field.type), 80) for field in fields)
            return f": {readable(name, MAX_NAME)!r} holds {' and '.join(types)}; write all files with one type"
    return ""


@contextmanager
def opened(path: Path, names: Sequence[str] | None = ()) -> Iterator[pq.ParquetFile]:
    """A Parquet file of which some columns, or all of them, are to be read; one that contradicts itself is refused."""
    import pyarrow.parquet as pq

    with reporting_faults(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        schema, metadata = file.schema_arrow, file.metadata
        check_names(path, schema.names)
        if absent := sorted(set(names or ()) - set(schema.names)):
            raise TableError(f"{path} lacks columns {named(absent)}")
        for name in schema.names if names is None else names:
            if not _holds_cells(kind := schema.field(name).type):
                problem = f"column {readable(name, MAX_NAME)!r} holds {readable(str(kind), 80)}"
                raise TableError(f"{path}: {problem}; allowed are numbers, texts, dates and truth values")
        if sum(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)) != metadata.num_rows:
            raise ValueError("the file's numbers of rows contradict each other")
        yield file


def _holds_cells(kind: pa.DataType) -> bool:
    import pyarrow.types as pt

    if pt.is_dictionary(kind):
        kind = kind.value_type
    numbers = (pt.is_integer, pt.is_floating, pt.is_decimal, pt.is_boolean)
    others = (pt.is_string, pt.is_large_string, pt.is_date, pt.is_timestamp, pt.is_null)
    return any(test(kind) for test in (*numbers, *others))


def _named(table: pa.Table) -> list[str]:
    """The columns of a table but those that pandas made of rows' numbers."""
    return [name for name in table.column_names if not re.fullmatch(r"__index_level_\d+__", name)]


def _holds_texts(kind: pa.DataType) -> bool:
    import pyarrow.types as pt

    return any(test(kind.value_type if pt.is_dictionary(kind) else kind) for test in (pt.is_string, pt.is_large_string))


def _frame(table: pa.Table, names: Sequence[str]) -> pd.DataFrame:
    """Convert an Arrow table to pandas, with its texts checked to be text; an empty text is an empty cell.

    Metadata of pandas in the file (types, names, index) is ignored: Arrow's types in pandas, for one, lack half of
    what others have.
    """
    table.validate(full=True)
    frame = table.to_pandas(use_threads=False, ignore_metadata=True).assign(**_whole_numbers(table))
    frame = frame.assign(**_far_times(frame))
    if not set(names) <= set(frame.columns):
        raise ValueError("other columns than the file says")
    frame = frame[list(names)]
    texts = (field.name for field in table.schema if field.name in frame.columns and _holds_texts(field.type))
    empty = {name: is_empty for name in texts if (is_empty := frame[name].eq("")).any()}
    return frame.assign(**{name: frame[name].mask(is_empty) for name, is_empty in empty.items()})


def _far_times(frame: pd.DataFrame) -> dict[str, pd.Series]:
    """Columns of times with a zone that pandas cannot write, of a year that has not four digits: without it, in UTC."""
    zoned = (column for _, column in frame.items() if isinstance(column.dtype, pd.DatetimeTZDtype))
    in_utc = [column.dt.tz_convert(None) for column in zoned]
    return {str(times.name): times for times in in_utc if not times.dropna().dt.year.between(1, 9999).all()}


def _whole_numbers(table: pa.Table) -> dict[str, pd.Series]:
    """Whole numbers, some of which no double holds, beside missing cells, where pandas makes doubles of all."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types, exact = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}, {}
    for field, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_dictionary(field.type) and field.type.value_type in types:
            column = column.cast(field.type.value_type)
        if column.type in types and column.null_count:
            span = pc.min_max(column).as_py().values()
            if any(end is not None and abs(end) > MAX_WHOLE_DOUBLE for end in span):
                exact[field.name] = column.to_pandas(types_mapper=types.get)
    return exact
