"""Plan of a passive party's release: guarantees and kept order, computed before anything is sent.

Nothing is drawn and nothing is charged: distributions after the noise are expected ones, read off exact tables. The
facts describe the party's data (histograms, counts), so they stay with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from opboost.desensitize import ColumnMechanism
from opboost.map_analysis import least_epsilon
from opboost.privacy.guarantee import ColumnGuarantee, Guarantee
from opboost.privacy.local import RandomisedResponse
from opboost.table_format import TableFormat
from parties.config.reading import read_run
from parties.config.vertical import PassiveRun
from parties.ledger.chain_head import is_chain_begun
from parties.ledger.release_ledger import Ledger
from parties.progress import Progress, no_progress
from parties.reports.ledger_statement import Statement, known_statement
from parties.reports.plan.candidates import Candidate, PlannedColumn, analyse_all
from parties.reports.plan.choices import MechanismGrid
from parties.reports.plan.distributions import Example, Histogram, examples_of, histogram_of
from parties.reports.sentences import (
    HAS_RELEASED,
    SEEDED,
    cell_sentence,
    column_sentence,
    column_warnings,
    earlier_warning,
    everyday_difference,
    run_warnings,
)
from parties.runs.run_folder import RunFolder
from parties.vertical.held_out import n_held_out
from parties.vertical.preparation import prepare_passive
from parties.vertical.release_accounts import released_otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Cost of an everyday difference, in the column's own unit."""

    size: float
    points: int
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan:
    """Plan of one column.

    Attributes
    ----------
    promise : ColumnGuarantee
    sentence : str
        The promise in plain words.
    kind : str
    categories : tuple of str
    bounds : tuple of (float, float)
        Public ones; of ordered categories, their positions.
    step : float or None
        Smallest difference of two values that the schema knows.
    unit_s : int or None
        Seconds of a unit of a column of times, which are whole units since 1970.
    n_values, n_missing, n_clipped : int
    unit : float or None
        One point of the domain in the column's own unit; None for unordered categories.
    exact_to : float or None
        The same of the domain that verdicts are on, which has fewer points where tables would be too large.
    difference : Difference or None
    candidates : tuple of Candidate
    least : tuple of (float, float or None)
        Wanted coefficient, and the smallest budget of the chosen mechanism that keeps it; None if there is none.
    examples : tuple of Example
    histogram : Histogram
    keep : float or None
        With which probability an unordered category is published as it is; None for other columns.
    warnings : tuple of str
        What is weak about its protection.
    """

    promise: ColumnGuarantee
    sentence: str
    kind: str
    categories: tuple[str, ...]
    bounds: tuple[float, float]
    step: float | None
    unit_s: int | None
    n_values: int
    n_missing: int
    n_clipped: int
    unit: float | None
    exact_to: float | None
    difference: Difference | None
    candidates: tuple[Candidate, ...]
    least: tuple[tuple[float, float | None], ...]
    examples: tuple[Example, ...]
    histogram: Histogram
    keep: float | None
    warnings: tuple[str, ...]

    @property
    def chosen(self) -> Candidate:
        return self.candidates[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Plan of a passive party's release.

    Attributes
    ----------
    party, peer, run_id : str
    n_records : int
        In the file, or in the run's list of ids; fewer are released where fewer are common.
    n_held_out : int
        About how many of these are held out: not released in the run, but answered exactly.
    alignment : str
        Method by which the common records are found.
    keys : tuple of str
        Columns of each of the keys that records are compared by; empty where they are by their ids.
    guarantee : Guarantee
        Of all columns together.
    columns : tuple of ColumnPlan
    ledger : Statement or None
        What was spent before; None if there is no ledger yet.
    opaque_names, share_thresholds, share_codes, allow_routed : bool
        What else the run file lets out.
    answered_records : str
        Which records are answered for from exact values, where `allow_routed`.
    most_tests : int or None
        Split tests that were agreed on as the most; None leaves the number to the active party.
    n_cells : int or None
        Cells of a column that records are answered with; None where split tests are answered.
    redraws : bool
        Whether a value that was changed since it was released is drawn anew.
    warnings : tuple of str
        What is weak about the run file, beside its columns, and what was released before.
    """

    party: str
    peer: str
    run_id: str
    n_records: int
    n_held_out: int
    alignment: str
    keys: tuple[str, ...]
    guarantee: Guarantee
    columns: tuple[ColumnPlan, ...]
    ledger: Statement | None
    opaque_names: bool
    share_thresholds: bool
    share_codes: bool
    allow_routed: bool
    answered_records: str
    most_tests: int | None
    n_cells: int | None
    redraws: bool
    warnings: tuple[str, ...]


def plan_of(
    path: Path, grid: MechanismGrid, *, wanted_order: Sequence[float], progress: Progress = no_progress
) -> Plan:
    """Compute the plan of a passive party's run file.

    Raises
    ------
    ConfigError, TableError
        If the run file or the data could not be used for the run either.
    ParameterError
        If the grid holds an impossible combination.
    """
    run = read_run(path, PassiveRun)
    prepared = prepare_passive(run, path)
    columns = [PlannedColumn.read(mechanism, prepared.table.features, grid) for mechanism in prepared.mechanisms]
    found = analyse_all(columns, progress)
    return Plan(
        party=run.party,
        peer=run.active.name,
        run_id=run.run_id,
        n_records=prepared.table.n_rows,
        n_held_out=n_held_out(run.held_out, prepared.table.n_rows),
        alignment=prepared.aligner.method,
        keys=tuple(" with ".join(key) for key in run.align.keys),
        guarantee=prepared.job().guarantee(),
        columns=tuple(
            _column_plan(run, column, candidates, wanted_order, prepared.schema.format)
            for column, candidates in zip(columns, found, strict=True)
        ),
        ledger=known_statement(path, run),
        opaque_names=run.opaque_names,
        share_thresholds=run.share_thresholds,
        share_codes=run.share_codes,
        allow_routed=run.allow_routed,
        answered_records=run.routed.words,
        most_tests=run.active.agreed.tests,
        n_cells=run.n_cells,
        redraws=run.changed_values == "redraw",
        warnings=(*_warnings_of_release(run, prepared.mechanisms), *(sentence for _, sentence in run_warnings(run))),
    )


def _warnings_of_release(run: PassiveRun, mechanisms: Sequence[ColumnMechanism]) -> Iterator[str]:
    """What a plan leaves out: a seed, this run's own release, and those of other runs under other settings."""
    if run.seed is not None:
        yield SEEDED
    if RunFolder(run.run_folder).has_released:
        yield HAS_RELEASED
    if not is_chain_begun(run.ledger.path):
        return
    with Ledger(run.ledger.path, create=False) as ledger:
        if names := released_otherwise(ledger, mechanisms, is_secure=run.bits.is_secure):
            yield earlier_warning(names)


def _column_plan(
    run: PassiveRun,
    column: PlannedColumn,
    candidates: tuple[Candidate, ...],
    wanted_order: Sequence[float],
    form: TableFormat,
) -> ColumnPlan:
    mechanism, tabulated, asked, outlook = column.mechanism, column.tabulated, "", candidates[0].outlook
    unit_s = form.of(mechanism.schema.name).unit_s
    if run.n_cells is not None and run.allow_routed:
        asked = " " + cell_sentence(mechanism, run.n_cells, run.active.name, unit_s)
    is_numeric = not isinstance(mechanism.value, RandomisedResponse)
    table = tabulated.value.log_probabilities()
    counts = column.counts[len(table)]
    if not (is_numeric and tabulated is mechanism and int((counts > 0).sum()) > 1):
        wanted_order = ()
    difference = None
    if is_numeric:
        size, points = everyday_difference(mechanism)
        difference = Difference(size=size, points=points, loss=mechanism.loss(points))
    return ColumnPlan(
        promise=mechanism.guarantee(),
        sentence=column_sentence(mechanism, unit_s) + asked,
        kind=mechanism.schema.kind.value,
        categories=mechanism.schema.categories,
        bounds=mechanism.schema.bounds if is_numeric else (0.0, 1.0),
        step=mechanism.schema.own_step,
        unit_s=unit_s,
        n_values=int(counts.sum()),
        n_missing=column.n_missing,
        n_clipped=column.n_clipped,
        unit=mechanism.point if is_numeric else None,
        exact_to=tabulated.point if is_numeric else None,
        difference=difference,
        candidates=candidates,
        least=tuple((wanted, least_epsilon(mechanism.settings, counts, wanted)) for wanted in wanted_order),
        examples=examples_of(mechanism, table, counts) if is_numeric else (),
        histogram=histogram_of(mechanism, counts, table, unit_s),
        keep=mechanism.keep,
        warnings=tuple(column_warnings(mechanism, None if outlook is None else outlook.attack, unit_s)),
    )
