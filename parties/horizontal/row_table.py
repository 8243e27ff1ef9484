"""Row table: the rows and labels of an owner in horizontal training, read from its file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.fit_quality import FitQuality, model_quality
from opboost.preprocess import own_features
from opboost.schema import TableSchema
from opboost.table_format import TableFormat
from opboost.trees.losses.loss import MAX_LABEL
from opboost.trees.tree import Ensemble
from parties.config.chain import OwnerRun
from parties.config.horizontal import WorkerRun
from parties.errors import ConfigError, TableError
from parties.runs.row_stream import RowStream
from parties.runs.run_folder import RunFolder
from parties.storage.paths import is_folder
from parties.tables.column_variety import other_sentences, read_as_other
from parties.tables.misfits import showing_misfits
from parties.tables.party_table import read_frame, read_table
from parties.tables.record_ids import read_ids

# Name of the basis on which a model's fit to them is reported.
OWN_ROWS = "own training rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRows:
    """Rows and labels in the form that recipes take.

    Attributes
    ----------
    schema : TableSchema
    values : ndarray of float64, shape (n_rows, n_columns)
        NaN for missing.
    labels : ndarray of float64, shape (n_rows,)
    n_other : dict of str to int
        Per column of which there are any, cells of the file that are read as `other`.
    """

    schema: TableSchema
    values: Values
    labels: Values
    n_other: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, run: WorkerRun | OwnerRun, schema: TableSchema, ignore: Sequence[str]) -> OwnerRows:
        """Read the data file that a run file names, by its schema as the run read it, whatever has become of the file.

        Raises
        ------
        ConfigError, TableError
        """
        if not isinstance(run.data, Path) or is_folder(run.data):
            raise ConfigError(f"rows in one table come from one file; {run.data} is none. Nothing was sent")
        rows = cls.of(run.data, schema, ignore)
        rows.check_labels(run.training.n_classes, run.data)
        if isinstance(run, WorkerRun) and run.continue_from is not None:
            return rows.behind(RowStream.of(RunFolder(run.continue_from), run.role), run.data, ignore)
        return rows

    @classmethod
    def of(cls, data: Path, schema: TableSchema, ignore: Sequence[str]) -> OwnerRows:
        """Read a data file by a schema, without the columns to ignore; with the same errors."""
        check_row_schema(schema)
        with showing_misfits(data, schema):
            table = read_table(data, schema, ignore=ignore, needs_label=True)
            columns = own_features(table.features, schema.columns)
        assert table.labels is not None
        return cls(
            schema=schema,
            values=np.column_stack([columns[name] for name in schema.names]),
            labels=table.labels,
            n_other=read_as_other(table.features, schema),
        )

    def check_labels(self, n_classes: int, data: Path) -> None:
        """Refuse labels of classes that are not 0, 1, 2, ..., and numbers, of 0 classes, whose squares overflow.

        Raises
        ------
        ConfigError
        """
        if n_classes and not np.isin(self.labels, np.arange(n_classes)).all():
            rule = (
                "two classes must be 0 and 1" if n_classes == 2 else f"{n_classes} classes must be 0 to {n_classes - 1}"
            )
            raise ConfigError(f"{data}: the labels of {rule}. Nothing was sent")
        if np.abs(self.labels).max(initial=0) > MAX_LABEL:
            raise ConfigError(f"{data}: labels must be of magnitude {MAX_LABEL:g} at most. Nothing was sent")

    def behind(self, stream: RowStream, data: Path, ignore: Sequence[str]) -> OwnerRows:
        """The rows with those of the run that is continued first, as they come by their ids or in the file.

        Raises
        ------
        TableError
            If neither has all of those first, and unchanged.
        """
        if self._begins_with(stream):
            return self
        order = _order_of_arrival(data, self.schema, ignore, [arrival.n_rows for arrival in stream.arrivals])
        if len(order) != len(self.labels):
            raise TableError(f"{data} was changed while it was in use. Nothing was sent")
        came = replace(self, values=self.values[order], labels=self.labels[order])
        if not came._begins_with(stream):
            raise TableError(
                f"{data}: its first {stream.n_rows} rows are not those that run {stream.run!r} ended "
                "with: put records that have arrived behind them, and change none. Nothing was sent"
            )
        return came

    def _begins_with(self, stream: RowStream) -> bool:
        return self.first(stream.n_rows).digest == stream.rows

    def first(self, n_rows: int) -> OwnerRows:
        """The first rows, so many."""
        return replace(self, values=self.values[:n_rows], labels=self.labels[:n_rows])

    @property
    def others(self) -> tuple[str, ...]:
        """Sentences for the owner's log on cells that are read as `other`."""
        return other_sentences(self.n_other, len(self.labels))

    @property
    def digest(self) -> str:
        """Digest of everything that the answers depend on; it stays in the worker's own folder."""
        digest = hashlib.sha256(repr(self.values.shape).encode())
        for part in (self.values, self.labels):
            digest.update(np.ascontiguousarray(part))
        return digest.hexdigest()

    def own_fit(self, model: Ensemble) -> FitQuality | None:
        """How a model fits the rows, with the curve over its rounds; None where labels cannot tell anything."""
        return model_quality(model, lambda rows: self.values[rows], self.labels, basis=OWN_ROWS)

    def predictions(self, model: Ensemble) -> tuple[Values, Values]:
        """Labels and predictions of the rows."""
        return self.labels, model.predict(self.values)


def _order_of_arrival(
    data: Path, schema: TableSchema, ignore: Sequence[str], n_rows: Sequence[int]
) -> NDArray[np.intp]:
    """The order of a file's parts, which ended after so many rows each; in each part rows follow their ids."""
    table = read_table(data, schema, ignore=ignore, needs_label=True)
    bare = TableSchema(
        columns=(), id=schema.id, format=TableFormat(sep=schema.format.sep, encoding=schema.format.encoding)
    )
    places = read_ids(read_frame(data, bare)[1], schema.id_columns, data).get_indexer(table.index)
    if (places < 0).any():
        raise TableError(f"{data} was changed while it was in use. Nothing was sent")
    # Rows without a label, which are left out, count in no part.
    number = np.argsort(np.argsort(places))
    return np.argsort(np.searchsorted(n_rows, number, side="right"), kind="stable")


def check_row_schema(schema: TableSchema) -> None:
    """Refuse a schema without a label, or with anything else of training: rows of several owners have a label alone.

    Raises
    ------
    ConfigError
    """
    if schema.label is None:
        raise ConfigError("the schema names no `label`, which every owner needs. Nothing was sent")
    if len(schema.of_training) > 1:
        raise ConfigError(
            "the schema names more than a label: rows of several owners have one `label`, and no `weight`, `group` "
            "and `base_margin`. Nothing was sent"
        )
