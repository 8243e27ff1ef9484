"""Models to SQL: a query that scores the rows of a table."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from opboost.errors import ParameterError
from opboost.export.link_functions import LinkFunction, exportable, link_function
from opboost.export.xgboost_features import feature_names
from opboost.table_format import OTHER
from opboost.trees.tree import Tree


def to_sql(
    ensemble: object,
    *,
    table: str,
    keep: Sequence[str] = (),
    categories: Mapping[str, Sequence[str]] | None = None,
    with_others: Collection[str] = (),
) -> str:
    """Write a query in standard SQL that predicts for every row of a table.

    Parameters
    ----------
    ensemble : Ensemble, JointModel or fitted estimator
    table : str
        The table. Its columns have the features' names; an owner's test is a column of answers, 0 for left and 1 for
        right, named after its question as in `to_xgboost`. NULL is missing.
    keep : sequence of str
        Columns to copy beside the predictions, such as an id.
    categories : mapping of str to sequence of str, optional
        By feature, the name of each category 0, 1, 2, ..., ordered or not, if the table holds names. A row with any
        other name has no prediction, which is NULL.
    with_others : collection of str
        Of these features, those of which any other name counts as ``other``, one of the categories.

    Returns
    -------
    str
        A ``SELECT`` of the columns to keep and of ``prediction``, or ``prediction_0``, ``prediction_1``, ... of several
        outputs.

    Raises
    ------
    ParameterError
        If the loss has no link function here, a category, the table or a column no name, or a name a backslash or a
        control character, or if a column has the name of an owner's test, or one to keep that of another one in the
        query.

    Notes
    -----
    Privacy: thresholds on A's own columns, leaf values and the ranks of the owners' tests go with the query.
    """
    ensemble = exportable(ensemble)
    link, n_outputs = link_function(ensemble.loss), ensemble.loss.n_outputs
    asked = zip(ensemble.features, feature_names(ensemble.features), strict=True)
    names = [feature.name if feature.owner is None else question for feature, question in asked]
    if len(set(names)) < len(names):
        raise ParameterError("a column has the name of an owner's test. No query was written")
    columns = [_of_record(name) for name in names]
    labels = {}
    for name, texts in (categories or {}).items():
        if name not in names:
            raise ParameterError(f"the model has no feature {name!r} to name categories of. No query was written")
        labels[names.index(name)] = [_text(label) for label in texts]
    # Of features with others, what is not named goes the way of `other`.
    others = {c: _text(OTHER) for c in labels if names[c] in with_others}
    cases = [_case(tree, 0, columns, labels, others) for tree in ensemble.trees]
    sums = [
        _where_named(_sum([repr(float(base)), *cases[output::n_outputs]]), columns, labels, others)
        for output, base in enumerate(ensemble.base_scores)
    ]
    scores = [f"score_{output}" for output in range(n_outputs)]
    outputs = ["prediction"] if n_outputs == 1 else [f"prediction_{output}" for output in range(n_outputs)]
    # Some databases take a name in any case, and the first of two columns of one name.
    named = [name.casefold() for name in (*keep, *scores, *outputs)]
    if len(set(named)) < len(named):
        raise ParameterError(
            f"columns to keep are named once each, and none of them {', '.join((*scores, *outputs))}, which are the "
            "query's own. No query was written"
        )
    kept = [_quoted(name) for name in keep]
    copies = (f"{_of_record(name)} AS {_quoted(name)}" for name in keep)
    inner = ",\n".join([*copies, *(f"{total} AS {score}" for total, score in zip(sums, scores, strict=True))])
    predictions = (f"{_prediction(link, score, scores)} AS {name}" for name, score in zip(outputs, scores, strict=True))
    outer = ", ".join([*kept, *predictions])
    return f"SELECT {outer}\nFROM (\nSELECT {inner}\nFROM {_quoted(table)} t\n) AS scores\n"


def _where_named(
    total: str, columns: Sequence[str], labels: Mapping[int, Sequence[str]], others: Mapping[int, str]
) -> str:
    """A sum where every category is a known one, and NULL elsewhere."""
    closed = (c for c in labels if c not in others)
    tests = [f"({columns[c]} IS NULL OR {columns[c]} IN ({', '.join(labels[c])}))" for c in closed]
    return f"CASE WHEN {' AND '.join(tests)} THEN {total} END" if tests else total


def _case(
    tree: Tree, node: int, columns: Sequence[str], labels: Mapping[int, Sequence[str]], others: Mapping[int, str]
) -> str:
    if tree.is_leaf[node]:
        return repr(float(tree.values[node]))
    c, threshold = int(tree.columns[node]), float(tree.thresholds[node])
    numbers = tree.left_categories.get(node)
    if c in labels:
        if numbers is None:
            numbers = tuple(number for number in range(len(labels[c])) if number <= threshold)
        elif numbers[-1] >= len(labels[c]):
            raise ParameterError(
                f"{columns[c]} has {len(labels[c])} names of categories, and the model asks for number {numbers[-1]}. "
                "No query was written"
            )
    if numbers is None:
        test = f"{columns[c]} <= {threshold!r}"
    else:
        named = [labels[c][n] if c in labels else str(n) for n in numbers]
        is_left = others.get(c) not in named
        listed = named if is_left else [label for label in labels[c] if label not in named]
        if listed:
            test = f"{columns[c]} {'IN' if is_left else 'NOT IN'} ({', '.join(listed)})"
        else:
            # A split may ask for nothing but whether the cell is empty: of the others all go one way.
            test = "1 = 0" if is_left else f"{columns[c]} IS NOT NULL"
    missing = f" OR {columns[c]} IS NULL" if tree.missing_left[node] else ""
    left, right = (_case(tree, int(child), columns, labels, others) for child in (tree.lefts[node], tree.rights[node]))
    return f"CASE WHEN {test}{missing} THEN {left} ELSE {right} END"


def _sum(terms: Sequence[str]) -> str:
    """A sum in halves: databases bound how deep an expression is nested."""
    if len(terms) == 1:
        return terms[0]
    middle = len(terms) // 2
    return f"({_sum(terms[:middle])}\n+ {_sum(terms[middle:])})"


def _prediction(link: LinkFunction, score: str, scores: Sequence[str]) -> str:
    match link:
        case "identity":
            return score
        case "exponential":
            return f"EXP({score})"
        case "sigmoid":
            return f"1.0 / (1.0 + EXP(-{score}))"
        case "softmax":
            return f"1.0 / ({' + '.join(f'EXP({other} - {score})' for other in scores)})"


def _of_record(name: str) -> str:
    """A column of the table; to SQLite, a quoted name alone that the table lacks is a text, and no error."""
    return f"t.{_quoted(name)}"


def _quoted(name: str) -> str:
    if not name:
        raise ParameterError("a table or a column without a name cannot be asked for. No query was written")
    return '"' + _plain(name).replace('"', '""') + '"'


def _text(label: str) -> str:
    return "'" + _plain(label).replace("'", "''") + "'"


def _plain(word: str) -> str:
    """The word, if all databases read it alike: behind a backslash, some take a closing quote for a part of it."""
    # Of an argument whose bytes are no text in the terminal's encoding, Python makes lone surrogates.
    if re.search(r"[\\\x00-\x1f\x7f\ud800-\udfff]", word):
        raise ParameterError(
            f"{word!r} has a backslash or a control character, or bytes that are no text. No query was written"
        )
    return word
