"""Partitions on workers give the release of one machine, once, whoever dies on the way."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from opboost import rng
from opboost.desensitize import ColumnMechanism, ReleasedColumn, desensitize
from opboost.mechanism_settings import MechanismSettings
from opboost.preprocess import encode
from opboost.ranking import RankedColumn, rank
from opboost.rng import BitSource
from opboost.schema import ColumnSchema, Kind, Missing
from parties.cluster.dask_cluster import cluster
from parties.cluster.release import PartitionedRelease, release_partitions
from parties.cluster.release_plan import KEY_BYTES, bits_of, write_keys
from parties.cluster.survey import survey_partitions
from parties.config.cluster_section import DaskSection
from parties.errors import ConfigError, OverBudget, RunFolderError, TableError
from parties.ledger.budget import Budget, Limit
from parties.ledger.charged_release import Account, open_ledger_and_store
from parties.ledger.ledger_lines import Occasion
from parties.ledger.release_ledger import Ledger

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'opboost[dask]'")

if TYPE_CHECKING:
    from distributed import Client

N_PARTS, N_ROWS = 6, 500
TOWNS = ("north", "south", "east", "west")
MECHANISMS = tuple(
    ColumnMechanism(schema, MechanismSettings())
    for schema in (
        ColumnSchema(name="spend", lower=0, upper=100),
        ColumnSchema(name="visits", lower=0, upper=50, missing=Missing.CATEGORY),
        ColumnSchema(name="town", kind=Kind.UNORDERED, categories=TOWNS),
    )
)
OCCASION = Occasion(run_id="scale", task="train", peer="bank")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with cluster(DaskSection(workers=2)) as found:
        yield found


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    draw = np.random.default_rng(6)
    paths = [tmp_path / f"part{p}.parquet" for p in range(N_PARTS)]
    for p, path in enumerate(paths):
        visits = pd.Series(draw.integers(0, 51, N_ROWS) * 1.0).where(draw.random(N_ROWS) > 0.1)
        pd.DataFrame(
            {
                "id": np.arange(p * N_ROWS, (p + 1) * N_ROWS),
                "spend": draw.uniform(0, 100, N_ROWS),
                "visits": visits,
                "town": draw.choice(TOWNS[:3], N_ROWS),
            }
        ).to_parquet(path)
    return paths


def release(parts: list[Path], folder: Path, client: Client, **changed: Any) -> PartitionedRelease:
    with Ledger(folder.parent / "ledger.sqlite") as ledger:
        arguments: dict[str, Any] = {"rng": rng.seeded(3), "occasion": OCCASION, "budget": Budget()} | changed
        return release_partitions(
            parts, MECHANISMS, folder, id_columns=["id"], client=client, ledger=ledger, **arguments
        )


def on_one_machine(parts: list[Path], seed: int = 3) -> list[RankedColumn]:
    """The same keys, drawn in the same order as the driver draws them, and everything in memory."""
    keys = rng.seeded(seed).words(len(parts) * len(MECHANISMS) * KEY_BYTES // 8).tobytes()
    columns: list[RankedColumn] = []
    for c, m in enumerate(MECHANISMS):
        drawn = []
        for p, part in enumerate(parts):
            place = (p * len(MECHANISMS) + c) * KEY_BYTES
            raw = pd.read_parquet(part)[m.schema.name]
            source = BitSource(keys[place : place + KEY_BYTES], is_secure=False)
            drawn.append(desensitize(m, encode(raw, m.schema, domain=m.settings.domain), rng=source))
        codes, is_missing = (np.concatenate([getattr(d, name) for d in drawn]) for name in ("codes", "is_missing"))
        columns.extend(rank(ReleasedColumn(m.schema, codes, is_missing)))
    return columns


def ranks_of(found: PartitionedRelease) -> pd.DataFrame:
    return pd.concat([pq.read_table(path).to_pandas() for path in found.ranks], ignore_index=True)


def assert_same(found: PartitionedRelease, whole: list[RankedColumn]) -> None:
    ranks = ranks_of(found)
    assert list(ranks) == [f"c{i}" for i in range(len(whole))]
    for i, (mine, column) in enumerate(zip(found.columns, whole, strict=True)):
        assert (mine.source, mine.category, mine.has_missing) == (column.source, column.category, column.has_missing)
        np.testing.assert_array_equal(mine.table.codes, column.table.codes)
        np.testing.assert_array_equal(ranks[f"c{i}"], column.ranks)


def charges(folder: Path) -> int:
    with Ledger(folder / "ledger.sqlite") as ledger:
        return sum(ledger.n_releases.values())


def test_the_partitions_hold_the_ranks_of_one_machine_and_are_paid_for_once(
    tmp_path: Path, parts: list[Path], client: Client
) -> None:
    found = release(parts, tmp_path / "release", client)
    assert_same(found, on_one_machine(parts))
    again = release(parts, tmp_path / "release", client, rng=rng.seeded(99))
    pd.testing.assert_frame_equal(ranks_of(again), ranks_of(found))
    (tmp_path / "release" / "keys").touch(0o600)
    release(parts, tmp_path / "release", client)
    assert charges(tmp_path) == len(MECHANISMS)
    left = {path.relative_to(tmp_path / "release").as_posix() for path in (tmp_path / "release").rglob("*")}
    assert "keys" not in left
    assert not [name for name in left if name.startswith("codes/")]
    found.ranks[0].write_bytes(found.ranks[1].read_bytes())
    with pytest.raises(RunFolderError, match="does not hold the ranks that it released"):
        release(parts, tmp_path / "release", client)


def test_a_worker_killed_in_mid_release_changes_no_code_and_costs_nothing(
    tmp_path: Path, parts: list[Path], client: Client
) -> None:
    folder, killed = tmp_path / "release", threading.Event()

    def kill_one(pid: int) -> None:
        while not killed.is_set() and not any((folder / "codes").glob("0*.0")):
            time.sleep(0.002)
        assert not (folder / "counts.json").exists()
        os.kill(pid, signal.SIGKILL)
        killed.set()

    victim = next(iter(client.run(os.getpid).values()))
    thread = threading.Thread(target=kill_one, args=(victim,), daemon=True)
    thread.start()
    found = release(parts, folder, client)
    thread.join(10)
    client.wait_for_workers(2, timeout=30)
    assert killed.is_set()
    assert_same(found, on_one_machine(parts))
    assert charges(tmp_path) == len(MECHANISMS)


def test_a_driver_that_is_started_again_finishes_the_same_release(
    tmp_path: Path, parts: list[Path], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("parties.cluster.release.forget_keys", fail)
        patch.setattr("parties.cluster.release._summed", fail)
        with pytest.raises(KeyboardInterrupt):
            release(parts, tmp_path / "release", client)
    keys = tmp_path / "release" / "keys"
    assert keys.stat().st_mode & 0o777 == 0o600
    found = release(parts, tmp_path / "release", client, rng=rng.seeded(99))
    assert_same(found, on_one_machine(parts))
    assert charges(tmp_path) == len(MECHANISMS)


def keep(parts: list[Path], folder: Path, client: Client) -> PartitionedRelease:
    """Release with first draws kept, from fresh secret bits."""
    surveyed = survey_partitions(parts, MECHANISMS, id_columns=["id"], client=client, keeps=True)
    with open_ledger_and_store(folder.parent / "ledger.sqlite") as (ledger, store):
        return release_partitions(
            parts,
            MECHANISMS,
            folder,
            id_columns=["id"],
            client=client,
            rng=rng.secure(),
            ledger=ledger,
            occasion=OCCASION,
            budget=Budget(),
            surveyed=surveyed,
            store=store,
        )


def drawn_codes(found: PartitionedRelease) -> list[np.ndarray]:
    """Codes by column, a missing cell as -1; indicators of a category as they are."""
    ranks = ranks_of(found)
    return [np.append(column.table.codes, -1)[ranks[f"c{i}"]] for i, column in enumerate(found.columns)]


def change_values(part: Path, seed: int) -> None:
    frame, draw = pd.read_parquet(part), np.random.default_rng(seed)
    visits = pd.Series(draw.integers(0, 51, len(frame)) * 1.0).where(draw.random(len(frame)) > 0.5)
    spend, town = draw.uniform(0, 100, len(frame)), draw.choice(TOWNS, len(frame))
    frame.assign(spend=spend, visits=visits, town=town).to_parquet(part)


def test_records_of_partitions_keep_their_first_draw_whatever_becomes_of_them(
    tmp_path: Path, parts: list[Path], client: Client
) -> None:
    first = keep(parts[:2], tmp_path / "first", client)
    for seed, part in enumerate(parts[:2]):
        change_values(part, seed)
    second = keep(parts[:2], tmp_path / "second", client)
    pd.testing.assert_frame_equal(ranks_of(second), ranks_of(first))
    third = keep(parts[:3], tmp_path / "third", client)
    for before, after in zip(drawn_codes(first), drawn_codes(third), strict=True):
        np.testing.assert_array_equal(after[: 2 * N_ROWS], before)
    with open_ledger_and_store(tmp_path / "ledger.sqlite") as (ledger, store):
        assert ledger.n_releases == {"spend": 2, "visits": 2, "town": 2}
        assert ledger.n_reuses == {"spend": 2, "visits": 2, "town": 2}
        promise = MECHANISMS[2].guarantee()
        assert ledger.balances.worst("town").category_epsilon == promise.epsilon
        assert ledger.balances.n_records == 3 * N_ROWS
        store.verify()
        # One table that is asked record by record finds the same draws.
        account = Account(ledger=ledger, store=store, budget=Budget(), occasion=OCCASION, rng=rng.secure(), keeps=True)
        asked = pd.read_parquet(parts[2])
        columns = [encode(asked[m.schema.name], m.schema, domain=m.settings.domain) for m in MECHANISMS]
        (spend, *_) = account.records(MECHANISMS, columns, pd.Index(asked["id"].astype(str), dtype=object))
        np.testing.assert_array_equal(spend.codes, drawn_codes(third)[0][2 * N_ROWS :])
    twin = release(parts[:2], tmp_path / "twin", client, rng=rng.secure())
    assert not ranks_of(twin).equals(ranks_of(first))


@pytest.mark.parametrize("place", ["_summed", "keep_new", "_rank"])
def test_a_driver_that_is_started_again_keeps_the_draws_that_it_paid_for(
    tmp_path: Path, parts: list[Path], client: Client, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    keep(parts[:1], tmp_path / "before", client)

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"parties.cluster.release.{place}", fail)
        with pytest.raises(KeyboardInterrupt):
            keep(parts[:2], tmp_path / "release", client)
    found = keep(parts[:2], tmp_path / "release", client)
    again = keep(parts[:2], tmp_path / "again", client)
    pd.testing.assert_frame_equal(ranks_of(again), ranks_of(found))
    assert charges(tmp_path) == 2 * len(MECHANISMS)


def test_keys_never_serve_two_tables(tmp_path: Path, parts: list[Path], client: Client) -> None:
    release(parts[:2], tmp_path / "release", client)
    frame = pd.read_parquet(parts[0])
    frame.assign(spend=frame["spend"][::-1].to_numpy()).to_parquet(parts[0])
    with pytest.raises(RunFolderError, match="choose another folder"):
        release(parts[:2], tmp_path / "release", client)
    with pytest.raises(RunFolderError, match="choose another folder"):
        release(parts[1:3], tmp_path / "release", client)


def test_data_that_changes_between_charge_and_draw_is_not_drawn_from(
    tmp_path: Path, parts: list[Path], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exchange(folder: Path, *_: Any, **__: Any) -> None:
        write_keys(folder, 2 * len(MECHANISMS), rng=rng.seeded(3))
        frame = pd.read_parquet(parts[0])
        frame.assign(spend=50.0).to_parquet(parts[0])

    monkeypatch.setattr("parties.cluster.release.write_keys", exchange)
    with pytest.raises(TableError, match="was changed while it was in use"):
        release(parts[:2], tmp_path / "release", client)
    assert not (tmp_path / "release" / "codes" / "000000.0").exists()
    assert not (tmp_path / "release" / "release.json").exists()


def test_every_partition_of_every_column_has_bits_of_its_own(tmp_path: Path) -> None:
    write_keys(tmp_path, 12, rng=rng.secure())
    first_words = {bits_of(tmp_path, place, is_secure=True).words(4).tobytes() for place in range(12)}
    assert len(first_words) == 12
    (tmp_path / "keys").chmod(0o644)
    with pytest.raises(RunFolderError, match="others may read it"):
        bits_of(tmp_path, 0, is_secure=True)


def test_a_source_that_gives_a_key_twice_is_refused(tmp_path: Path) -> None:
    class Twin(BitSource):
        """The same 32 bytes again and again."""

        def words(self, count: int) -> Any:
            return np.tile(super().words(4), count // 4)

    with pytest.raises(RunFolderError, match="two partitions got one key"):
        write_keys(tmp_path, 12, rng=Twin(bytes(32), is_secure=False))
    assert list(tmp_path.iterdir()) == []


def test_equal_partitions_get_different_noise_and_the_twin_with_one_key_does_not(
    tmp_path: Path, parts: list[Path], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pd.read_parquet(parts[0])
    frame.assign(id=frame["id"] + 10_000).to_parquet(parts[1])

    def are_alike(folder: Path) -> bool:
        first, second = (pq.read_table(path)["c0"].to_numpy() for path in release(parts[:2], folder, client).ranks)
        return bool((first == second).all())

    assert not are_alike(tmp_path / "release")
    monkeypatch.setattr(
        "parties.cluster.release.write_keys",
        lambda folder, count, *, rng: (
            (folder / "keys").touch(0o600) or (folder / "keys").write_bytes(bytes(32 * count))
        ),
    )
    assert are_alike(tmp_path / "twin")


def test_nothing_is_drawn_over_budget_or_for_an_id_that_comes_twice(
    tmp_path: Path, parts: list[Path], client: Client
) -> None:
    with pytest.raises(OverBudget):
        release(parts[:2], tmp_path / "release", client, budget=Budget(Limit(epsilon=0.01)))
    with pytest.raises(TableError, match="1000 rows and 500 different ids"):
        release([parts[0], parts[0]], tmp_path / "release", client)
    assert charges(tmp_path) == 0
    assert not (tmp_path / "release" / "keys").exists()


def test_what_may_leave_holds_ranks_and_nothing_else(tmp_path: Path, parts: list[Path], client: Client) -> None:
    found = release(parts, tmp_path / "release", client)
    for path in found.ranks:
        table = pq.read_table(path)
        assert table.column_names == [f"c{i}" for i in range(len(found.columns))]
        for column, released in zip(table.itercolumns(), found.columns, strict=True):
            assert np.issubdtype(column.to_numpy().dtype, np.unsignedinteger)
            assert column.to_numpy().max() <= released.table.n_ranks
        assert not {b"spend", b"visits", b"north"} & set(path.read_bytes().split())
        assert b"spend" not in path.read_bytes()


def test_a_scheduler_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parties.cluster.dask_cluster.WAIT_S", 0.2)
    with (
        pytest.raises(ConfigError, match="no scheduler answers at"),
        cluster(DaskSection(scheduler="tcp://127.0.0.1:1")),
    ):
        pass
