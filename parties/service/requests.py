"""Requests and responses of the HTTP service, and the active party's own columns of the records in a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field

from opboost.arrays import Mask, Values
from opboost.preprocess import own_features
from opboost.schema import Kind, TableSchema
from parties.errors import TableError
from parties.tables.cells import column_cells, empty_numbers, named_as_listed, naming_times
from parties.tables.data_files import named
from parties.tables.party_table import model_inputs, read_table
from parties.tables.record_ids import canonical, join
from parties.tables.sorted_ids import Duplicates

# Keys of an object. Every one that is wrong makes an error of a kilobyte, and answers wait while they are made.
MOST_KEYS = 4096

# With a bound, half of a surrogate pair is no text.
Text = Annotated[str, Field(max_length=10_000)]
IdPart = Annotated[str, Field(min_length=1, max_length=200)] | Annotated[int, Field(gt=-(10**200), lt=10**200)]
Cell = int | float | Text | None


def _of_few_keys(value: object) -> object:
    if isinstance(value, dict) and len(value) > MOST_KEYS:
        raise ValueError(f"an object has {len(value)} keys; at most {MOST_KEYS} are read")
    return value


FewKeys = BeforeValidator(_of_few_keys)


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class RecordBody(_Document):
    """One record: its id, and the service owner's columns of it unless its data file is to be looked in."""

    id: IdPart | Annotated[list[IdPart], Field(min_length=2, max_length=20)] = Field(
        description="The id, or the parts of an id of several columns."
    )
    columns: Annotated[dict[Text, Cell], FewKeys] | None = Field(
        None, description="The service owner's columns, null for a missing cell; without it, those of its data file."
    )


class ScoresBody(_Document):
    """Records to be scored."""

    records: Annotated[list[Annotated[RecordBody, FewKeys]], FailFast(), Field(min_length=1)]
    reasons: Annotated[int, Field(ge=0, le=100)] = Field(
        0, description="Name so many columns that raised each score most."
    )


class ScoreBody(BaseModel):
    """A record's score; several classes, quantiles or bins have further keys."""

    model_config = ConfigDict(extra="allow")

    id: IdPart | list[IdPart]
    status: str = Field(description="`ok`, or why there is no prediction.")
    prediction: Cell
    reasons: list[str] | None = None


class ScoresAnswer(BaseModel):
    """Scores in the order of the request."""

    model: str = Field(description="The run whose model computed the scores.")
    scores: list[ScoreBody]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRecords:
    """The active party's columns of the records that it knows.

    Attributes
    ----------
    schema : TableSchema
    rows : dict of str to int
        By id.
    values : dict of str to ndarray, each of shape (n_rows,)
    """

    schema: TableSchema
    rows: dict[str, int]
    values: dict[str, Values]

    @classmethod
    def read(cls, path: Path, schema: TableSchema, ignore: Sequence[str], duplicates: Duplicates) -> OwnRecords:
        """Read a data file.

        Raises
        ------
        TableError, DataError
        """
        table = read_table(path, schema, ignore=ignore, needs_label=False, duplicates=duplicates)
        rows = {record_id: row for row, record_id in enumerate(table.index)}
        return cls(schema=schema, rows=rows, values=model_inputs(table, schema))

    def of(self, records: Sequence[RecordBody]) -> tuple[list[str], dict[str, Values], Mask]:
        """Ids and own columns of the records in a request, and which of them are known or came with columns.

        Raises
        ------
        TableError
            If an id has other parts than the schema's, or columns are absent or not in the schema.
        DataError
            If a cell does not fit the schema.
        """
        ids = [self._id(record.id) for record in records]
        brought = [i for i, record in enumerate(records) if record.columns is not None]
        rows = np.fromiter((self.rows.get(name, -1) for name in ids), np.intp, len(ids))
        own = {name: values[rows] for name, values in self.values.items()}
        is_there = rows >= 0
        if brought:
            cells = [records[i].columns or {} for i in brought]
            for name, values in self._parsed(cells).items():
                own[name][brought] = values
            is_there[brought] = True
        return ids, own, is_there

    def _id(self, found: str | int | list[Any]) -> str:
        parts = found if isinstance(found, list) else [found]
        if len(parts) != len(self.schema.id_columns):
            raise TableError(
                f"an id has {len(parts)} parts; the schema has {len(self.schema.id_columns)}: "
                f"{', '.join(self.schema.id_columns)}. Nothing was asked"
            )
        texts = [canonical(str(part)) for part in parts]
        return texts[0] if len(texts) == 1 else join(texts)

    def _parsed(self, cells: Sequence[dict[str, Cell]]) -> dict[str, Values]:
        if self.schema.base_margin:
            raise TableError("records of a model with a base margin are scored by id alone. Nothing was asked")
        wanted = set(self.schema.names)
        for columns in cells:
            if missing := sorted(wanted - columns.keys()):
                raise TableError(f"`columns` lacks {', '.join(missing)}. Nothing was asked")
            if unknown := sorted(columns.keys() - wanted):
                raise TableError(f"`columns` has {named(unknown)}, which the schema does not know. Nothing was asked")
        # An empty text is an empty cell, as in a data file.
        texts = {name: [None if record[name] == "" else record[name] for record in cells] for name in self.schema.names}
        frame = named_as_listed(pd.DataFrame(texts, dtype=object), self.schema)
        with naming_times(self.schema):
            return own_features(_read_texts(frame, self.schema), self.schema.columns)


def _read_texts(frame: pd.DataFrame, schema: TableSchema) -> pd.DataFrame:
    """Cells of a request by the schema's format of tables; a number of JSON's is one already, also of a time."""
    if not schema.format.changes_cells:
        return frame
    read, empty = frame.copy(), empty_numbers(schema.format)
    for column in schema.columns:
        cells = frame[column.name]
        if column.kind is Kind.NUMERIC:
            if empty and schema.format.of(column.name).unit_s is None:
                is_empty = [not isinstance(cell, str) and cell in empty for cell in cells]
                read.loc[is_empty, column.name] = None
            cells = cells[[isinstance(cell, str) for cell in cells]]
        if len(cells):
            read.loc[cells.index, column.name] = column_cells(cells, schema).astype(object)
    return read
