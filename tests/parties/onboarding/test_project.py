"""Folders that are made: nothing is replaced, both sides of a rehearsal know each other and share ids."""

from __future__ import annotations

import errno
from pathlib import Path

import pandas as pd
import pytest
import yaml

from parties.config.reading import read_any_run, read_schema
from parties.errors import ConfigError, RunFolderError
from parties.onboarding.party_folder import Made
from parties.onboarding.project import Part, free_port, make_party, make_project
from parties.onboarding.schema_draft import Hints
from parties.storage import atomic_files
from parties.tables.party_table import read_table
from tests.support.yaml_text import with_keys

N_ROWS = 40


def project(folder: Path, active: list[str], passive: list[object], key: str = "KEY") -> dict[str, Made]:
    label = [row % 2 for row in range(len(active))]
    pd.DataFrame({"key": active, "age": range(len(active)), "good": label}).to_csv(folder / "bank.csv", index=False)
    spend = [row / 3 for row in range(len(passive))]
    pd.DataFrame({"spend": spend, key: passive, "no": range(len(passive))}).to_csv(folder / "shop.csv", index=False)
    return make_project(folder / "bank.csv", folder / "shop.csv", folder / "out", Hints(label="good"))


def run_file(folder: Path, party: str) -> dict[str, object]:
    found: dict[str, object] = with_keys(yaml.safe_load((folder / "out" / party / "run.yaml").read_text()))
    return found


IDS = [f"{row:04}x" for row in range(N_ROWS)]


def test_the_record_key_is_the_column_that_both_sides_have(tmp_path: Path) -> None:
    made = project(tmp_path, IDS, list(IDS))
    schemas = [yaml.safe_load((tmp_path / "out" / party / "schema.yaml").read_text()) for party in ("bank", "shop")]
    assert [one["id"] for one in schemas] == ["key", "KEY"]
    assert [one.open_bounds for one in made.values()] == [(), ("spend", "no")]
    assert not any(one.has_repeats for one in made.values())
    assert "align" not in run_file(tmp_path, "shop")


def test_of_a_repeated_id_the_first_row_counts_on_both_sides(tmp_path: Path) -> None:
    made = project(tmp_path, IDS, [*IDS, IDS[0]])
    assert [one.has_repeats for one in made.values()] == [False, True]
    assert run_file(tmp_path, "bank")["align"] == {"method": "psi", "duplicates": "first"}
    assert run_file(tmp_path, "shop")["align"] == {"duplicates": "first"}


@pytest.mark.parametrize("missing", ["", "?", "  ?", "? "])
def test_only_records_whose_row_that_counts_has_a_label_are_listed(tmp_path: Path, missing: str) -> None:
    label = ["yes" if row % 3 else "no" for row in range(N_ROWS)]
    bank = pd.DataFrame({"key": IDS, "age": range(N_ROWS), "good": [missing, missing, *label[2:]]})
    # The first of these comes again, and its first row counts.
    again = bank.iloc[:1].assign(good="yes")
    pd.concat([bank, again]).to_csv(tmp_path / "bank.csv", index=False)
    pd.DataFrame({"key": IDS, "spend": range(N_ROWS)}).to_csv(tmp_path / "shop.csv", index=False)
    make_project(tmp_path / "bank.csv", tmp_path / "shop.csv", tmp_path / "out", Hints(label="good"))
    listed = [(tmp_path / "out" / "bank" / f"{name}_ids.txt").read_text().split() for name in ("train", "test")]
    assert sorted([*listed[0], *listed[1]]) == IDS[2:]
    schema, ignore = read_schema(tmp_path / "out" / "bank" / "schema.yaml")
    used = read_table(tmp_path / "bank.csv", schema, ignore=ignore, needs_label=True, duplicates="first")
    assert list(used.index) == IDS[2:]


@pytest.mark.parametrize(
    ("passive", "key", "words"),
    [
        ([one.lstrip("0") for one in IDS[1:]], "key", "but for zeros in front"),
        ([one.upper() for one in IDS], "key", "but for capitals"),
        ([f"{one[:2]}-{one[2:]}" for one in IDS], "key", "but for marks and spaces"),
        ([f"{one}y" for one in IDS], "other_key", "name the record key with --id"),
    ],
)
def test_files_without_a_common_id_are_refused_with_the_reason(
    tmp_path: Path, passive: list[object], key: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=f"bank and shop have no id in common; .*{words}.* Nothing was made"):
        project(tmp_path, IDS, passive, key)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    rows = range(120)
    ids = [f"k{row}" for row in rows]
    pd.DataFrame({"id": ids, "y": [row % 2 for row in rows], "age": list(rows)}).to_csv(
        tmp_path / "bank.csv", index=False
    )
    pd.DataFrame({"id": ids, "spend": [row % 50 for row in rows]}).to_csv(tmp_path / "shop.csv", index=False)
    return tmp_path / "bank.csv", tmp_path / "shop.csv"


