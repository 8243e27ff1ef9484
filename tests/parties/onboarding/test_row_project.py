"""Folders of coordinators, workers and owners: run files that agree with each other, and what is refused unmade."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from parties.config.chain import MAX_OWNERS, OwnerRun
from parties.config.horizontal import CoordinatorRun, WorkerRun
from parties.config.reading import read_run, read_schema
from parties.config.record_runs import read_record_run
from parties.errors import ConfigError, PartyError
from parties.onboarding.party_folder import Made
from parties.onboarding.row_project import RowPart, make_row_party, owner_keys
from parties.onboarding.schema_draft import Hints
from protocols.secure_aggregation.epochs import MAX_WORKERS
from tests.support.yaml_text import with_keys

SCHEMA = {"id": "id", "label": "y", "columns": {"age": {"lower": 0, "upper": 120}}}
ADDRESS = "tcp://127.0.0.1:5556"
CHAIN = {"north": "tcp://127.0.0.1:5557", "south": "tcp://south.example:5558", "west": None}


@pytest.fixture
def agreed(tmp_path: Path) -> Path:
    return written(tmp_path, SCHEMA)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return table(tmp_path, [row % 2 for row in range(40)])


def written(folder: Path, schema: dict[str, Any]) -> Path:
    (folder / "agreed.yaml").write_text(yaml.safe_dump(schema))
    return folder / "agreed.yaml"


def table(folder: Path, labels: list[Any]) -> Path:
    rows = {"id": [f"k{row}" for row in range(len(labels))], "age": range(len(labels)), "y": labels}
    pd.DataFrame(rows).to_csv(folder / "rows.csv", index=False)
    return folder / "rows.csv"


def hub(root: Path, **changes: Any) -> RowPart:
    owners = dict.fromkeys(("north", "south", "west"))
    given = {"role": "coordinator", "party": "hub", "folder": root / "made", "owners": owners, "address": ADDRESS}
    return RowPart(**{**given, "epsilon": 2, "delta": 1e-6, "records": 900, **changes})  # type: ignore[arg-type]


def worker(root: Path, **changes: Any) -> RowPart:
    return hub(root, **{"role": "worker", "party": "north", "coordinator": "hub", **changes})


def owner(root: Path, **changes: Any) -> RowPart:
    given = {"role": "owner", "party": "south", "folder": root / "made", "owners": CHAIN, "epsilon": 2}
    return RowPart(**{**given, **changes})  # type: ignore[arg-type]


def training(made: Made) -> dict[str, Any]:
    (path,) = (one for one in made.files if one.name == "run.yaml")
    found: dict[str, Any] = with_keys(yaml.safe_load(path.read_text())["training"])
    return found


def test_a_coordinator_and_its_workers_say_the_same_and_know_each_other(
    tmp_path: Path, agreed: Path, data: Path
) -> None:
    made = [make_row_party(hub(tmp_path), Hints(), agreed=agreed)]
    for name in ("north", "south", "west"):
        part = worker(tmp_path, party=name, folder=tmp_path / name)
        assert part.others == ("hub", *(one for one in ("north", "south", "west") if one != name))
        made.append(make_row_party(part, Hints(), data=data, agreed=agreed))
    run = read_run(tmp_path / "made" / "run.yaml", CoordinatorRun)
    assert [one.name for one in run.workers] == list(hub(tmp_path).others) == ["north", "south", "west"]
    assert run.listen == ADDRESS
    of_workers = [read_run(tmp_path / name / "run.yaml", WorkerRun) for name in ("north", "south", "west")]
    assert all(one.training == run.training for one in of_workers)
    assert [(one.connect, one.coordinator.name) for one in of_workers] == [(ADDRESS, "hub")] * 3
    assert all(isinstance(one.data, Path) and one.data.samefile(data) for one in of_workers)
    assert training(made[0]) == {
        "recipe": "recommended",
        "objective": "binary:logistic",
        "epsilon": 2,
        "delta": 1e-6,
        "workers": 3,
        "threshold": 2,
        "noise": "workers",
        "honest": 2,
        "recommended": {"records": 900},
    }
    assert [one.to_send.name for one in made] == ["hub.public", "north.public", "south.public", "west.public"]


def test_of_two_owners_the_later_one_connects_to_the_earlier_one(tmp_path: Path, agreed: Path, data: Path) -> None:
    calls = {}
    for name in CHAIN:
        part = owner(tmp_path, party=name, folder=tmp_path / name)
        made = make_row_party(part, Hints(), data=data, agreed=agreed)
        run = read_run(tmp_path / name / "run.yaml", OwnerRun)
        calls[name] = (run.wiring.calls, run.listen)
        assert training(made) == {"epsilon": 2, "order": list(CHAIN), "objective": "binary:logistic"}
    north, south = CHAIN["north"], CHAIN["south"]
    assert calls["north"] == ({}, north)
    # Of a host that has a name, all interfaces.
    assert calls["south"] == ({"north": north}, "tcp://0.0.0.0:5558")
    assert calls["west"] == ({"north": north, "south": south}, None)


@pytest.mark.parametrize(
    ("address", "listen"),
    [
        ("tcp://localhost:5557", "tcp://localhost:5557"),
        ("tcp://[::1]:5557", "tcp://[::1]:5557"),
        ("tcp://10.0.0.3:5557", "tcp://10.0.0.3:5557"),
        ("tcp://north.example:5557", "tcp://0.0.0.0:5557"),
    ],
)
def test_an_owner_listens_where_zeromq_can(address: str, listen: str) -> None:
    assert owner_keys("north", {"north": address, "south": None})["listen"] == listen


@pytest.mark.parametrize(("n", "threshold"), [(2, 2), (3, 2), (4, 3), (MAX_WORKERS, MAX_WORKERS // 2 + 1)])
def test_any_number_of_workers_gives_a_run_file_that_can_be_read(
    tmp_path: Path, agreed: Path, data: Path, n: int, threshold: int
) -> None:
    owners = dict.fromkeys(f"w{number}" for number in range(n))
    made = make_row_party(hub(tmp_path, owners=owners), Hints(), agreed=agreed)
    part = worker(tmp_path, owners=owners, party="w1", folder=tmp_path / "w1")
    assert training(make_row_party(part, Hints(), data=data, agreed=agreed)) == training(made)
    found = training(made)
    assert (found["workers"], found["threshold"], found["honest"]) == (n, threshold, threshold)
    for folder in ("made", "w1"):
        read_record_run(tmp_path / folder / "run.yaml")


def test_the_longest_chain_can_be_read(tmp_path: Path, agreed: Path, data: Path) -> None:
    names = [f"w{number}" for number in range(MAX_OWNERS)]
    owners = dict.fromkeys(names[:-1], ADDRESS) | {names[-1]: None}
    make_row_party(owner(tmp_path, owners=owners, party="w1"), Hints(), data=data, agreed=agreed)
    read_record_run(tmp_path / "made" / "run.yaml")


@pytest.mark.parametrize(
    ("schema", "bounds", "classes", "found"),
    [
        ({}, {}, None, {"objective": "binary:logistic"}),
        ({"positive": "ill"}, {}, None, {"objective": "binary:logistic"}),
        ({}, {"y": (0, 9.5)}, None, {"objective": "reg:squarederror", "label_bounds": [0, 9.5]}),
        ({}, {}, 4, {"objective": "multi:softprob", "classes": 4}),
    ],
)
def test_the_objective_follows_from_what_is_public_of_the_label(
    tmp_path: Path, schema: dict[str, Any], bounds: Any, classes: int | None, found: dict[str, Any]
) -> None:
    agreed = written(tmp_path, SCHEMA | schema)
    made = make_row_party(hub(tmp_path, classes=classes), Hints(bounds=bounds), agreed=agreed)
    keys = ("objective", "label_bounds", "classes")
    assert {key: value for key, value in training(made).items() if key in keys} == found


@pytest.mark.parametrize(
    ("labels", "hints", "classes", "objective"),
    [
        (["ill", "well"], {}, None, "binary:logistic"),
        (["0", "1"], {}, None, "binary:logistic"),
        (["0", "1"], {}, 3, "multi:softprob"),
        (["0", "7"], {"positive": "7"}, None, "binary:logistic"),
        (["0", "7"], {"bounds": {"y": (0, 9)}}, None, "reg:squarederror"),
        (["0", "7"], {}, 8, "multi:softprob"),
    ],
)
def test_a_worker_without_an_agreed_schema_drafts_one(
    tmp_path: Path, labels: list[str], hints: dict[str, Any], classes: int | None, objective: str
) -> None:
    data = table(tmp_path, labels * 20)
    made = make_row_party(worker(tmp_path, classes=classes), Hints(label="y", **hints), data=data)
    assert training(made)["objective"] == objective
    schema = yaml.safe_load((tmp_path / "made" / "schema.yaml").read_text())
    assert (schema["id"], schema["label"], list(schema["columns"])) == ("id", "y", ["age"])
    # Proposed by the name; the label's are no part of a schema.
    assert made.open_bounds == ()


@pytest.mark.parametrize("make", [worker, owner])
def test_owners_with_other_base_rates_do_not_draft_opposite_labels(tmp_path: Path, make: Any) -> None:
    schemas = []
    for name, labels in (("north", ["sick", "sick", "well"]), ("south", ["sick", "well", "well"])):
        (tmp_path / name).mkdir()
        part = make(tmp_path, party=name, folder=tmp_path / name / "made")
        made = make_row_party(part, Hints(label="y"), data=table(tmp_path / name, labels * 20))
        assert made.is_label_open
        schemas.append(part.folder / "schema.yaml")
        with pytest.raises(ConfigError, match="`positive` has a TODO"):
            read_schema(schemas[-1])
    assert schemas[0].read_text() == schemas[1].read_text()
    assert yaml.safe_load(schemas[0].read_text())["positive"] == "TODO: sick or well"


def test_columns_whose_bounds_are_to_be_written_are_told(tmp_path: Path) -> None:
    data = table(tmp_path, [0, 1] * 20)
    data.write_text(data.read_text().replace("age", "debt"))
    made = make_row_party(owner(tmp_path), Hints(label="y"), data=data)
    assert (made.open_bounds, made.ignored, made.has_repeats) == (("debt",), (), False)


def test_a_schema_that_lies_in_the_folder_is_not_copied(tmp_path: Path, agreed: Path) -> None:
    (tmp_path / "made").mkdir()
    agreed.rename(tmp_path / "made" / "schema.yaml")
    made = make_row_party(hub(tmp_path), Hints(), agreed=tmp_path / "made" / "schema.yaml")
    assert [path.name for path in made.files] == ["run.yaml", "hub.secret", "hub.public"]


@pytest.mark.parametrize("make", [hub, worker, owner])
@pytest.mark.parametrize("name", ["schema.yaml", "run.yaml", "keys/{}.secret", "keys/{}.public"])
def test_files_that_exist_are_never_replaced(tmp_path: Path, agreed: Path, data: Path, make: Any, name: str) -> None:
    part: RowPart = make(tmp_path)
    name = name.format(part.party)
    (part.folder / name).parent.mkdir(parents=True)
    (part.folder / name).write_text("kept")
    with pytest.raises(Exception, match="exists") as found:
        make_row_party(part, Hints(), data=None if part.role == "coordinator" else data, agreed=agreed)
    assert "Nothing was" in str(found.value)
    assert [path for path in part.folder.rglob("*") if path.is_file()] == [part.folder / name]
    assert (part.folder / name).read_text() == "kept"


@pytest.mark.parametrize(
    ("make", "changes", "words"),
    [
        (hub, {"owners": {"north": None}}, "--owners takes 2 to 200 names; found 1"),
        (hub, {"owners": dict.fromkeys(map(str, range(201)))}, "--owners takes 2 to 200 names; found 201"),
        (owner, {"owners": dict.fromkeys(map(str, range(51)))}, "--owners takes 2 to 50 names; found 51"),
        (hub, {"owners": {"north": None, "two words": None}}, "--owners: name: must be a name"),
        (hub, {"owners": CHAIN}, "--owners takes names alone"),
        (owner, {"owners": {"north": "north.example:5557", "south": None}}, "--owners: connect: must be tcp://"),
        (owner, {"owners": {"north": None, "south": ADDRESS}}, "--owners gives the address .* all but the last"),
        (owner, {"owners": {"north": ADDRESS, "south": ADDRESS}}, "--owners gives the address .* all but the last"),
        (owner, {"owners": dict.fromkeys(("north", "south"))}, "--owners gives the address .* all but the last"),
        (hub, {"party": "north"}, "--name must not be one of --owners, north, south, west; found 'north'"),
        (worker, {"party": "east"}, "--name must be one of --owners, north, south, west; found 'east'"),
        (owner, {"party": "east"}, "--name must be one of --owners, north, south, west; found 'east'"),
        (worker, {"coordinator": "south"}, "--peer names the coordinator, which is none of --owners; found 'south'"),
        (owner, {"classes": 3}, "--classes: a chain trains on two classes or on numbers; several classes need a coord"),
    ],
)
def test_a_part_that_no_run_has_is_refused(tmp_path: Path, make: Any, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=f"{words}.*Nothing was made"):
        make(tmp_path, **changes)


@pytest.mark.parametrize(
    ("schema", "bounds", "changes", "words"),
    [
        ({"label": None}, {}, {}, "names no `label`"),
        ({"label": ["y", "z"]}, {}, {}, "have one `label`"),
        ({"columns": {"age": {"lower": "TODO", "upper": 9}}}, {}, {}, "columns age have a TODO"),
        ({}, {"age": (0, 9)}, {}, "--bounds: age is not the label"),
        ({}, {"y": (9, 0)}, {}, "--bounds y: label_bounds: must be a lower and a higher number"),
        ({}, {"y": (0, 9)}, {"classes": 3}, "label 'y' is one thing"),
        ({"positive": "ill"}, {}, {"classes": 3}, "label 'y' is one thing"),
        ({"positive": "ill"}, {"y": (0, 9)}, {}, "label 'y' is one thing"),
        ({}, {}, {"address": "hub:5556"}, "listen: must be tcp://host:port"),
        ({}, {}, {"party": "two words"}, "party: must be a name"),
        # No noise is that large.
        ({}, {}, {"epsilon": 1e-300}, "agreed.yaml: mu must be positive"),
    ],
)
def test_what_a_run_would_refuse_is_not_made(
    tmp_path: Path, schema: dict[str, Any], bounds: Any, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(PartyError, match=words):
        make_row_party(hub(tmp_path, **changes), Hints(bounds=bounds), agreed=written(tmp_path, SCHEMA | schema))
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([0, 7], "--bounds y=LOWER:UPPER, .*--positive.* several classes.* --classes.* Nothing was made"),
        (["ill", "well", "dead"], "3 different words"),
    ],
)
def test_data_whose_label_leaves_the_objective_open_are_refused(tmp_path: Path, labels: list[Any], words: str) -> None:
    data = table(tmp_path, labels * 20)
    for part in (worker(tmp_path), owner(tmp_path)):
        with pytest.raises(ConfigError, match=words):
            make_row_party(part, Hints(label="y"), data=data)
    assert not (tmp_path / "made").exists()


def test_a_repeated_id_and_an_absent_file_are_refused(tmp_path: Path, data: Path, agreed: Path) -> None:
    with pytest.raises(PartyError, match="cannot be read: No such file"):
        make_row_party(worker(tmp_path), Hints(), data=tmp_path / "none.csv", agreed=agreed)
    data.write_text(data.read_text() + "k1,5,1\n")
    with pytest.raises(PartyError, match="repeats an id in 1 of 41 rows"):
        make_row_party(worker(tmp_path), Hints(id="id", label="y"), data=data)
    assert not (tmp_path / "made").exists()
