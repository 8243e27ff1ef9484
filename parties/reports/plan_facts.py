"""Plan of a passive party's release: guarantees and kept order, computed before anything is sent.

Nothing is drawn and nothing is charged: distributions after the noise are expected ones, read off exact tables. The
facts describe the party's data (histograms, counts), so they stay with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from opboost.desensitize import ColumnMechanism
from opboost.map_analysis import (
    EPSILON_RANGE,
    MAX_TABLE_DOMAIN,
    Choice,
    ColumnAnalysis,
    Counts,
    MapAnalysis,
    analyse,
    analyse_column,
    least_epsilon,
)
from opboost.order_metrics import expected_weighted_kendall
from opboost.preprocess import encode
from opboost.privacy.guarantee import ColumnGuarantee, Guarantee
from opboost.privacy.local import RandomisedResponse
from parties.config.reading import read_run
from parties.config.vertical import PassiveRun
from parties.progress import Progress, no_progress
from parties.reports.choices import MechanismGrid, choices_for, settings_of
from parties.reports.distributions import Example, Histogram, examples_of, histogram_of
from parties.reports.ledger_statement import Statement, read_statement
from parties.reports.sentences import cell_sentence, column_sentence, column_warnings, everyday_difference, run_warnings
from parties.vertical.preparation import prepare_passive

# Multiples of the chosen budget at which a column's order is shown.
ORDER_MULTIPLES = tuple(2.0**k for k in range(-6, 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A candidate mechanism of a column; the first candidate is the chosen one.

    Attributes
    ----------
    settings : dict
    promise : MapAnalysis
    outlook : ColumnAnalysis or None
        On this column's own distribution; None for a domain that is too large to tabulate.
    """

    settings: dict[str, Any]
    promise: MapAnalysis
    outlook: ColumnAnalysis | None


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
    n_values, n_missing, n_clipped : int
    unit : float or None
        One point of the domain in the column's own unit; None for unordered categories.
    difference : Difference or None
    candidates : tuple of Candidate
    orders : tuple of (float, float)
        Budget, and the expected weighted Kendall coefficient that the chosen mechanism then keeps of this column.
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
    n_values: int
    n_missing: int
    n_clipped: int
    unit: float | None
    difference: Difference | None
    candidates: tuple[Candidate, ...]
    orders: tuple[tuple[float, float], ...]
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
    guarantee : Guarantee
        Of all columns together.
    columns : tuple of ColumnPlan
    ledger : Statement or None
        What was spent before; None if there is no ledger yet.
    opaque_names, share_thresholds, share_codes, allow_routed : bool
        What else the run file lets out.
    most_tests : int or None
        Split tests that were agreed on as the most; None leaves the number to the active party.
    n_cells : int or None
        Cells of a column that new records are answered with; None where split tests are answered.
    redraws : bool
        Whether a value that was changed since it was released is drawn anew.
    warnings : tuple of str
        What is weak about the run file, beside its columns.
    """

    party: str
    peer: str
    run_id: str
    n_records: int
    guarantee: Guarantee
    columns: tuple[ColumnPlan, ...]
    ledger: Statement | None
    opaque_names: bool
    share_thresholds: bool
    share_codes: bool
    allow_routed: bool
    most_tests: int | None
    n_cells: int | None
    redraws: bool
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Column:
    """A column's mechanism, and counts of its codes."""

    mechanism: ColumnMechanism
    counts: Counts
    n_missing: int
    n_clipped: int


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
    columns = [_read(mechanism, prepared.table.features) for mechanism in prepared.mechanisms]
    choices = [choices_for(column.mechanism, grid) for column in columns]
    found = _analyse_all(columns, choices, progress)
    return Plan(
        party=run.party,
        peer=run.active.name,
        run_id=run.run_id,
        n_records=prepared.table.n_rows,
        guarantee=prepared.job().guarantee(),
        columns=tuple(
            _column_plan(run, column, candidates, wanted_order)
            for column, candidates in zip(columns, found, strict=True)
        ),
        ledger=read_statement(path, None) if run.ledger.path.exists() else None,
        opaque_names=run.opaque_names,
        share_thresholds=run.share_thresholds,
        share_codes=run.share_codes,
        allow_routed=run.allow_routed,
        most_tests=run.active.agreed.tests,
        n_cells=run.n_cells,
        redraws=run.changed_values == "redraw",
        warnings=tuple(sentence for _, sentence in run_warnings(run)),
    )


