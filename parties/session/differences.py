"""Comparison of two greetings: what both sides must agree on before anything is drawn or sent."""

from __future__ import annotations

from parties.errors import Disagreement
from protocols.messages.vertical import Hello, Role, Task
from protocols.transport.sanitize import readable

# Most columns of ranks of a passive party, if no number was agreed on.
MOST_OFFERED = 1000

_TERMS = {
    "objective": "objective",
    "columns": "number of columns",
    "mechanism": "mechanism",
    "law": "law",
    "epsilon": "epsilon",
    "total_epsilon": "epsilon of all columns",
    "share_thresholds": "sharing of thresholds",
    "reveal": "revealing of scores",
}


def check_agreement(mine: Hello, theirs: Hello, peer: str) -> None:
    """Compare two greetings.

    Raises
    ------
    Disagreement
        With every difference, found and expected.
    """
    if sentences := differences(mine, theirs, peer):
        raise Disagreement(f"{peer} and this party do not agree: {'; '.join(sentences)}. Nothing was released")


def differences(mine: Hello, theirs: Hello, peer: str) -> list[str]:
    """Differences between two greetings, as sentences."""
    sentences = []
    if theirs.party != peer:
        sentences.append(f"it calls itself {theirs.party!r}, not {peer!r}")
    if theirs.role is mine.role:
        sentences.append(f"both sides are {mine.role.value}")
    if theirs.task is not mine.task and Task.CHECK not in (theirs.task, mine.task):
        sentences.append(f"it came to {theirs.task.value}, this party to {mine.task.value}")
    sentences += _model_differences(mine, theirs)
    if Task.CHECK in (theirs.task, mine.task) and _purpose(theirs) is not _purpose(mine):
        # A greeting for prediction has no terms of training.
        return sentences
    sentences += _record_differences(mine, theirs)
    if mine.has_label is not None and mine.has_label == theirs.has_label:
        sentences.append(f"{'both sides have' if mine.has_label else 'neither side has'} a label column")
    for name, words in _TERMS.items():
        for agreed, plan, who in (
            (mine.agreed, theirs.plan, "it plans"),
            (theirs.agreed, mine.plan, "this party plans"),
        ):
            wanted, planned = getattr(agreed, name), getattr(plan, name)
            if wanted is not None and not _is_same(wanted, planned):
                sentences.append(f"{words}: {who} {_shown(planned)} where {_shown(wanted)} was agreed on")
    is_training = {_purpose(mine), _purpose(theirs)} == {Task.TRAIN}
    return sentences + (_training_differences(mine, theirs) if is_training else [])


def _model_differences(mine: Hello, theirs: Hello) -> list[str]:
    if theirs.run_id != mine.run_id:
        return [f"its run is {theirs.run_id!r}, this party's is {mine.run_id!r}"]
    if None not in (theirs.training, mine.training) and theirs.training != mine.training:
        return [
            "its share of the model is of another training of this run than this party's; bring the run folders of one "
            "training back, or train again"
        ]
    return []


def _purpose(hello: Hello) -> Task:
    return (hello.looks_for or Task.TRAIN) if hello.task is Task.CHECK else hello.task


def _training_differences(mine: Hello, theirs: Hello) -> list[str]:
    return [*_held_out_differences(mine, theirs), *_test_differences(mine, theirs), *_excess_columns(mine, theirs)]


def _held_out_differences(mine: Hello, theirs: Hello) -> list[str]:
    """Differences in the choice of records; a greeting that states none holds out none and releases all."""
    sentences, (their_share, my_share) = [], (hello.plan.held_out or 0.0 for hello in (theirs, mine))
    if their_share != my_share:
        sentences.append(
            f"records held out of training: it plans a share of {their_share:g}, this party plans {my_share:g}; "
            "`held_out` must be the same in all run files"
        )
    if (their_most := theirs.plan.most_records) != (my_most := mine.plan.most_records):
        sentences.append(
            f"records released at most: it plans {their_most or 'all'}, this party plans {my_most or 'all'}"
        )
    return sentences


def _test_differences(mine: Hello, theirs: Hello) -> list[str]:
    """Differences in how records are answered and in the number of split tests, which an active party must state."""
    sentences = []
    if mine.plan.by_cells is not theirs.plan.by_cells:
        sentences.append(f"answers: it plans {_answers(theirs)}, this party {_answers(mine)}; both must say the same")
    for active, passive, who in ((theirs, mine, "it plans"), (mine, theirs, "this party plans")):
        if active.role is not Role.ACTIVE or passive.role is not Role.PASSIVE:
            continue
        planned, most = active.plan.tests, passive.agreed.tests
        if planned is None or (most is not None and planned > most):
            sentences.append(f"number of split tests: {who} {_shown(planned)} where {_at_most(most)} agreed on")
    return sentences


def _excess_columns(mine: Hello, theirs: Hello) -> list[str]:
    """Refusal of too many columns: trees choose them by labels, so a party that offers more learns more of labels."""
    sentences = []
    for active, passive, who in ((mine, theirs, "it"), (theirs, mine, "this party")):
        if active.role is not Role.ACTIVE or passive.role is not Role.PASSIVE:
            continue
        n_offered, most = len(passive.names), active.agreed.columns or MOST_OFFERED
        if n_offered > most:
            agreed = "were agreed on" if active.agreed.columns else "are taken where no number was agreed on"
            sentences.append(
                f"number of columns: {who} offers {n_offered} columns of ranks where at most {most} {agreed}"
            )
    return sentences


def _answers(hello: Hello) -> str:
    return "cells" if hello.plan.by_cells else "tests"


def _at_most(most: int | None) -> str:
    return "a number must be" if most is None else f"at most {most} was"


def _record_differences(mine: Hello, theirs: Hello) -> list[str]:
    """Differences in alignment and ids; ids are compared only if both sides aligned them by the same method."""
    if theirs.alignment != mine.alignment:
        return [f"its records are aligned so: {readable(theirs.alignment, 200)}; this party's so: {mine.alignment}"]
    if (theirs.id_point is None) is not (mine.id_point is None):
        return ["the records of one side are aligned, those of the other side are not"]
    if mine.id_point is not None and theirs.n_rows != mine.n_rows:
        return [set_difference(mine, theirs)]
    return []


def set_difference(mine: Hello, theirs: Hello) -> str:
    """The sentence about different sets of ids, which reveals only their sizes."""
    return f"the sets of ids differ: it has {theirs.n_rows} records, this party {mine.n_rows}; both need the same ids"


def _is_same(wanted: object, planned: object) -> bool:
    if isinstance(wanted, float) and isinstance(planned, float):
        return wanted == planned or abs(wanted - planned) <= 1e-9 * abs(wanted)
    return wanted == planned


def _shown(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
    return readable(str(value), 80)