def part(folder: Path, **changes: str) -> Part:
    given = {"role": "passive", "party": "shop", "peer": "bank", "address": "tcp://127.0.0.1:5555", **changes}
    return Part(folder=folder, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(("role", "label"), [("passive", "y"), ("active", None)])
def test_an_active_party_alone_has_a_label(
    tables: tuple[Path, Path], tmp_path: Path, role: str, label: str | None
) -> None:
    words = "an active party names its label with --label, a passive party has none. Nothing was made"
    with pytest.raises(ConfigError, match=words):
        make_party(tables[0], part(tmp_path / "made", role=role), Hints(label=label))
    assert not (tmp_path / "made").exists()


def test_files_that_exist_are_never_replaced(tables: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "made"
    made = make_party(tables[1], part(folder), Hints())
    assert made.open_bounds == ("spend",)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError):
        make_party(tables[1], part(folder), Hints())
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "name", ["bank/train_ids.txt", "bank/test_ids.txt", "bank/keys/shop.public", "shop/keys/shop.secret"]
)
def test_a_rehearsal_replaces_no_list_and_no_key(tables: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    """Lists of ids and the other party's key were replaced, and of two folders one was made."""
    kept = tmp_path / "both" / name
    kept.parent.mkdir(parents=True)
    kept.write_text("kept")
    with pytest.raises(ConfigError, match=r"exists and is not replaced; .* Nothing was made"):
        make_project(*tables, tmp_path / "both", Hints(id="id", label="y"))
    assert [path for path in (tmp_path / "both").rglob("*") if path.is_file()] == [kept]
    assert kept.read_text() == "kept"


@pytest.mark.parametrize("name", ["kunden\udcfc.csv", "two\nlines.csv", "folder\udcfc/shop.csv"])
def test_a_file_that_no_run_file_can_name_is_refused_and_nothing_is_made(
    tables: tuple[Path, Path], tmp_path: Path, name: str
) -> None:
    odd = tmp_path / name
    odd.parent.mkdir(exist_ok=True)
    tables[1].rename(odd)
    before = sorted(tmp_path.rglob("*"))
    words = "its path holds a line break, a control character or bytes that are no UTF-8.* Nothing was made"
    with pytest.raises(ConfigError, match=words) as found:
        make_party(odd, part(tmp_path / "new"), Hints())
    with pytest.raises(ConfigError, match=words):
        make_project(tables[0], odd, tmp_path / "new", Hints(label="y"))
    assert str(found.value).isprintable()
    assert sorted(tmp_path.rglob("*")) == before


def test_both_sides_of_a_rehearsal_know_each_other(tables: tuple[Path, Path], tmp_path: Path) -> None:
    hints = Hints(id="id", label="y", bounds={"age": (0, 200), "spend": (0, 100)})
    made = make_project(*tables, tmp_path / "both", hints)
    assert set(made) == {"bank", "shop"}
    assert not any(one.open_bounds for one in made.values())
    bank, shop = (yaml.safe_load((tmp_path / "both" / name / "run.yaml").read_text()) for name in made)
    assert bank["run_id"] == shop["run_id"]
    for own, other in (("bank", "shop"), ("shop", "bank")):
        public = f"keys/{own}.public"
        assert (tmp_path / "both" / own / public).read_bytes() == (tmp_path / "both" / other / public).read_bytes()


@pytest.mark.parametrize("place", ["link", "link/out", "link/../beside"])
def test_a_made_run_file_finds_its_data_also_behind_links_to_folders(
    tables: tuple[Path, Path], tmp_path: Path, place: str
) -> None:
    """A path is followed from where a folder is, and was written from where its link is."""
    (tmp_path / "deep" / "er" / "real").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "er" / "real")
    (newest := tmp_path / "newest.csv").symlink_to(tables[0])
    make_project(newest, tables[1], tmp_path / place, Hints(id="id", label="y"))
    for party, data in (("newest", newest), (tables[1].stem, tables[1])):
        run = read_any_run(tmp_path / place / party / "run.yaml")
        assert run.data.samefile(data)
        # A link that is moved on names another file from then on.
        assert run.data.is_symlink() == data.is_symlink()


def test_a_free_port_can_be_listened_on() -> None:
    assert 1024 <= free_port() < 65536


@pytest.mark.parametrize("name", ["run.yaml", "bank.public"])
def test_a_disk_without_room_leaves_nothing_of_either_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The second party's run file, or the first one's key beside it."""

    def full(partial: Path) -> None:
        if partial.name == f".{name}.partial" and "shop" in partial.parts:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "flush", full)
        with pytest.raises(RunFolderError, match=name):
            project(tmp_path, IDS, list(IDS))
    assert not (tmp_path / "out").exists()
    project(tmp_path, IDS, list(IDS))


@pytest.mark.parametrize("name", ["train_ids.txt", "test_ids.txt", "shop.public"])
def test_a_signal_just_after_a_file_has_its_name_leaves_nothing_of_either_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def stop(folder: Path) -> None:
        if (folder / name).exists():
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "sync_folder", stop)
        with pytest.raises(KeyboardInterrupt):
            project(tmp_path, IDS, list(IDS))
    assert not (tmp_path / "out").exists()
