"""What others read of an owner of rows depends on its records by sums and trees alone, which carry the noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost.rng import seeded
from parties.config.reading import read_schema
from parties.errors import ConfigError
from parties.horizontal.answered_questions import Answered
from parties.horizontal.coordinator import SharedModel
from parties.horizontal.row_table import OwnerRows
from protocols.messages.message import Message
from protocols.transport.channel import Channel
from tests.support import chains, workers

SCHEMA = "id: id\nlabel: ill\ncolumns:\n  dose: {kind: numeric, lower: 0, upper: 1, missing: category}\n"

Rows = tuple[np.ndarray, np.ndarray]
View = list[tuple[str, dict[str, object]]]


def tables() -> Iterator[Rows]:
    """All tables of up to two records: cells within the bounds, beyond them and empty, of either class."""
    records = [(cell, label) for cell in (0.2, 7.0, np.nan) for label in (0.0, 1.0)]
    for size in (0, 1, 2):
        for table in combinations_with_replacement(records, size):
            yield np.array([[cell] * 3 for cell, _ in table]).reshape(-1, 3), np.array([label for _, label in table])


def public_part(value: object) -> object:
    """Of an array or bytes, which are noised, masked or random, the form."""
    match value:
        case np.ndarray():
            return value.dtype.str, value.shape
        case bytes():
            return len(value)
        case _:
            return value


class Overheard:
    """A channel whose outgoing messages are noted."""

    def __init__(self, channel: Channel, heard: View) -> None:
        self._channel = channel
        self._heard = heard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def send(self, message: Message) -> None:
        fields = {name: public_part(getattr(message, name)) for name in type(message).model_fields}
        self._heard.append((message.kind, fields))
        self._channel.send(message)


def heard_of_worker(root: Path, rows: Rows, *, n_honest: int, answered: Callable[[Rows], int] = lambda rows: 0) -> View:
    of, heard, run = workers.recipe(n_trees=1, n_honest=n_honest), [], workers.Run(root, "memory")
    run.start_hub(of)
    bits = seeded(100)
    mine = workers.job(
        of, 0, answered=Answered(n_trees=answered(rows)), make_rows=lambda: of.rows(*rows, rng=bits.fork("rows"))
    )
    run.start_worker(mine, through=lambda channel: Overheard(channel, heard))  # type: ignore[arg-type, return-value]
    for place in (1, 2):
        run.start_worker(workers.job(of, place))
    run.join()
    return heard


@pytest.mark.parametrize("n_honest", [0, 2])
def test_no_record_changes_what_is_public_of_a_worker(tmp_path: Path, n_honest: int) -> None:
    first, *others = (heard_of_worker(tmp_path, rows, n_honest=n_honest) for rows in tables())
    assert [kind for kind, _ in first].count("masked") == 1
    assert all(other == first for other in others)


def test_a_worker_that_tells_how_many_rows_it_has_is_caught_by_the_same_comparison(tmp_path: Path) -> None:
    """The broken twin."""
    few = list(tables())[:2]
    one, other = (heard_of_worker(tmp_path, rows, n_honest=0, answered=lambda rows: len(rows[1])) for rows in few)
    assert one != other


def heard_of_owner(root: Path) -> View:
    root.mkdir()
    chain, of, heard = chains.Chain(root, "memory"), chains.recipe(n_rounds=1), []
    opened, closes = chain.channels()

    def channels() -> tuple[Any, Any]:
        near = {"w0": lambda: {peer: Overheard(channel, heard) for peer, channel in opened["w0"]().items()}}
        return opened | near, closes

    chain.channels = channels  # type: ignore[method-assign]
    found = chain.run({name: chain.job(of, name) for name in chains.ORDER})
    assert isinstance(found["w0"], SharedModel)
    return heard


def test_no_record_changes_what_is_public_of_an_owner_in_a_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    views, theirs = [], chains.rows
    for number, mine in enumerate(tables()):
        monkeypatch.setattr(chains, "rows", lambda place, mine=mine: theirs(place) if place else mine)
        views.append(heard_of_owner(tmp_path / str(number)))
    first, *others = views
    assert [kind for kind, _ in first].count("pass tree") == 2
    assert all(other == first for other in others)


@pytest.mark.parametrize("labels", ["0", "1", "01", "0011"])
def test_one_class_alone_is_read_like_both(tmp_path: Path, labels: str) -> None:
    assert read(tmp_path, labels).labels.tolist() == [float(label) for label in labels]


@pytest.mark.parametrize("labels", ["2", "02", "012", "3210"])
def test_a_third_class_is_refused_with_the_same_words_whatever_else_there_is(tmp_path: Path, labels: str) -> None:
    with pytest.raises(ConfigError, match=r"labels of two classes must be 0 and 1\. Nothing was sent"):
        read(tmp_path, labels)


def read(folder: Path, labels: str) -> OwnerRows:
    (folder / "schema.yaml").write_text(SCHEMA)
    lines = [f"{number},0.5,{label}" for number, label in enumerate(labels)]
    (folder / "rows.csv").write_text("\n".join(["id,dose,ill", *lines]) + "\n")
    rows = OwnerRows.of(folder / "rows.csv", *read_schema(folder / "schema.yaml"))
    rows.check_labels(2, folder / "rows.csv")
    return rows
