"""Analysis of the mechanisms that a plan compares, on a column's own distribution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from opboost.arrays import Codes
from opboost.denoise.informed_attack import LEARNED_ROWS, LEAST_ATTACKED, Beliefs, JointLaw
from opboost.desensitize import ColumnMechanism
from opboost.map_analysis import MAX_TABLE_DOMAIN, Choice, ColumnAnalysis, Counts, MapAnalysis, analyse, analyse_column
from opboost.order_metrics import Attack, Table, bayes_attack, expected_weighted_kendall
from opboost.preprocess import encode, points_within
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.local import RandomisedResponse
from opboost.privacy.order_preserving import LocalMap
from parties.progress import Progress
from parties.reports.plan.choices import Alternative, MechanismGrid, alternatives_for, settings_of
from parties.reports.sentences import Verdict, person_sized_difference

# Shares of the range at which loss curves are drawn.
CURVE_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)

# Points of the domain that stands for one that is too large to tabulate, with the same loss over the whole range.
_STAND_IN_POINTS = 1000

# Points of the joint law of all columns, whatever was chosen.
_LAW_POINTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A candidate mechanism of a column; the first candidate is the chosen one.

    Attributes
    ----------
    settings : dict
    budget : int or None
        Loss over the whole range that it stands for among the plan's what-ifs.
    promise : MapAnalysis
    curve : tuple of float
        Exact losses at `CURVE_SHARES` of the range; of a Local-Map, of one cell.
    outlook : ColumnAnalysis or None
        On this column's own distribution; None for a domain that is too large to tabulate.
    verdict : Verdict or None
        Of the worst attacker.
    """

    settings: dict[str, Any]
    budget: int | None
    promise: MapAnalysis
    curve: tuple[float, ...]
    outlook: ColumnAnalysis | None
    verdict: Verdict | None


@dataclass(frozen=True, slots=True)
class PlannedColumn:
    """A column's mechanism and its alternatives, and its codes by how many points they are mapped to.

    Of these there are the counts of all records, and the codes of some, where -1 is a missing cell.
    `tabulated` is the mechanism itself, or one on fewer points that stands for it where its table would be too large.
    """

    mechanism: ColumnMechanism
    tabulated: ColumnMechanism
    alternatives: tuple[Alternative, ...]
    codes: dict[int, Codes]
    counts: dict[int, Counts]
    n_missing: int
    n_clipped: int

    @classmethod
    def read(cls, mechanism: ColumnMechanism, features: Any, grid: MechanismGrid) -> PlannedColumn:
        """Encode a column for all of its alternatives."""
        schema, alternatives, tabulated = mechanism.schema, alternatives_for(mechanism, grid), mechanism
        if (n := alternatives[0].n_points) > MAX_TABLE_DOMAIN:
            share = (_STAND_IN_POINTS - 1) / (n - 1)
            theta = mechanism.settings.theta and max(2, round(mechanism.settings.theta * share))
            epsilon = mechanism.settings.epsilon / share
            settings = replace(mechanism.settings, domain_size=_STAND_IN_POINTS, epsilon=epsilon, theta=theta)
            tabulated = ColumnMechanism(schema, settings)
        rows = np.linspace(0, len(features) - 1, min(len(features), 2 * LEARNED_ROWS)).astype(np.int64)
        some, counts = {}, {}
        first = 0 if isinstance(mechanism.value, RandomisedResponse) else 1
        tabulated_points = min(n, MAX_TABLE_DOMAIN, tabulated.settings.domain_size)
        for n_points in {_LAW_POINTS, tabulated_points, *(alternative.n_points for alternative in alternatives)}:
            encoded = encode(features[schema.name], schema, domain=IntegerDomain(1, n_points))
            codes = np.where(encoded.is_missing, -1, encoded.codes.astype(np.int64) - first)
            some[n_points], counts[n_points] = codes[rows], np.bincount(codes[codes >= 0], minlength=n_points)
        return cls(mechanism, tabulated, alternatives, some, counts, int(encoded.is_missing.sum()), encoded.n_clipped)

    def outlook(self, table: Table, alternative: Alternative) -> ColumnAnalysis | None:
        """Effect of a mechanism with this table, of a what-if without splits; None where no cell has a value."""
        counts = self.counts[alternative.n_points]
        if not counts.any():
            return None
        if alternative.budget is None:
            return analyse_column(table, counts)
        has_order = int((counts > 0).sum()) > 1 and not isinstance(self.mechanism.value, RandomisedResponse)
        kendall = expected_weighted_kendall(table, counts) if has_order else None
        return ColumnAnalysis(kendall=kendall, attack=bayes_attack(table, counts), splits=())


