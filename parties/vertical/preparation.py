"""A run file and a table in, a job out: every check that needs no peer, before anything is opened or written.

Cells are checked in the whole file: from here on, what a peer sees depends on them through a release or tests alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from opboost.columns import OwnColumn
from opboost.desensitize import ColumnMechanism
from opboost.schema import TableSchema
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Loss
from opboost.vertical import check_own_rows, check_settings
from parties.config.reading import read_schema
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import ConfigError, TableError, naming
from parties.ledger.ledger_lines import digest_of
from parties.ledger.noised_labels import LabelNoise
from parties.ledger.pricing import exact_pieces
from parties.runs.earlier_model import Earlier
from parties.runs.journal import Journal, Records, RowPlaces
from parties.storage.spool import ArraySpool
from parties.tables.blocks import EncodedTable, encode_table, encoded_column, exact_columns
from parties.tables.column_variety import check_varied, other_sentences, read_as_other
from parties.tables.keyed_table import common_again, read_keyed
from parties.tables.listed_ids import rows_of, select
from parties.tables.misfits import showing_misfits
from parties.tables.parquet import check_column
from parties.tables.party_table import LABEL_OF_PASSIVE, PartyTable, own_columns
from parties.tables.record_ids import Ids, each_id
from parties.vertical.alignment import Aligned, Aligner, AlignmentPlace
from parties.vertical.held_out import (
    KeyedChoice,
    RecordsOf,
    answerable,
    choose_active,
    choose_passive,
    n_trained,
    own_records,
)
from parties.vertical.release_job import PassiveJob
from parties.vertical.training_job import ActiveJob, digest_of_own, earlier_of_run
from protocols.transport.channel import Channel


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedActive:
    """An active party's run file and table, checked.

    Attributes
    ----------
    run, schema : ActiveRun, TableSchema
    table : PartyTable
        All records of this party, or those that the run file lists.
    digest : str
        Of ids, labels and own columns of the whole file.
    aligner : Aligner
    others : tuple of str
    loss, parameters, label_noise, earlier : Loss, BoostingParameters, LabelNoise, Earlier
    """

    run: ActiveRun
    schema: TableSchema
    table: PartyTable
    digest: str
    aligner: Aligner
    others: tuple[str, ...]
    loss: Loss
    parameters: BoostingParameters
    label_noise: LabelNoise | None = None
    earlier: Earlier | None = None
    partition_words: ClassVar[None] = None

    def job(self, aligned: Aligned | None = None, journal: Journal | None = None) -> ActiveJob:
        """The training job on the aligned records; without them, a job for greetings alone."""
        is_ready = aligned is not None or not self.aligner.is_needed
        table, run = (aligned := aligned or Aligned(self.table)).table, self.run
        assert table.labels is not None
        seed = run.model.seed if journal is None else journal.seed
        return ActiveJob(
            party=run.party,
            run_id=run.run_id,
            id_digest=table.id_digest if is_ready else None,
            own=own_columns(table, self.schema),
            labels=table.labels,
            weights=np.ones(table.n_rows) if table.weights is None else table.weights,
            margins=tuple(OwnColumn(name, values) for name, values in table.margins.items()),
            earlier=self.earlier,
            loss=self.loss,
            parameters=self.parameters,
            constraints=run.model.constraints,
            validation=run.model.model_copy(update={"seed": seed}).validation(table.n_rows, table.labels),
            metrics=run.held_out_metrics,
            held_out_share=run.held_out,
            most_records=run.most_records,
            held_out=None if aligned.held_out is None else own_records(aligned.held_out, self.schema),
            engine=run.model.engine,
            correct_noise=run.correct_noise,
            left_open=run.model.left_open,
            by_cells=run.answers == "cells",
            seed=seed,
            alignment=self.aligner.words,
            orders=aligned.orders,
            agreed={peer.name: peer.agreed.terms() for peer in run.passive},
            journal=journal,
        )

    @property
    def n_trained(self) -> int:
        """How many records are trained on if all of this party's are common; the run's key must have been drawn."""
        return KeyedChoice.of(self.run, self.table.names).n_trained(self.table.n_rows)

    def begin(self, journal: Journal) -> None:
        """Note this party's inputs in the journal, or refuse to resume a run that began with others."""
        journal.note_inputs(self.digest)
        if not self.aligner.is_needed:
            self._note(journal, Aligned(self.table))

    def take_up(self, journal: Journal) -> PreparedActive:
        """Resume a run after record alignment: note the inputs, and restrict the table to the common records."""
        journal.note_inputs(self.digest)
        prepared = replace(self, table=common_again(self.table, journal))
        prepared._note(journal, Aligned(prepared.table))
        return prepared

    def agree(self, channels: Sequence[Channel], journal: Journal, place: AlignmentPlace) -> ActiveJob:
        """Align records with these peers; returns the training job on the common records."""
        greeting_job = self.job(journal=journal)
        hellos = {channel.peer: greeting_job.hello(channel.peer) for channel in channels}
        aligned = self.aligner.lead(self.table, channels, hellos, place, accept=partial(self._note, journal))
        choice = KeyedChoice.of(self.run, aligned.table.names)
        division = choose_active(self.job(aligned, journal), channels, choice)
        aligned = aligned if division is None else aligned.divided(division.trained, division.held_out)
        job = self.job(aligned, journal)
        journal.note_rows(rows_of(self.table.ids, aligned.table.ids), aligned.orders)
        if self.label_noise is None:
            return job
        noised = self.label_noise.draw(job.labels, aligned.table.ids, run_id=job.run_id, peers=hellos, to=place.folder)
        return replace(job, noised_labels=noised)

    def _note(self, journal: Journal, aligned: Aligned) -> None:
        """Note the run's records in the journal; refuse records that differ from earlier ones or are too few."""
        table = aligned.table
        self.run.model.validation(n_trained(self.run.held_out, table.n_rows, self.run.most_records))
        common: Sequence[str] | RowPlaces | None = list(each_id(table.names)) if table.keys else None
        if self.aligner.is_needed and common is None:
            common = rows_of(self.table.ids, table.ids)
        journal.begin(Records(table.n_rows, table.id_digest), aligned.orders, common)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedPassive:
    """A passive party's run file and table, checked; see `PreparedActive`. The digest is of ids and exact codes."""

    run: PassiveRun
    schema: TableSchema
    table: PartyTable
    digest: str
    aligner: Aligner
    others: tuple[str, ...]
    mechanisms: tuple[ColumnMechanism, ...]
    partition_words: ClassVar[None] = None

    def job(self, aligned: Aligned | None = None) -> PassiveJob:
        """The training job on the aligned records. Its `release` refuses until the caller sets one with an account."""
        is_ready = aligned is not None or not self.aligner.is_needed
        aligned, run = aligned or Aligned(self.table), self.run
        return PassiveJob(
            party=run.party,
            run_id=run.run_id,
            id_digest=aligned.table.id_digest if is_ready else None,
            features=aligned.table.features,
            mechanisms=self.mechanisms,
            rng=run.bits,
            opaque_names=run.opaque_names,
            share_thresholds=run.share_thresholds,
            share_codes=run.share_codes,
            alignment=self.aligner.words,
            order=aligned.orders.get(run.active.name),
            has_label=self.schema.label is not None,
            agreed=run.active.agreed.terms(),
            n_cells=run.n_cells,
            allow_routed=run.allow_routed,
            held_out_share=run.held_out,
            most_records=run.most_records,
            format=self.schema.format,
            redraws=not run.keeps,
        )

    def agree(self, channel: Channel, place: AlignmentPlace) -> tuple[PassiveJob, Ids, RecordsOf | None]:
        """Align records and choose those to hold out; returns the job on the rest, its ids, and the held-out ones."""
        aligned = self.aligner.follow(self.table, channel, self.job().hello(), place)
        job = self.job(aligned)
        choice = KeyedChoice.of(self.run, aligned.table.names)
        if (division := choose_passive(job, channel, choice)) is None:
            return job, aligned.table.ids, None
        divided = aligned.divided(division.trained, division.held_out)
        return self.job(divided), divided.table.ids, partial(answerable, aligned.table.take(division.held_out))

    def named(self) -> EncodedTable:
        """The exact codes and the names of all records."""
        table = encode_table(self.table.features, self.mechanisms, ArraySpool())
        table.named(self.table.ids)
        return table


