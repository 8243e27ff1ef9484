"""CSV files, plain or compressed, read as a whole; what would be read as another table than was meant is refused."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Iterable
from pathlib import Path
from typing import Literal
from zipfile import ZipFile

import pandas as pd

from parties.errors import TableError
from parties.tables.data_files import check_names


def read_csv(path: Path, as_text: Iterable[str]) -> pd.DataFrame:
    """Read a CSV file whose first line names its columns; empty cells are missing, no word like "NA" is.

    Parameters
    ----------
    path : Path
        Its last suffix names the compression, if there is one: .gz, .bz2, .xz, or .zip with one file in it.
    as_text : iterable of str
        Columns whose cells stay texts.

    Raises
    ------
    TableError
        If it is no text, names a column twice, or has rows with more or fewer cells than the header.
    """
    content = _content(path)
    if b"\0" in content:
        raise TableError(f"{path} is not a readable table: it is not text in UTF-8")
    check_names(path, _header(content))
    frame = _parse(content, as_text)
    if not isinstance(frame.index, pd.RangeIndex) or _has_more_cells(content):
        # The first row has more cells than the header, which pandas takes for an index. Empty ones come of separators
        # at the end of lines.
        if frame.index.nlevels > 1 or not frame.iloc[:, -1].isna().all():
            raise TableError(f"{path} has rows with more cells than its header names columns")
        frame = _parse(content, as_text, index_col=False)
    # A row with fewer cells always lacks the last one.
    if frame.shape[1] and frame.iloc[:, -1].isna().any() and (n_short := _n_short_rows(content)):
        raise TableError(f"{path} has {n_short} rows with fewer cells than its header names columns")
    return frame


def _content(path: Path) -> bytes:
    match path.suffix:
        case ".gz":
            return gzip.decompress(path.read_bytes())
        case ".bz2":
            return bz2.decompress(path.read_bytes())
        case ".xz":
            return lzma.decompress(path.read_bytes())
        case ".zip":
            with ZipFile(path) as archive:
                (name,) = archive.namelist()
                return archive.read(name)
    return path.read_bytes()


def _header(content: bytes) -> list[str]:
    first = pd.read_csv(io.BytesIO(content), header=None, nrows=1, dtype=str, keep_default_na=False)
    return first.iloc[0].tolist()


def _has_more_cells(content: bytes) -> bool:
    """Whether the first row has more cells than the header; read as text, since even numbers become a plain index."""
    first = pd.read_csv(io.BytesIO(content), nrows=1, dtype=str, keep_default_na=False)
    return not isinstance(first.index, pd.RangeIndex)


def _parse(content: bytes, as_text: Iterable[str], index_col: Literal[False] | None = None) -> pd.DataFrame:
    return pd.read_csv(
        io.BytesIO(content),
        dtype=dict.fromkeys(as_text, "string"),
        keep_default_na=False,
        na_values=[""],
        index_col=index_col,
        low_memory=False,
    )


def _n_short_rows(content: bytes) -> int:
    """Rows with fewer cells than the first one; pandas fills them up with missing cells."""
    from pyarrow import binary, csv

    short: list[int] = []

    def note(row: csv.InvalidRow) -> str:
        if row.actual_columns < row.expected_columns and row.text.strip():
            short.append(row.actual_columns)
        return "skip"

    csv.read_csv(
        io.BytesIO(content),
        read_options=csv.ReadOptions(autogenerate_column_names=True, block_size=min(len(content) + 1, 2**31 - 1)),
        parse_options=csv.ParseOptions(newlines_in_values=True, invalid_row_handler=note),
        convert_options=csv.ConvertOptions(include_columns=["f0"], column_types={"f0": binary()}),
    )
    return len(short)