def analyse_all(columns: Sequence[PlannedColumn], progress: Progress) -> list[tuple[Candidate, ...]]:
    """Analyse every column's candidates. A mechanism's table is made once for all columns, and then dropped."""
    outcomes: list[dict[Alternative, Candidate]] = [{} for _ in columns]
    distinct = tuple(dict.fromkeys(alternative for column in columns for alternative in column.alternatives))
    attackers = _Attackers(columns)
    for done, alternative in enumerate(distinct, start=1):
        choice, n = alternative.choice, alternative.n_points
        table = choice.log_probabilities() if n <= MAX_TABLE_DOMAIN else None
        promise = analyse(choice, table if alternative.budget is None else None, n)
        apart = [max(1, round(share * (n - 1))) for share in CURVE_SHARES]
        curve = tuple(_loss(choice, t) for t in apart)
        for c, column in enumerate(columns):
            if alternative not in column.alternatives:
                continue
            outlook = column.outlook(table, alternative) if table is not None else None
            outcomes[c][alternative] = Candidate(
                settings=settings_of(choice),
                budget=alternative.budget,
                promise=promise,
                curve=curve,
                outlook=outlook,
                verdict=attackers.verdict(c, alternative, table, outlook),
            )
        progress("comparing mechanisms", done, len(distinct))
    return [
        tuple(by_choice[choice] for choice in column.alternatives)
        for by_choice, column in zip(outcomes, columns, strict=True)
    ]


class _Attackers:
    """Attackers on columns; those who know the others too where there are several columns, and enough records."""

    def __init__(self, columns: Sequence[PlannedColumn]) -> None:
        codes = [column.codes[_LAW_POINTS] for column in columns]
        self._law = JointLaw.fit(codes) if len(codes) > 1 and len(codes[0]) >= LEAST_ATTACKED else None
        self._columns = columns
        self._beliefs: dict[tuple[int, int], Beliefs] = {}

    def verdict(
        self, c: int, alternative: Alternative, table: Table | None, outlook: ColumnAnalysis | None
    ) -> Verdict | None:
        """The verdict on a column under a mechanism; where its table is too large, on what stands for the chosen one.

        None for another mechanism then, and for a column without values.
        """
        column, attack = self._columns[c], outlook.attack if outlook else None
        if table is None and alternative == column.alternatives[0]:
            table = column.tabulated.value.log_probabilities()
            attack = bayes_attack(table, column.counts[_STAND_IN_POINTS])
        if table is None or attack is None:
            return None
        n = len(table)
        if self._law is not None and (c, n) not in self._beliefs:
            self._beliefs[c, n] = self._law.beliefs(c, column.codes[n], n)
        person_loss = _person_loss(column.mechanism, alternative)
        return _verdict(attack, table, self._beliefs.get((c, n)), person_loss)


def _verdict(attack: Attack, table: Table, beliefs: Beliefs | None, person_loss: float) -> Verdict:
    """The verdict on the worse of two attackers: who knows the column's distribution, and who knows the others too.

    The second guesses like the first where that serves better.
    """
    plain = Verdict(success=attack.success, blind=attack.blind_success, person_loss=person_loss)
    if beliefs is None or (success := beliefs.success(np.exp(table))) <= plain.success:
        return plain
    blind = min(success, max(plain.blind, beliefs.blind_success))
    return Verdict.worst([plain, replace(plain, success=success, blind=blind, knows_others=True)])


def _person_loss(mechanism: ColumnMechanism, alternative: Alternative) -> float:
    """Loss between two people a little apart in a column, or of two unordered categories, under an alternative."""
    choice = alternative.choice
    if isinstance(choice, RandomisedResponse):
        return choice.epsilon
    lower, upper = mechanism.schema.bounds
    width = (upper - lower) / (alternative.n_points - 1)
    return _loss(choice, points_within(person_sized_difference(mechanism), width))


def _loss(choice: Choice, points: int) -> float:
    """Loss of values so many points apart; of a Local-Map, of one cell."""
    return choice.loss_within(points) if isinstance(choice, LocalMap) else choice.loss(points)
