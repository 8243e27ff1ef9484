"""Guarantee of a column in one sentence for customers, verdicts in natural frequencies, and warnings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from opboost.desensitize import ColumnMechanism
from opboost.order_metrics import Attack
from opboost.privacy.adj_map import AdjMap
from opboost.privacy.guarantee import rounded_up
from opboost.privacy.local import RandomisedResponse
from opboost.privacy.order_preserving import LocalMap
from opboost.schema import Kind
from opboost.table_format.times import difference_in_words, time_in_words
from parties.config.vertical import PassiveRun

# Odds above this are written as a power of e: nobody is protected by them.
LARGEST_ODDS = 10_000.0

# An everyday difference should cost about so much; it is the largest round one that costs no more.
EVERYDAY_LOSS = 1.0

# Of neighbouring categories, and of people who differ by a small part of a column's range; a warning above them.
MOST_ODDS, PERSON_PART = 10.0, 20

# How much likelier than without the release a guess of the exact value may be; a warning above it.
MOST_GUESS_RATIO = 2.0

# Words of a verdict: how many times as often a guess may be right with the release as without, in what share of all
# cases more, and the odds at which two people a little apart may be told apart: where nearly all have one value, the
# few others add nothing to the cases. Beyond the last but one nothing is protected.
GRADES = (
    ("strong", 1.2, 0.05, MOST_ODDS),
    ("fair", MOST_GUESS_RATIO, 0.25, MOST_ODDS),
    ("weak", 10.0, 0.5, LARGEST_ODDS),
    ("none", math.inf, 1.0, math.inf),
)


# Of a run that was broken off, or is planned again.
HAS_RELEASED = (
    "this run has released already: what left then is in its log and in the ledger, whatever run file and data say now"
)


# Of a run file with a seed of the noise.
SEEDED = (
    "the noise comes from a `seed`, and whoever has that takes the noise off: this is not for release, whatever is "
    "said of columns"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How well a column is protected against one attacker.

    Attributes
    ----------
    success, blind : float
        Probability of the attacker's guessing the exact code with the release, and without it.
    knows_others : bool
        Whether the attacker knows the record's values in all other columns.
    person_loss : float
        Loss between two people a little apart (`person_sized_difference`), or of two unordered categories.
    """

    success: float
    blind: float
    knows_others: bool = False
    person_loss: float = 0.0

    @property
    def grade(self) -> int:
        """Place in `GRADES`; 0 is the best."""
        more = self.success - self.blind
        allowed = (
            self.success <= times * self.blind + 1e-9
            and more <= most + 1e-9
            and self.person_loss <= math.log(most_odds) + 1e-9
            for _, times, most, most_odds in GRADES
        )
        return next(k for k, is_met in enumerate(allowed) if is_met)

    @property
    def order(self) -> tuple[int, float, float]:
        """By what verdicts are ordered: the best first."""
        return self.grade, self.success - self.blind, self.person_loss

    @property
    def word(self) -> str:
        return GRADES[self.grade][0]

    @property
    def cases(self) -> tuple[str, str]:
        """The two probabilities as natural frequencies: "57 of 100", rounded up, and "5" of as many, rounded down."""
        n = next((n for n in (100, 1_000) if self.success * n >= 9.5), 10_000)
        right, blind = math.ceil(self.success * n - 1e-9), math.floor(self.blind * n + 1e-9)
        return f"{right:,} of {n:,}", f"{blind:,}" if blind else "fewer than 1"

    @classmethod
    def worst(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """The worst of several attackers' verdicts."""
        return max(verdicts, key=lambda verdict: verdict.order)


def odds(loss: float) -> str:
    """Odds of a privacy loss, rounded up."""
    if math.isinf(loss):
        return "any odds"
    if loss > math.log(LARGEST_ODDS):
        return f"e^{math.ceil(loss * 10 - 1e-9) / 10:g} to 1, which is no protection"
    ratio = math.exp(loss)
    digits = 0 if ratio >= 100 else 1 if ratio >= 10 else 2
    rounded = math.ceil(ratio * 10**digits - 1e-6) / 10**digits
    return f"{rounded:,.{digits}f} to 1"


def everyday_difference(mechanism: ColumnMechanism) -> tuple[float, int]:
    """A round difference in the column's own unit, and the number of points of the domain that it may span.

    The largest of 1, 2 and 5 times a power of ten that loses at most `EVERYDAY_LOSS`; if none does, the smallest that
    makes sense. Ordered categories differ by whole positions, and numbers by no less than the step that is known.
    """
    assert not isinstance(mechanism.value, RandomisedResponse)
    if mechanism.schema.kind is Kind.ORDERED:
        return 1.0, mechanism.points(1.0)
    lower, upper = mechanism.schema.bounds
    least = mechanism.schema.own_step or 10.0 ** math.floor(math.log10(mechanism.point))
    best = 0.0
    for power in range(math.floor(math.log10(least)), math.floor(math.log10(upper - lower)) + 1):
        for digit in (1, 2, 5):
            difference = digit * 10.0**power
            if not least <= difference <= upper - lower:
                continue
            if best == 0 or mechanism.loss(mechanism.points(difference)) <= EVERYDAY_LOSS:
                best = difference
    best = best or upper - lower
    return best, mechanism.points(best)


def column_sentence(mechanism: ColumnMechanism, unit_s: int | None = None) -> str:
    """The guarantee of a column in words, with odds for an everyday difference.

    Parameters
    ----------
    mechanism : ColumnMechanism
    unit_s : int, optional
        Of a column of times: seconds of a unit.
    """
    schema, value = mechanism.schema, mechanism.value
    parts = []
    if math.isinf(value.epsilon):
        parts.append(f"{schema.name} is released without noise: nothing about it is protected.")
    elif isinstance(value, RandomisedResponse):
        parts.append(
            f"Two records in different categories of {schema.name} are told apart with odds at most "
            f"{odds(value.epsilon)}; the true category is published with probability {mechanism.keep:.2f}."
        )
    else:
        parts.append(_numeric_sentence(mechanism, unit_s))
    if mechanism.missingness is not None:
        # What is published as an empty cell's value is drawn from one code for all, and other values' draws differ.
        promise = mechanism.guarantee()
        both = promise.missing_epsilon + promise.domain_loss
        parts.append(
            f"The published bit that says whether {schema.name} is empty tells it with odds at most "
            f"{odds(promise.missing_epsilon)}; where it says that there is a value, which is then published too, both "
            f"together {'can tell it for certain' if math.isinf(both) else f'tell it with odds at most {odds(both)}'}."
        )
    return " ".join(parts)


def cell_sentence(mechanism: ColumnMechanism, n_cells: int, peer: str, unit_s: int | None = None) -> str:
    """Sentence on what a peer learns of a column when a record is scored and answers are numbers of cells."""
    schema = mechanism.schema
    if schema.kind is Kind.UNORDERED:
        return f"Of a record that is scored, {peer} learns the category of {schema.name} or that it is empty."
    lower, upper = schema.bounds
    if schema.own_step and (n_values := round((upper - lower) / schema.own_step) + 1) <= n_cells:
        return f"Of a record that is scored, {peer} may learn which of {n_values} values {schema.name} has, or none."
    whole = f"the {len(schema.categories)} categories" if schema.kind is Kind.ORDERED else _range(mechanism, unit_s)
    return (
        f"Of a record that is scored, {peer} learns in which of at most {n_cells} ranges of {whole} its {schema.name} "
        "lies or that it is empty, and nothing finer however often it asks in runs with these cells."
    )


def _numeric_sentence(mechanism: ColumnMechanism, unit_s: int | None) -> str:
    schema, value = mechanism.schema, mechanism.value
    assert not isinstance(value, RandomisedResponse)
    difference, points = everyday_difference(mechanism)
    if schema.kind is Kind.ORDERED:
        apart = f"that differ by one category in {schema.name}"
        whole = f"from the first of its {len(schema.categories)} categories to the last"
    else:
        apart = f"that differ by {_difference(difference, unit_s)} in {schema.name}"
        whole = f"over the whole range {_range(mechanism, unit_s)}"
    most = odds(mechanism.loss(points))
    if isinstance(value, LocalMap):
        cells = value.cells
        return (
            f"Which of {cells.n_cells} cells of {schema.name} a record lies in is published exactly: "
            f"{rounded_up(math.log2(cells.n_cells), 3)} bits, and the narrowest cell has {cells.widths.min()} of "
            f"{mechanism.settings.domain_size} points. Two records of one cell {apart} are told apart with odds at "
            f"most {most}."
        )
    note = ""
    if isinstance(value, AdjMap) and value.cells.n_cells > 1:
        note = " Two values on the two sides of a cell's border lose the most for so small a difference."
    return (
        f"Two records {apart} are told apart with odds at most {most}; {whole}, with odds at most "
        f"{odds(value.loss(value.domain.size - 1))}.{note}"
    )


def _difference(difference: float, unit_s: int | None) -> str:
    return f"{difference:,.10g}" if unit_s is None else difference_in_words(difference, unit_s)


def _range(mechanism: ColumnMechanism, unit_s: int | None) -> str:
    bounds = mechanism.schema.bounds
    lower, upper = (f"{bound:,.10g}" if unit_s is None else time_in_words(bound, unit_s) for bound in bounds)
    return f"{lower} to {upper}"


def person_sized_difference(mechanism: ColumnMechanism) -> float:
    """The difference that should be hidden of two people: 1, 2 or 5 times a power of ten, at most a twentieth of the
    column's range and no less than its own step; of ordered categories one.
    """
    lower, upper = mechanism.schema.bounds
    if mechanism.schema.kind is not Kind.NUMERIC:
        return 1.0
    most = (upper - lower) / PERSON_PART
    power = 10.0 ** math.floor(math.log10(most))
    return max(mechanism.schema.own_step or 0.0, power * max(digit for digit in (1, 2, 5) if digit * power <= most))


def column_warnings(mechanism: ColumnMechanism, attack: Attack | None, unit_s: int | None = None) -> Iterator[str]:
    """Sentences on what is weak about a column's protection, against the attack on its own distribution where known."""
    name, value = mechanism.schema.name, mechanism.value
    if isinstance(value, RandomisedResponse):
        loss, who = value.epsilon, f"two categories of {name}"
    else:
        difference = person_sized_difference(mechanism)
        loss = mechanism.loss(mechanism.points(difference))
        who = f"two people {_difference(difference, unit_s)} apart in {name}"
        if mechanism.schema.kind is Kind.ORDERED:
            who = f"neighbouring categories of {name}"
        if isinstance(value, LocalMap) and value.cells.n_cells > 1:
            yield f"in which of {value.cells.n_cells} cells of {name} a record lies is published exactly"
    if loss > math.log(MOST_ODDS):
        yield f"{who} are told apart with odds of up to {odds(loss)}; above {MOST_ODDS:g} to 1 that protects little"
    if mechanism.missingness is not None and mechanism.missingness.epsilon > math.log(MOST_ODDS):
        most = odds(mechanism.missingness.epsilon)
        yield f"the published bit that says whether {name} is empty tells it with odds of up to {most}"
    if attack is not None and attack.success > MOST_GUESS_RATIO * attack.blind_success:
        yield (
            f"an attacker who sees the release names the exact value of {name} in {_in_100(attack.success)} of 100 "
            f"cases; in {_in_100(attack.blind_success)} without it"
        )


def run_warnings(run: PassiveRun) -> Iterator[tuple[str, str]]:
    """Warnings about a passive party's run file beside its columns, each with the key and a sentence."""
    if run.ledger.budget == type(run.ledger.budget)():
        yield "budget", "`ledger.budget` is empty: nothing limits what all runs together release of a person"
    if run.allow_routed and run.n_cells is None and "answers" in run.model_fields_set:
        yield (
            "answers",
            "records that are scored are answered exactly, one bit per split test; with `answers: cells` on all sides "
            "the active party learns one cell per column",
        )
    if run.allow_routed and run.routed.training_records:
        yield (
            "allow_routed",
            "records that were released for training are answered exactly too (`allow_routed: {training_records: "
            "true}`), which takes off the noise that they were released with",
        )


def earlier_warning(names: Sequence[str]) -> str:
    """Sentence on columns that were released under other settings before."""
    return (
        f"{', '.join(names)}: earlier runs released values under other settings. Whoever has both releases learns more "
        "of a record than is said here of one; `opboost ledger` has what they come to together"
    )


def _in_100(share: float) -> str:
    return f"{100 * share:.2g}" if share < 0.1 else f"{100 * share:.0f}"