def prepare_active(run: ActiveRun, path: Path) -> PreparedActive:
    """Check what an active party's run file brings to a training run; nothing is opened or written."""
    schema, ignore = read_schema(run.table_schema)
    if schema.label is None:
        raise ConfigError(f"{run.table_schema} names no `label`, which the active party needs")
    with naming(path):
        loss, parameters = run.model.loss_of(schema), run.model.parameters()
        check_settings(parameters, loss, run.model.engine)
        if schema.more_labels and run.label_epsilon is not None:
            raise ConfigError("label_epsilon noises one label, and the schema names several")
        noise = LabelNoise.of(schema.label, loss, run.label_epsilon, run.label_bounds, ledger=run.label_ledger)
    with showing_misfits(run.data, schema):
        whole = _whole_table(run, schema, ignore)
        for column in schema.columns:
            check_column(whole.features, column, clip=False)
    assert whole.labels is not None
    check_learnable(whole, run, schema)
    own, engine, margins = own_columns(whole, schema), run.model.engine, tuple(whole.margins.values())
    weights = np.ones(whole.n_rows) if whole.weights is None else whole.weights
    noised = () if run.label_bounds is None else (np.resize(run.label_bounds, whole.n_rows),)
    for labels in (whole.labels, *noised):
        check_own_rows(own, labels, weights=weights, loss=loss, parameters=parameters, engine=engine, margins=margins)
    table = whole if run.ids is None else select(whole, run.ids, run.data)
    with naming(path):
        run.model.validation(n_trained(run.held_out, table.n_rows, run.most_records))
    return PreparedActive(
        run=run,
        schema=schema,
        table=table,
        digest=digest_of_own(whole, table, own),
        aligner=Aligner.of(run, schema),
        others=other_sentences(read_as_other(table.features, schema), table.n_rows),
        loss=loss,
        parameters=parameters,
        label_noise=noise,
        earlier=earlier_of_run(run, schema, loss, own),
    )


