"""Partitions, here or on Dask, answer what one table would, to the bit, whoever dies on the way."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from opboost.horizontal.rows.client_rows import PlacedHolder, SummedClients
from opboost.rng import seeded
from opboost.trees.tree import Ensemble
from parties.cluster.dask_cluster import cluster
from parties.cluster.rows import PartsOnDask
from parties.config.cluster_section import DaskSection
from parties.config.reading import read_schema
from parties.config.recipes import SummedRecipe
from parties.errors import TableError, WorkersLost
from parties.horizontal.row_partitions import PartsHere
from parties.horizontal.row_table import OwnerRows
from tests.support.row_partitions import SMALL, TRAININGS, TRUSTED, files, parted, recipe_of, write_rows

if TYPE_CHECKING:
    from distributed import Client

SAMPLED: dict[str, Any] = {**TRUSTED, "sgbdt": {**SMALL, "subsample": 0.5}}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'opboost[dask]'")
    with cluster(DaskSection(workers=2)) as found:
        yield found


def model_of(recipe: SummedRecipe, rows: PlacedHolder) -> Ensemble:
    """Of the only owner, whose noise and whose shapes follow from seeds."""
    holder = recipe.answering(rows, rng=seeded(2))
    return recipe.train(SummedClients([Later(holder)]), shape_bits=seeded(1), rng=seeded(3))  # type: ignore[list-item]


def trees_of(recipe: SummedRecipe, rows: PlacedHolder) -> list[tuple[list[float], list[float]]]:
    return [(tree.thresholds.tolist(), tree.values.tolist()) for tree in model_of(recipe, rows).trees]


class Later:
    """A holder that is asked and heard at once."""

    def __init__(self, holder: Any) -> None:
        self._holder = holder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._holder, name)

    def totals_later(self, nodes: Any) -> Any:
        totals = self._holder.totals(nodes)
        return lambda: totals


def in_one_table(recipe: SummedRecipe, folder: Path) -> list[tuple[list[float], list[float]]]:
    rows = OwnerRows.of(folder / "all.parquet", *read_schema(folder / "schema.yaml"))
    holder = recipe.rows(rows.values, rows.labels, rng=seeded(2))
    model = recipe.train(SummedClients([Later(holder)]), shape_bits=seeded(1), rng=seeded(3))  # type: ignore[list-item]
    return [(tree.thresholds.tolist(), tree.values.tolist()) for tree in model.trees]


@pytest.mark.parametrize("name", TRAININGS)
def test_partitions_here_and_on_dask_give_the_model_of_one_table_to_the_bit(
    tmp_path: Path, client: Client, name: str
) -> None:
    write_rows(tmp_path)
    recipe = recipe_of(tmp_path, TRAININGS[name])
    wanted = in_one_table(recipe, tmp_path)
    assert trees_of(recipe, parted(recipe, PartsHere(files(tmp_path), recipe, coins=None))) == wanted
    assert trees_of(recipe, parted(recipe, PartsOnDask(files(tmp_path), recipe, client=client))) == wanted


def test_sampled_records_take_the_coins_of_one_table(tmp_path: Path) -> None:
    write_rows(tmp_path)
    recipe = recipe_of(tmp_path, SAMPLED)
    here = PartsHere(files(tmp_path), recipe, coins=seeded(2).fork("coins"))
    assert trees_of(recipe, parted(recipe, here)) == in_one_table(recipe, tmp_path)
    other = PartsHere(files(tmp_path), recipe, coins=seeded(9).fork("coins"))
    assert trees_of(recipe, parted(recipe, other)) != in_one_table(recipe, tmp_path)


def test_records_without_a_label_are_left_out_of_partitions_as_of_one_table(tmp_path: Path, client: Client) -> None:
    write_rows(tmp_path)
    schema = tmp_path / "schema.yaml"
    schema.write_text(schema.read_text() + "missing_label: drop\n")
    for path in (tmp_path / "all.parquet", *(tmp_path / "parts").iterdir()):
        frame = pd.read_parquet(path)
        number = frame["id"].str[1:].astype(int)
        # Also the only record of the third partition.
        frame.assign(y=frame["y"].astype(float).mask(number.isin([0, 7, 8, 180, 239]))).to_parquet(path)
    found, recipe = files(tmp_path), recipe_of(tmp_path, SAMPLED)
    assert [file.n_rows for file in found] == [177, 58]
    wanted = in_one_table(recipe, tmp_path)
    assert trees_of(recipe, parted(recipe, PartsHere(found, recipe, coins=seeded(2).fork("coins")))) == wanted
    divided = seeded(2).fork_divided("coins", [file.n_rows for file in found])
    assert trees_of(recipe, parted(recipe, PartsOnDask(found, recipe, coins=divided, client=client))) == wanted
    for path in (tmp_path / "parts").iterdir():
        pd.read_parquet(path).assign(y=float("nan")).to_parquet(path)
    with pytest.raises(TableError, match="5 partitions have no rows with a label"):
        files(tmp_path)


def test_a_partition_that_is_left_out_is_missed(tmp_path: Path) -> None:
    write_rows(tmp_path)
    recipe = recipe_of(tmp_path, TRAININGS["hist"])
    some = PartsHere(files(tmp_path)[:-1], recipe, coins=None)
    assert trees_of(recipe, parted(recipe, some)) != in_one_table(recipe, tmp_path)


class Killing:
    """Partitions on Dask, of whose workers those with the first partition's state are killed before a question."""

    def __init__(self, parts: PartsOnDask, client: Client, *, at: int) -> None:
        self._parts, self._client, self._left = parts, client, at
        self.digests = parts.digests

    def ask(self, calls: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            (addresses,) = self._client.who_has(self._parts._states[:1]).values()
            for pid in self._client.run(os.getpid, workers=list(addresses)).values():
                os.kill(pid, signal.SIGKILL)
        return self._parts.ask(calls)

    def predictions(self, model: Any) -> Any:
        return self._parts.predictions(model)


@pytest.mark.parametrize("name", ["tr, refined", "sgbdt with a filter", "sampled"])
def test_a_killed_dask_worker_changes_nothing(tmp_path: Path, client: Client, name: str) -> None:
    write_rows(tmp_path)
    recipe, found = recipe_of(tmp_path, {**TRAININGS, "sampled": SAMPLED}[name]), files(tmp_path)
    # The coins of sampled records fall the same in a state that is computed again.
    coins = seeded(2).fork_divided("coins", [file.n_rows for file in found]) if recipe.needs_coins else None
    parts = Killing(PartsOnDask(found, recipe, coins=coins, client=client), client, at=2)
    assert trees_of(recipe, parted(recipe, parts)) == in_one_table(recipe, tmp_path)
    assert parts._left < 0


def test_a_state_is_not_changed_by_what_comes_after_it(tmp_path: Path, client: Client) -> None:
    """A task that runs twice on it, as Dask may have it, answers the same."""
    write_rows(tmp_path)
    recipe = recipe_of(tmp_path, TRAININGS["sgbdt with a filter"])
    parts = PartsOnDask(files(tmp_path), recipe, client=client)
    rows, states = parted(recipe, parts), parts._states
    rows.start_tree(0)
    first = rows.totals(np.zeros(1, np.int32))
    parts._states = states
    rows.start_tree(0)
    assert (rows.totals(np.zeros(1, np.int32)) == first).all()


def test_a_file_that_was_changed_meanwhile_is_not_taken_for_the_one_before(tmp_path: Path, client: Client) -> None:
    write_rows(tmp_path)
    recipe = recipe_of(tmp_path, TRAININGS["tr"])
    found = files(tmp_path)
    pd.read_parquet(found[0].path).iloc[:-1].to_parquet(found[0].path)
    with pytest.raises(TableError, match="was changed while it was in use"):
        PartsHere(found, recipe, coins=None)
    with pytest.raises(TableError, match="was changed while it was in use"):
        PartsOnDask(found, recipe, client=client)


def test_a_schema_file_that_is_edited_meanwhile_is_for_the_next_run(tmp_path: Path, client: Client) -> None:
    """Rows are read again where cells are told or a state was lost: two columns had changed places then."""
    write_rows(tmp_path)
    recipe, found, schema = recipe_of(tmp_path, TRAININGS["tr, refined"]), files(tmp_path), tmp_path / "schema.yaml"
    wanted = in_one_table(recipe, tmp_path)
    here = PartsHere(found, recipe, coins=None)
    there = Killing(PartsOnDask(found, recipe, client=client), client, at=2)
    text = schema.read_text()
    schema.write_text(text.replace("age:", "x:").replace("size:", "age:").replace("x:", "size:"))
    assert schema.read_text() != text
    assert trees_of(recipe, parted(recipe, here)) == wanted
    assert trees_of(recipe, parted(recipe, there)) == wanted
    assert there._left < 0


# So written, rows in another order are as many bytes.
PLAIN: dict[str, Any] = {"compression": None, "use_dictionary": False}


def replace_unseen(path: Path) -> None:
    """Give the records of a partition each other's doses, in a file of the same size and time."""
    before, frame = path.stat(), pd.read_parquet(path)
    frame.assign(dose=frame["dose"].to_numpy()[::-1]).to_parquet(path, **PLAIN)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


def test_rows_that_are_other_ones_when_they_are_read_again_are_refused(tmp_path: Path, client: Client) -> None:
    """Also where the file's size and time do not tell: half a run would be on these, half on those."""
    write_rows(tmp_path)
    path = tmp_path / "parts" / "1.parquet"
    pd.read_parquet(path).to_parquet(path, **PLAIN)
    # Of the second training no value is read again, unless a state is lost.
    refined, sgbdt = (recipe_of(tmp_path, TRAININGS[name]) for name in ("tr, refined", "sgbdt"))
    found = files(tmp_path)
    here, there = PartsHere(found, refined, coins=None), PartsOnDask(found, refined, client=client)
    lost = Killing(PartsOnDask(found, sgbdt, client=client), client, at=2)
    model = model_of(sgbdt, parted(sgbdt, PartsHere(found, sgbdt, coins=None)))
    replace_unseen(path)
    for recipe, parts in ((refined, here), (refined, there), (sgbdt, lost)):
        with pytest.raises(TableError, match=r"1\.parquet gave other rows when it was read again"):
            trees_of(recipe, parted(recipe, parts))
        with pytest.raises(TableError, match=r"1\.parquet gave other rows .*Nothing more was sent"):
            parted(recipe, parts).own_fit(model)
    assert lost._left == 0


def test_a_task_that_cannot_finish_ends_in_a_sentence(tmp_path: Path, client: Client) -> None:
    write_rows(tmp_path)
    recipe = recipe_of(tmp_path, TRAININGS["tr"])
    parts = PartsOnDask(files(tmp_path), recipe, client=client)
    with pytest.raises(WorkersLost, match="did not finish a task: ZeroDivisionError"):
        parts.ask([_divide_by_zero])


def _divide_by_zero(part: Any) -> None:
    1 // 0  # noqa: B018


def test_a_record_in_two_partitions_is_refused(tmp_path: Path) -> None:
    write_rows(tmp_path)
    parts = tmp_path / "parts"
    pd.read_parquet(parts / "1.parquet").iloc[:2].to_parquet(parts / "0.parquet")
    with pytest.raises(TableError, match="242 rows and 240 different ids; every record must be in one row"):
        PartsHere(files(tmp_path), recipe_of(tmp_path, TRAININGS["tr"]), coins=None)
