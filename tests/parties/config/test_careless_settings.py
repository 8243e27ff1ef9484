"""Run files and schemas that say a thing twice, protect nothing, or name no place: refused by key, value and line."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from opboost.schema import TableSchema
from parties.commands.demo import release_settings
from parties.config.chain import OwnerRun
from parties.config.horizontal import CoordinatorRun, WorkerRun
from parties.config.reading import read_run, read_schema
from parties.config.section import Section
from parties.config.vertical import ActiveRun, PassiveRun
from parties.doctor.check_result import Status
from parties.doctor.vertical import examine
from parties.errors import ConfigError
from parties.storage.documents import read_yaml
from parties.vertical.preparation import prepare_passive

COMMON = {"run_id": "spring", "schema": "schema.yaml"}
TRAINING = {"epsilon": 2.0, "delta": 1e-6, "workers": 3, "threshold": 2, "honest": 2, "recipe": "sgbdt"}
CHAIN = {"epsilon": 2.0, "order": ["north", "south"]}
RUNS: dict[str, dict[str, Any]] = {
    "active": {
        **COMMON,
        "role": "active",
        "party": "bank",
        "data": "d.csv",
        "listen": "tcp://127.0.0.1:5555",
        "passive": [{"name": "shop"}],
    },
    "passive": {
        **COMMON,
        "role": "passive",
        "party": "shop",
        "data": "d.csv",
        "connect": "tcp://127.0.0.1:5555",
        "active": {"name": "bank"},
    },
    "coordinator": {
        **COMMON,
        "role": "coordinator",
        "party": "hub",
        "listen": "tcp://127.0.0.1:5555",
        "training": TRAINING,
        "workers": [{"name": "w0"}, {"name": "w1"}, {"name": "w2"}],
    },
    "worker": {
        **COMMON,
        "role": "worker",
        "party": "w0",
        "data": "d.csv",
        "connect": "tcp://127.0.0.1:5555",
        "coordinator": {"name": "hub"},
        "training": TRAINING,
    },
    "owner": {
        **COMMON,
        "role": "owner",
        "party": "north",
        "data": "d.csv",
        "training": CHAIN,
        "owners": [{"name": "south", "connect": "tcp://127.0.0.1:5555"}],
    },
}
READ: dict[str, Callable[[Path], Any]] = {
    "active": lambda path: read_run(path, ActiveRun),
    "passive": lambda path: read_run(path, PassiveRun),
    "coordinator": lambda path: read_run(path, CoordinatorRun),
    "worker": lambda path: read_run(path, WorkerRun),
    "owner": lambda path: read_run(path, OwnerRun),
}
ROLES = list(RUNS)


def changed(document: Any, place: str, value: object) -> Any:
    """The document with another value at a dotted place; a number in it is a position in a list."""
    key, _, rest = place.partition(".")
    if isinstance(document, list):
        found = list(document)
        found[int(key)] = changed(found[int(key)], rest, value) if rest else value
        return found
    return {**document, key: changed(document.get(key, {}), rest, value) if rest else value}


def read(folder: Path, role: str, text: object) -> Any:
    path = folder / "run.yaml"
    path.write_text(text if isinstance(text, str) else yaml.safe_dump(text, sort_keys=False))
    return READ[role](path)


def refusal(folder: Path, role: str, text: object) -> str:
    """The sentence that the run file is refused with; the doctor has the same one."""
    with pytest.raises(ConfigError) as error:
        read(folder, role, text)
    (found,) = examine(folder / "run.yaml", wait_s=0.1)
    assert (found.check, found.status, found.sentence) == ("run file", Status.PROBLEM, str(error.value))
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("role", ROLES)
def test_the_run_files_are_sound_as_they_are(tmp_path: Path, role: str) -> None:
    assert read(tmp_path, role, RUNS[role]).role == role


def twice(document: dict[str, Any], line: str) -> str:
    """The document as text, with a line of it repeated under the same parent."""
    lines = yaml.safe_dump(document, sort_keys=False).splitlines()
    place = next(i for i, one in enumerate(lines) if one.strip() == line)
    return "\n".join([*lines[: place + 1], lines[place], *lines[place + 1 :]])


@pytest.mark.parametrize("role", ROLES)
def test_a_key_that_stands_twice_is_refused_with_its_lines(tmp_path: Path, role: str) -> None:
    text = twice(RUNS[role], "run_id: spring")
    line = text.splitlines().index("run_id: spring") + 1
    assert refusal(tmp_path, role, text).endswith(
        f"run.yaml: the key 'run_id' stands in line {line} and again in line {line + 1}; give it once"
    )


def test_a_second_budget_does_not_win(tmp_path: Path) -> None:
    """As it does with PyYAML alone."""
    assert yaml.safe_load("epsilon: 0.1\nepsilon: 0.5\n") == {"epsilon": 0.5}
    text = yaml.safe_dump(RUNS["passive"]) + "desensitize:\n  epsilon: 0.1\n  law: clamped\n  epsilon: 0.5\n"
    n_lines = len(text.splitlines())
    assert f"the key 'epsilon' stands in line {n_lines - 2} and again in line {n_lines}" in refusal(
        tmp_path, "passive", text
    )


@pytest.mark.parametrize("text", ["x" * 201, "a/" + "é" * 101 + "/b", "a/" * 1001])
def test_texts_that_no_file_system_takes_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(f"x: 1\ndata: {text}\n")
    with pytest.raises(
        ConfigError, match=r"in line 2 is too long: at most 200 bytes from one slash to the next"
    ) as error:
        read_yaml(tmp_path / "a.yaml")
    assert len(str(error.value)) < 500
    allowed = "/".join(["x" * 200] * 9)
    (tmp_path / "a.yaml").write_text(f"data: {allowed}\n")
    assert read_yaml(tmp_path / "a.yaml") == {"data": allowed}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &a {x: 1}\nb: {<<: *a, <<: *a}", "the key '<<' stands in line 3 and again in line 3"),
        ("b:\n  <<: {x: 1}\n  y: 1\n  <<: {y: 2}", "the key '<<' stands in line 3 and again in line 5"),
        (f"a: 0x{1 << 8192:x}", "in line 2 is too long"),
        (f"{1 << 800}: 1", "in line 2 is too long"),
        ('a: "\\uD800"', "in line 2 holds a line break or a control character"),
    ],
    ids=["merged twice", "merged twice in lines", "vast", "vast key", "surrogate"],
)
def test_what_is_merged_twice_vast_or_half_a_character_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.yaml").write_text(f"x: 1\n{text}\n")
    with pytest.raises(ConfigError) as error:
        read_yaml(tmp_path / "a.yaml")
    assert words in str(error.value)
    assert len(str(error.value)) < 500
    (tmp_path / "a.yaml").write_text(f"a: 0x{(1 << 792) - 1:x}\nb: 1\n")
    assert read_yaml(tmp_path / "a.yaml") == {"a": (1 << 792) - 1, "b": 1}


def _sections(kind: type[Section] = Section) -> list[type[Section]]:
    return [kind, *(one for sub in kind.__subclasses__() for one in _sections(sub))]


@pytest.mark.parametrize("kind", _sections()[1:], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: [value]], ids=["plain", "in a list"])
def test_yes_is_no_number_anywhere_in_a_run_file(kind: type[Section], wrap: Callable[[bool], Any]) -> None:
    """For every key of every section: a truth value is taken where one is due, or refused."""
    document = {field.alias or name: wrap(True) for name, field in kind.model_fields.items()}
    with pytest.raises(ValidationError) as error:
        kind.model_validate({**document, "nonsense": 1})
    refused = {problem["loc"][0] for problem in error.value.errors()}
    taken = {name for name in document if name not in refused}
    # A truth value is short for one of the section's.
    assert taken <= {name for name in document if "bool" in str(_field(kind, name).annotation)} | {"allow_routed"}


def _field(kind: type[Section], key: str) -> Any:
    return next(field for name, field in kind.model_fields.items() if (field.alias or name) == key)


@pytest.mark.parametrize(
    ("role", "place"), [("passive", "ledger.budget.cell_bits"), ("passive", "seed"), ("worker", "seed")]
)
def test_a_truth_value_is_refused_by_name(tmp_path: Path, role: str, place: str) -> None:
    assert f"{place}: must be a number; found True" in refusal(tmp_path, role, changed(RUNS[role], place, True))


@pytest.mark.parametrize(
    ("role", "place"),
    [("coordinator", "workers.0.agreed"), ("worker", "coordinator.agreed"), ("owner", "owners.0.agreed")],
)
def test_what_is_agreed_with_a_horizontal_peer_stands_under_training_alone(
    tmp_path: Path, role: str, place: str
) -> None:
    assert f"{place}: " in refusal(tmp_path, role, changed(RUNS[role], place, {"epsilon": 0.1}))


@pytest.mark.parametrize("key", ["lower", "step", "kind", "missing", "fill", "categories"])
def test_a_value_of_a_schema_that_is_refused_is_shown_in_short(tmp_path: Path, key: str) -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}]\n"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    settings = {
        "lower": "0",
        "upper": "1",
        "missing": "impute",
        "fill": "0",
        key: "[*h]" if key == "categories" else "*h",
    }
    age = ", ".join(f"{name}: {value}" for name, value in settings.items())
    (tmp_path / "schema.yaml").write_text(f"ignore:\n{indented(bomb)}columns:\n  age: {{{age}}}\n")
    with pytest.raises(ConfigError) as error:
        read_schema(tmp_path / "schema.yaml")
    assert len(str(error.value)) < 2000


def indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


def test_a_value_that_is_refused_is_shown_in_short(tmp_path: Path) -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}]\n"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(ConfigError) as error:
        read(tmp_path, "active", bomb + "data: *i\n" + yaml.safe_dump({**RUNS["active"], "listen": "x" * 10_000}))
    assert len(str(error.value)) < 5000


@pytest.mark.skipif(sys.platform == "win32", reason="no named pipes in the file system")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (os.mkfifo, "is a named pipe"),
        (os.mkdir, "is a folder"),
        (lambda path: path.symlink_to("/dev/zero"), "is a device"),
    ],
)
def test_a_run_file_or_schema_that_is_no_file_is_named_and_does_not_hang(
    tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    make(tmp_path / "odd.yaml")
    for call in (read_yaml, read_schema, lambda path: read_run(path, ActiveRun)):
        with pytest.raises(ConfigError, match=rf"odd\.yaml {words}"):
            call(tmp_path / "odd.yaml")


ADDRESSES = {
    "active": "listen",
    "passive": "connect",
    "coordinator": "listen",
    "worker": "connect",
    "owner": "owners.0.connect",
}
NO_ADDRESSES = [
    "tcp://127.0.0.1:65536",
    "tcp://127.0.0.1:70000",
    "tcp://127.0.0.1:0",
    "tcp://127.0.0.1:*",
    "tcp://127.0.0.1",
    "127.0.0.1:5555",
    "bank.example:5555",
    "tcp://:5555",
    "tcp:/127.0.0.1:5555",
    "TCP://127.0.0.1:5555",
    "udp://h:1",
    "http://bank.example:5555",
    "inproc://x",
    "pgm://h:1",
    "ws://h:1",
    "tcp://h:1;g:2",
    "tcp://a b:1",
    "tcp://h:1/x",
    "ipc://",
    "ipc:///run/q3",
    "tcp://::1:5555",
    "tcp://h:-1",
    "tcp://h:5 555",
    "tcp://h:٣",
    "",
]


# Every address at the two that have a type of their own, and one at all.
REFUSED = [("active", one) for one in NO_ADDRESSES] + [("passive", one) for one in NO_ADDRESSES]
REFUSED += [(role, "tcp://127.0.0.1:70000") for role in ("coordinator", "worker", "owner")]


@pytest.mark.parametrize(("role", "address"), REFUSED)
def test_an_address_without_a_place_is_refused_by_name(tmp_path: Path, role: str, address: str) -> None:
    place = ADDRESSES[role]
    sentence = refusal(tmp_path, role, changed(RUNS[role], place, address))
    assert f"{place}: must be tcp://host:port, with a port from 1 to 65535" in sentence
    assert len(sentence) < 500


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:1", "tcp://bank.example:65535", "tcp://[2001:db8::1]:5555", "tcp://my_host:5"]
)
@pytest.mark.parametrize("role", ROLES)
def test_addresses_with_a_place_are_taken(tmp_path: Path, role: str, address: str) -> None:
    assert read(tmp_path, role, changed(RUNS[role], ADDRESSES[role], address)).role == role


def test_only_a_listener_may_mean_every_interface(tmp_path: Path) -> None:
    assert read(tmp_path, "active", {**RUNS["active"], "listen": "tcp://*:5555"}).listen == "tcp://*:5555"
    assert read(tmp_path, "owner", {**RUNS["owner"], "listen": "tcp://*:5555"}).listen == "tcp://*:5555"
    assert "connect: must be" in refusal(tmp_path, "passive", {**RUNS["passive"], "connect": "tcp://*:5555"})


def test_a_scheduler_has_an_address_too(tmp_path: Path) -> None:
    run = {**RUNS["passive"], "engine": "dask", "align": {"method": "prealigned"}}
    assert read(tmp_path, "passive", {**run, "dask": {"scheduler": "tls://h:8786"}}).dask.scheduler == "tls://h:8786"
    words = refusal(tmp_path, "passive", {**run, "dask": {"scheduler": "h:878600"}})
    assert "dask.scheduler: must be tcp://host:port or tls://host:port" in words


def with_budget(place: str, value: object, **others: object) -> dict[str, Any]:
    return {**changed(RUNS["passive"], place, value), **others}


BUDGETS = {
    "passive": [
        "desensitize.epsilon",
        "desensitize.category_epsilon",
        "desensitize.columns.age.epsilon",
        "desensitize.columns.age.category_epsilon",
        "ledger.budget.epsilon",
        "ledger.budget.category_epsilon",
        "ledger.budget.columns.age.epsilon",
        "ledger.budget.columns.age.category_epsilon",
    ],
    "active": ["passive.0.agreed.epsilon"],
    "coordinator": ["training.epsilon"],
    "worker": ["training.epsilon", "ledger.epsilon"],
    "owner": ["training.epsilon", "ledger.epsilon"],
}
PLACES = [(role, place) for role, places in BUDGETS.items() for place in places]


@pytest.mark.parametrize("value", [math.inf, 1e300, 37, 36.000001])
@pytest.mark.parametrize(("role", "place"), PLACES)
def test_a_budget_that_protects_nothing_is_refused_unless_that_is_said(
    tmp_path: Path, role: str, place: str, value: float
) -> None:
    document = changed(RUNS[role], place, value)
    sentence = refusal(tmp_path, role, document)
    assert f"{place} is {value:.9g}" in sentence
    assert "at most 36 is allowed" in sentence
    assert "no_privacy: true" in sentence
    assert read(tmp_path, role, {**document, "no_privacy": True}).no_privacy
    assert f"{place} is {value:.9g}" in refusal(tmp_path, role, {**document, "no_privacy": False})


@pytest.mark.parametrize("value", [36, 0.1])
@pytest.mark.parametrize(("role", "place"), PLACES)
def test_a_budget_that_protects_is_taken(tmp_path: Path, role: str, place: str, value: float) -> None:
    assert not read(tmp_path, role, changed(RUNS[role], place, value)).no_privacy


@pytest.mark.parametrize("value", [math.nan, True, False, "much", [1], None if False else {}])
@pytest.mark.parametrize(("role", "place"), PLACES)
def test_a_budget_is_a_number_whatever_is_said(tmp_path: Path, role: str, place: str, value: object) -> None:
    """YAML reads ``yes`` and ``on`` as true, which would count as a budget of 1."""
    assert place in refusal(tmp_path, role, {**changed(RUNS[role], place, value), "no_privacy": True})


@pytest.mark.parametrize("role", ["coordinator", "worker"])
@pytest.mark.parametrize("delta", [0.02, 0.999999])
def test_a_delta_that_protects_nothing_is_refused_too(tmp_path: Path, role: str, delta: float) -> None:
    document = changed(RUNS[role], "training.delta", delta)
    assert f"training.delta is {delta:g}, which protects nothing: at most 0.01 is allowed" in refusal(
        tmp_path, role, document
    )
    assert read(tmp_path, role, {**document, "no_privacy": True}).no_privacy


@pytest.mark.parametrize("role", ["coordinator", "worker", "owner"])
@pytest.mark.parametrize(
    "bounds", [[-math.inf, math.inf], [math.nan, 1], [5, 1], [1, 1], [-1e308, 1e308], [True, 3], [0]]
)
def test_label_bounds_are_two_numbers_in_their_order(tmp_path: Path, role: str, bounds: list[float]) -> None:
    training = {**RUNS[role]["training"], "objective": "reg:squarederror"}
    sentence = refusal(tmp_path, role, {**RUNS[role], "training": {**training, "label_bounds": bounds}})
    assert "training.label_bounds" in sentence
    assert read(tmp_path, role, {**RUNS[role], "training": {**training, "label_bounds": [-2, 5.5]}}).role == role


SCHEMA = {
    "id": "id",
    "columns": {"age": {"lower": 0, "upper": 100}, "town": {"kind": "unordered", "categories": ["a", "b"]}},
}


def prepared(folder: Path, desensitize: dict[str, Any], **others: object) -> Any:
    (folder / "schema.yaml").write_text(yaml.safe_dump(SCHEMA))
    (folder / "d.csv").write_text("id,age,town\na,1,a\nb,2,b\n")
    run = read(folder, "passive", {**RUNS["passive"], "desensitize": desensitize, **others})
    return prepare_passive(run, folder / "run.yaml")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"law": "bounded_laplace", "epsilon": 20}, "law bounded_laplace"),
        ({"mechanism": "adj", "theta": 100, "epsilon": 1}, "law clamped, theta 100, alpha 1"),
        ({"mechanism": "adj", "theta": 2, "alpha": 1e-6, "epsilon": 0.2}, "theta 2, alpha 1e-06"),
        ({"mechanism": "adj", "theta": 500, "alpha": 1e6, "epsilon": 0.1}, "theta 500, alpha 1e+06"),
        ({"epsilon": 3.7}, "comes to 37 per 1 original unit, 10 points of the mapped domain (epsilon 3.7, law"),
    ],
)
@pytest.mark.parametrize("is_own", [False, True])
def test_what_several_keys_come_to_together_is_bounded(
    tmp_path: Path, is_own: bool, settings: dict[str, object], words: str
) -> None:
    desensitize = {"columns": {"age": settings}} if is_own else settings
    with pytest.raises(ConfigError) as refused:
        prepared(tmp_path, desensitize)
    (sentence,) = (one for one in str(refused.value).split(" | ") if words in one)
    assert "desensitize.columns.age comes to " in sentence
    assert "at most 36 is allowed" in sentence
    assert prepared(tmp_path, desensitize, no_privacy=True).mechanisms


@pytest.mark.parametrize("place", ["desensitize", "desensitize.columns.age"])
def test_a_budget_per_point_is_bounded_without_the_schema(tmp_path: Path, place: str) -> None:
    document = changed(RUNS["passive"], place, {"epsilon": 40})
    assert f"{place}.epsilon is 40, which protects nothing: at most 36" in refusal(tmp_path, "passive", document)
    assert read(tmp_path, "passive", {**document, "no_privacy": True}).no_privacy


@pytest.mark.parametrize("own", [{"cost": 1e300, "per": 10}, {"cost": 40, "per": 1e-9}, {"cost": math.inf, "per": 5}])
def test_a_cost_in_original_units_is_bounded_by_what_it_comes_to(tmp_path: Path, own: dict[str, float]) -> None:
    desensitize = {"columns": {"age": own}}
    with pytest.raises(
        ConfigError, match=r"run\.yaml: desensitize\.columns\.age.*, which protects nothing: at most .*no_privacy: true"
    ):
        prepared(tmp_path, desensitize)
    assert prepared(tmp_path, desensitize, no_privacy=True).mechanisms
    assert prepared(tmp_path, {"columns": {"age": {"cost": 40, "per": 10}}}).mechanisms


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize(
    ("role", "place"), [("passive", "ledger.budget.per_record"), ("active", "passive.0.agreed.total_epsilon")]
)
def test_a_sum_over_columns_is_finite(tmp_path: Path, role: str, place: str, value: float) -> None:
    assert place in refusal(tmp_path, role, changed(RUNS[role], place, value))
    assert read(tmp_path, role, changed(RUNS[role], place, 400)).role == role


@pytest.mark.parametrize("mechanism", ["adj", "local"])
def test_cells_without_a_width_are_refused(tmp_path: Path, mechanism: str) -> None:
    words = f"mechanism {mechanism} needs `theta`, the width of its cells: a whole number from 1 to domain_size"
    for place in ("desensitize.mechanism", "desensitize.columns.age.mechanism"):
        assert f"{place.removesuffix('.mechanism')}: {words}" in refusal(
            tmp_path, "passive", changed(RUNS["passive"], place, mechanism)
        )
    for found in ({"mechanism": mechanism, "theta": 20}, {"theta": 20, "columns": {"age": {"mechanism": mechanism}}}):
        assert read(tmp_path, "passive", {**RUNS["passive"], "desensitize": found}).desensitize.theta == 20


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("domain_size", 10**12, "less than or equal to 1000000; found 1000000000000"),
        ("domain_size", 1_000_001, "less than or equal to 1000000; found 1000001"),
        ("domain_size", 1, "greater than or equal to 2; found 1"),
        ("domain_size", True, "found True"),
        ("domain_size", "10^12", "found '10^12'"),
        ("theta", 0, "greater than or equal to 1; found 0"),
        ("theta", True, "found True"),
        ("alpha", 0, "greater than or equal to 0.000001; found 0"),
        ("alpha", 1e300, "less than or equal to 1000000; found 1e+300"),
        ("alpha", math.inf, "less than or equal to 1000000; found inf"),
    ],
)
@pytest.mark.parametrize("place", ["desensitize", "desensitize.columns.age"])
def test_a_size_that_no_machine_holds_is_refused_by_name(
    tmp_path: Path, place: str, key: str, value: object, words: str
) -> None:
    sentence = refusal(tmp_path, "passive", changed(RUNS["passive"], f"{place}.{key}", value))
    assert f"{place}.{key}: " in sentence
    assert words in sentence


def test_cells_wider_than_the_domain_are_refused_when_the_file_is_read(tmp_path: Path) -> None:
    document = changed(RUNS["passive"], "desensitize", {"mechanism": "adj", "theta": 200, "domain_size": 100})
    assert "desensitize: theta must be an integer between 1 and the 100 points; got 200" in refusal(
        tmp_path, "passive", document
    )


def schema_refusal(folder: Path, text: object) -> str:
    path = folder / "schema.yaml"
    path.write_text(text if isinstance(text, str) else yaml.safe_dump(text, sort_keys=False))
    with pytest.raises(ConfigError) as error:
        read_schema(path)
    assert str(error.value).startswith(f"{path}: ")
    return str(error.value)


AGE = {"age": {"lower": 0, "upper": 9}}


def test_a_column_that_is_described_twice_is_refused_with_its_lines(tmp_path: Path) -> None:
    text = "id: id\ncolumns:\n  age: {lower: 0, upper: 9}\n  town: {lower: 0, upper: 1}\n  age: {lower: 0, upper: 99}\n"
    assert "the key 'age' stands in line 3 and again in line 5" in schema_refusal(tmp_path, text)
    text = "id: id\ncolumns:\n  1: {lower: 0, upper: 9}\n  '1': {lower: 0, upper: 99}\n"
    assert "columns named more than once in the schema: 1" in schema_refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"columns": AGE, "ignore": ["age"]}, "age stand under `columns` and under `ignore`"),
        ({"id": "key", "columns": AGE, "ignore": ["key"]}, "key stand under `id` and under `ignore`"),
        ({"label": "y", "columns": AGE, "ignore": ["y"]}, "y stand under `label` and under `ignore`"),
        ({"columns": {True: {"lower": 0, "upper": 1}}}, "a column's name reads as True; put words like yes"),
        ({"columns": {None: {"lower": 0, "upper": 1}}}, "a column's name reads as None"),
        ({"columns": {1.5: {"lower": 0, "upper": 1}}}, "a column's name reads as 1.5"),
        ({"columns": AGE, "label": True}, "`label` reads as True"),
        ({"columns": AGE, "label": {"y": 1}}, "`label` reads as {'y': 1}"),
        ({"columns": AGE, "id": None}, "`id` reads as None"),
        ({"columns": AGE, "id": {"a": 1}}, "`id` reads as {'a': 1}"),
        ({"columns": AGE, "id": ["a", ["b"]]}, "`id` reads as ['b']"),
        ({"columns": AGE, "ignore": [None]}, "`ignore` reads as None"),
        ({"columns": {"age": {1: 2, "lower": 0, "x": 1}}}, "unknown keys 1, x"),
        ({"columns": {"age": {"lower": -1.7e308, "upper": 1.7e308}}}, "bounds must be finite"),
        ({"columns": {"age": {"lower": 0, "upper": 1, "missing": "impute", "fill": True}}}, "fill must be a number"),
        ({"columns": {"t": {"kind": "ordered", "categories": ["a", None]}}}, "a category reads as None"),
        ({"columns": {"t": {"kind": "ordered", "categories": ["a", ["b"]]}}}, "a category reads as ['b']"),
        ({"columns": {"age": {"kind": ["numeric"], "lower": 0, "upper": 1}}}, "kind is ['numeric']"),
    ],
)
def test_a_schema_that_says_two_things_or_nothing_is_refused_by_name(
    tmp_path: Path, document: dict[str, Any], words: str
) -> None:
    assert words in schema_refusal(tmp_path, document)


def test_numbers_may_name_columns(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text("id: 0\nlabel: 3\nignore: [4]\ncolumns: {1: {lower: 0, upper: 1}}\n")
    schema, ignore = read_schema(tmp_path / "schema.yaml")
    assert isinstance(schema, TableSchema)
    assert (schema.id, schema.label, schema.names, ignore) == ("0", "3", ("1",), ("4",))


@pytest.mark.parametrize("mechanism", ["global", "local", "adj"])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 40.0, math.inf])
def test_the_demo_says_itself_that_a_budget_protects_nothing(tmp_path: Path, mechanism: str, epsilon: float) -> None:
    release = release_settings(epsilon, mechanism)
    run = read(tmp_path, "passive", {**RUNS["passive"], **release})
    assert (run.desensitize.mechanism, run.desensitize.epsilon) == (mechanism, epsilon)
    assert run.no_privacy == (epsilon > 36)


def test_the_doctor_warns_of_a_run_file_that_allows_such_budgets(tmp_path: Path) -> None:
    for role in ROLES:
        read(tmp_path, role, {**RUNS[role], "no_privacy": True})
        (warning,) = [found for found in examine(tmp_path / "run.yaml", wait_s=0.1) if found.check == "no_privacy"]
        assert warning.status is Status.WARNING