def prepare_passive(run: PassiveRun, path: Path, *, keeps: bool = False) -> PreparedPassive:
    """Check what a passive party's run file brings; `keeps` stores exact codes beside the ledger for the next run."""
    schema, ignore = read_schema(run.table_schema)
    if schema.label is not None:
        raise ConfigError(f"{run.table_schema}: {LABEL_OF_PASSIVE}")
    with naming(path):
        mechanisms, _ = run.mechanisms(schema), run.ledger.budget.budget(schema)
    with showing_misfits(run.data, schema):
        whole = _whole_table(run, schema, ignore, cache=run.ledger.path.with_suffix(".encoded") if keeps else None)
        cells = check_cells(whole, mechanisms)
    check_learnable(whole, run, schema)
    table = whole if run.ids is None else select(whole, run.ids, run.data)
    return PreparedPassive(
        run=run,
        schema=schema,
        table=table,
        digest=digest_of([whole.id_digest, table.id_digest, cells]),
        aligner=Aligner.of(run, schema, table if keeps else None),
        others=other_sentences(read_as_other(table.features, schema), table.n_rows),
        mechanisms=mechanisms,
    )


def _whole_table(
    run: ActiveRun | PassiveRun, schema: TableSchema, ignore: tuple[str, ...], *, cache: Path | None = None
) -> PartyTable:
    """Read a run's data file."""
    read = partial(read_keyed, run.data, schema, run.align.keys, ignore=ignore, duplicates=run.align.duplicates)
    return read(needs_label=run.role == "active", by_column=True, cache=cache)


def check_learnable(table: PartyTable, run: ActiveRun | PassiveRun, schema: TableSchema) -> None:
    """Refuse a file whose label or a column holds a single value; a part of its records may hold one."""
    if run.role == "active" and (y := table.labels) is not None and (y == y[:1]).all(axis=0).any():
        raise TableError(f"{run.data}: label column {', '.join(schema.labels)!r} holds a single value")
    check_varied(table, schema, run.data)


def check_cells(whole: PartyTable, mechanisms: Sequence[ColumnMechanism]) -> str:
    """Encode every cell of a passive party's file, column by column, or raise DataError; returns the codes' digest."""
    digest = hashlib.sha256(json.dumps([mechanism.schema.name for mechanism in mechanisms]).encode())
    for exact, _ in exact_columns(whole.features, mechanisms):
        for piece in exact_pieces(encoded_column(exact)):
            digest.update(piece)
    return digest.hexdigest()