def _read(mechanism: ColumnMechanism, features: Any) -> _Column:
    encoded = encode(features[mechanism.schema.name], mechanism.schema, domain=mechanism.settings.domain)
    n, first = _domain(mechanism)
    counts = np.bincount(encoded.codes[~encoded.is_missing] - first, minlength=n)
    return _Column(mechanism, counts, int(encoded.is_missing.sum()), encoded.n_clipped)


def _domain(mechanism: ColumnMechanism) -> tuple[int, int]:
    """Number of codes, and the first one."""
    if isinstance(mechanism.value, RandomisedResponse):
        return mechanism.value.n_categories, 0
    return mechanism.value.domain.size, mechanism.value.domain.lo


def _analyse_all(
    columns: Sequence[_Column], choices: Sequence[Sequence[Choice]], progress: Progress
) -> list[tuple[Candidate, ...]]:
    """Analyse every column's candidates. A mechanism's table is made once for all columns, and then dropped."""
    found: list[dict[Choice, Candidate]] = [{} for _ in columns]
    distinct = tuple(dict.fromkeys(choice for one in choices for choice in one))
    for done, choice in enumerate(distinct, start=1):
        users = [c for c, one in enumerate(choices) if choice in one]
        n = len(columns[users[0]].counts)
        table = choice.log_probabilities() if n <= MAX_TABLE_DOMAIN else None
        promise = analyse(choice, table, n)
        for c in users:
            counts = columns[c].counts
            outlook = analyse_column(table, counts) if table is not None and counts.any() else None
            found[c][choice] = Candidate(settings=settings_of(choice), promise=promise, outlook=outlook)
        progress("comparing mechanisms", done, len(distinct))
    return [tuple(one[choice] for choice in order) for one, order in zip(found, choices, strict=True)]


def _column_plan(
    run: PassiveRun, column: _Column, candidates: tuple[Candidate, ...], wanted_order: Sequence[float]
) -> ColumnPlan:
    mechanism, asked, outlook = column.mechanism, "", candidates[0].outlook
    if run.n_cells is not None and run.allow_routed:
        asked = " " + cell_sentence(mechanism, run.n_cells, run.active.name)
    is_numeric = not isinstance(mechanism.value, RandomisedResponse)
    has_order = is_numeric and int((column.counts > 0).sum()) > 1 and len(column.counts) <= MAX_TABLE_DOMAIN
    table = mechanism.value.log_probabilities() if len(column.counts) <= MAX_TABLE_DOMAIN else None
    difference = None
    if is_numeric:
        size, points = everyday_difference(mechanism)
        difference = Difference(size=size, points=points, loss=mechanism.loss(points))
    return ColumnPlan(
        promise=mechanism.guarantee(),
        sentence=column_sentence(mechanism) + asked,
        kind=mechanism.schema.kind.value,
        n_values=int(column.counts.sum()),
        n_missing=column.n_missing,
        n_clipped=column.n_clipped,
        unit=mechanism.point if is_numeric else None,
        difference=difference,
        candidates=candidates,
        orders=_orders(mechanism, column.counts) if has_order else (),
        least=tuple((wanted, least_epsilon(mechanism.settings, column.counts, wanted)) for wanted in wanted_order)
        if has_order
        else (),
        examples=examples_of(mechanism, table, column.counts) if is_numeric and table is not None else (),
        histogram=histogram_of(mechanism, column.counts, table),
        keep=mechanism.value.keep if isinstance(mechanism.value, RandomisedResponse) else None,
        warnings=tuple(column_warnings(mechanism, None if outlook is None else outlook.attack)),
    )


def _orders(mechanism: ColumnMechanism, counts: Counts) -> tuple[tuple[float, float], ...]:
    found = []
    for multiple in ORDER_MULTIPLES:
        epsilon = mechanism.settings.epsilon * multiple
        if EPSILON_RANGE[0] <= epsilon <= EPSILON_RANGE[1]:
            table = replace(mechanism.settings, epsilon=epsilon).build().log_probabilities()
            found.append((epsilon, expected_weighted_kendall(table, counts)))
    return tuple(found)
