"""The demo, on a copy of the sample whose numbers are unmistakable, so that a copy of one is found byte by byte."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost import rng
from opboost.arrays import Values
from opboost.preprocess import encode
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Logistic
from parties.commands import demo, demo_folder
from parties.config.desensitize_section import DesensitizeSection
from parties.config.reading import read_schema
from parties.jobs.train_vertical import Terminal
from parties.tables.party_table import PartyTable, own_columns, read_table
from parties.vertical.party_a import train_jointly
from parties.vertical.party_b import train
from parties.vertical.prediction_client import predict_jointly
from parties.vertical.release_job import PassiveJob
from parties.vertical.simulation import drawn_from, serve
from parties.vertical.training_job import ActiveJob
from protocols.transport.channel import Channel
from tests.support.modes import exposed, open_umask
from tests.support.processes import forked
from tests.support.ranked_columns import dense_ranks

MARKED = {"bank": "income", "retailer": "spend"}
RETAILER_WORDS = [b"payment_delay", b"discount_share", b"essentials_share", b"loyalty", b"platinum", b"abroad"]
BANK_WORDS = [b"default", b"tenure", b"employment", b"self_employed", b'"gains"', b'"covers"']


def mark(sample: Path, to: Path) -> None:
    """Copy the sample, giving every number of one column per party seven decimals of its own."""
    to.mkdir()
    for party, column in MARKED.items():
        shutil.copyfile(sample / f"{party}.schema.yaml", to / f"{party}.schema.yaml")
        frame = pd.read_csv(sample / f"{party}.csv.gz")
        decimals = (np.arange(len(frame)) * 7919 % 999_983) / 999_983
        frame[column] = (frame[column] * 0.99 + decimals).round(7)
        frame.to_csv(to / f"{party}.csv.gz", index=False)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "out"


@pytest.fixture(scope="module")
def summary(out: Path) -> dict[str, Any]:
    sample = out.parent / "sample"
    mark(demo_folder.sample_folder(), sample)
    with open_umask(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "sample_folder", lambda: sample)
        patch.setattr(demo_folder.subprocess, "Popen", forked)
        return demo.run_demo(out, epsilon=None, mechanism="global", terminal=Terminal())


@pytest.mark.usefixtures("summary")
def test_what_the_demo_writes_is_for_its_owner_alone(out: Path) -> None:
    assert exposed(out) == set()


def table_of(out: Path, party: str, part: str) -> PartyTable:
    """A party's training or test records, as its process aligns them."""
    tables = {}
    for name in MARKED:
        schema, ignore = read_schema(out / name / "schema.yaml")
        tables[name] = read_table(out / name / "data.csv.gz", schema, ignore=ignore, needs_label=name == "bank")
    return demo.common_records(tables, out / "bank" / f"{part}_ids.txt")[party]


def values_as_bytes(values: Values) -> list[bytes]:
    """Every value as text and as an eight-byte number, and four neighbours as four-byte numbers."""
    single = [form for value in values.tolist() for form in (repr(value).encode(), *doubles(value))]
    return single + [
        values[i : i + 4].astype(kind).tobytes() for i in range(len(values) - 3) for kind in ("<f4", ">f4")
    ]


def doubles(value: float) -> tuple[bytes, bytes]:
    return np.array(value, "<f8").tobytes(), np.array(value, ">f8").tobytes()


def runs_as_bytes(integers: np.ndarray) -> list[bytes]:
    """64 neighbouring integers at three places, in every type, packed into bits and as text."""
    forms = []
    for start in (0, 800, 4000):
        run = integers[start : start + 64]
        forms += [run.astype(kind).tobytes() for kind in ("u1", "<u2", "<u4", "<i8", "<f4", "<f8", ">i8", ">f8")]
        forms += [between.join(map(str, run.tolist())).encode() for between in ("", ",", ", ", "\n")]
        if run.max() <= 1:
            forms += [np.packbits(run.astype(bool), bitorder=order).tobytes() for order in ("big", "little")]
    return forms


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder, the compressed ones in clear too."""
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return found | {f"{name} in clear": gzip.decompress(data) for name, data in found.items() if name.endswith(".gz")}


def holders(haystacks: dict[str, bytes], needles: Iterable[bytes]) -> set[str]:
    """Names of those that hold one of the needles."""
    return {name for needle in needles for name, data in haystacks.items() if holds(data, needle)}


def holds(data: bytes, needle: bytes) -> bool:
    """Whether a needle is there; of a number as text, as a whole: a model's many digits hold any nine by chance."""
    is_number = re.fullmatch(rb"\d+\.\d+", needle) is not None
    whole = rb"(?<!\d)" + re.escape(needle) + rb"(?!\d)"
    return needle in data and (not is_number or re.search(whole, data) is not None)


def marked_values(out: Path, party: str) -> Values:
    column = table_of(out, party, "train").features[MARKED[party]].dropna()
    return column.to_numpy(np.float64)[:80]


def exact_codes(out: Path, part: str = "train", **budget: float) -> np.ndarray:
    """The retailer's marked column in the mapped domain, without noise, in the order of the ids."""
    schema, _ = read_schema(out / "retailer" / "schema.yaml")
    (mechanism,) = (m for m in DesensitizeSection(**budget).mechanisms(schema) if m.schema.name == MARKED["retailer"])
    column = table_of(out, "retailer", part).features[MARKED["retailer"]]
    return encode(column, mechanism.schema, domain=mechanism.settings.domain).codes


def retailer_secrets(out: Path) -> list[bytes]:
    """Values, and codes and ranks on the points of the demo and of a budget per point."""
    found = values_as_bytes(marked_values(out, "retailer"))
    for codes in (exact_codes(out), exact_codes(out, epsilon=1.0)):
        found += runs_as_bytes(codes) + runs_as_bytes(dense_ranks(codes)[0])
    return found


def label_secrets(out: Path) -> list[bytes]:
    labels = table_of(out, "bank", "train").labels
    assert labels is not None
    gradients = labels.mean() - labels
    first = [gradients[:64].astype(kind).tobytes() for kind in ("<f4", "<f8")]
    return runs_as_bytes(labels.astype(np.int64)) + runs_as_bytes(1 - labels.astype(np.int64)) + first


def test_the_summary_says_what_was_done_and_what_it_cost(summary: dict[str, Any], out: Path) -> None:
    assert json.loads((out / "summary.json").read_text()) == summary
    assert (summary["metric"], summary["rows_test"]) == ("auc", 3_600)
    # Every one of 14,400 records is held out or trained on; by chance a fifth of them, within six standard deviations.
    held_out = json.loads((out / "bank/runs/demo/held_out.json").read_text())
    assert summary["rows"] + held_out["n_held_out"] == 14_400
    assert summary["rows"] == pytest.approx(11_520, abs=6 * 48)
    assert "synthetic" in summary["dataset"]
    assert 0 < summary["seconds"] <= summary["seconds_in_all"]
    metas = [json.loads((out / party / "runs/demo/meta.json").read_text()) for party in MARKED]
    assert summary["bytes_sent"] == sum(meta["sent_bytes"] for meta in metas) > summary["rows"] * 10
    guarantee = summary["guarantee"]
    assert (guarantee["notion"], guarantee["certified"]) == ("dLDP", True)
    parts = [column["epsilon"] + column["missing_epsilon"] for column in guarantee["columns"]]
    assert guarantee["epsilon"] == pytest.approx(sum(parts), rel=1e-12)


def test_two_parties_predict_clearly_better_than_the_bank_alone(summary: dict[str, Any]) -> None:
    # On 3,600 test records an AUC has a standard error below 0.01; the gain is about 0.16 on the sample.
    assert summary["score_active_only"] > 0.6
    assert summary["score_joint"] > summary["score_active_only"] + 0.1
    assert summary["score_joint"] > 0.83
    assert summary["score_joint_desensitized"] > summary["score_active_only"] + 0.05
    assert summary["score_central"] > summary["score_joint"] - 0.02


@pytest.mark.usefixtures("summary")
def test_both_run_folders_are_complete(out: Path) -> None:
    common = {
        "config.yaml",
        "guarantee.json",
        "log.jsonl",
        "log.txt",
        "meta.json",
        "model.json",
        "order.share",
        "schema.yaml",
    }
    common |= {"order.copy", "report.html", "report.json", "progress.json", "trainings.json"}
    predictions = {"held_out.json", "fit.json", "metrics.json", "partners.json", "noise.json"}
    predictions |= {"predictions.csv", "predictions_desensitized.csv", "release.json", "received"}
    found = {party: {path.name for path in (out / party / "runs/demo").iterdir()} for party in MARKED}
    # What is said while predictions are asked for and answered is logged as a service logs it.
    common |= {"messages.jsonl"}
    assert found == {"bank": common | predictions, "retailer": common}


@pytest.mark.usefixtures("summary")
def test_nothing_of_the_retailer_lies_in_the_banks_folder(out: Path) -> None:
    files = contents(out / "bank")
    assert holders(files, retailer_secrets(out)) == set()
    assert holders(files, RETAILER_WORDS) == set()


@pytest.mark.usefixtures("summary")
def test_no_label_and_no_number_of_the_bank_lies_in_the_retailers_folder(out: Path) -> None:
    files = {name: held.replace(b"default-src", b"") for name, held in contents(out / "retailer").items()}
    assert holders(files, [*label_secrets(out), *values_as_bytes(marked_values(out, "bank"))]) == set()
    assert holders(files, BANK_WORDS) == set()


@pytest.mark.usefixtures("summary")
@pytest.mark.parametrize("party", MARKED)
def test_a_secret_key_lies_in_its_own_file_alone(out: Path, party: str) -> None:
    name = f"{party}/keys/{party}.secret"
    digits = (out / name).read_text().split()[1]
    assert holders(contents(out), [digits.encode(), bytes.fromhex(digits), digits[:32].encode()]) == {name}


@pytest.mark.usefixtures("summary")
def test_the_search_finds_what_was_planted_in_any_form(out: Path) -> None:
    own = {name for name in contents(out / "retailer") if name.startswith("data.csv.gz in")}
    assert holders(contents(out / "retailer"), values_as_bytes(marked_values(out, "retailer"))) == own
    for secrets in (retailer_secrets(out), label_secrets(out)):
        planted = {str(i): b"padding" + secret + b"padding" for i, secret in enumerate(secrets)}
        assert holders(planted, secrets) == set(planted)


def exchange(out: Path, carrier: Callable[..., dict[str, Any]], epsilon: float) -> dict[str, bytes]:
    """All frames that each party received in a training run and in a prediction of both kinds."""
    received: dict[str, list[bytes]] = {"bank": [], "retailer": []}
    tables = {party: table_of(out, party, "train") for party in MARKED}
    schemas = {party: read_schema(out / party / "schema.yaml")[0] for party in MARKED}
    columns = own_columns(tables["bank"], schemas["bank"])
    own = {column.name: column.values for column in columns}

    def tapped(channel: Channel, receiver: str) -> Channel:
        channel.traffic.on_send = lambda kind, frames: received[receiver].extend(map(bytes, frames))
        return channel

    def lead(channels: Sequence[Channel]) -> Any:
        return train_jointly(
            ActiveJob(
                party="bank",
                run_id="r",
                id_digest="",
                own=columns,
                labels=tables["bank"].labels,
                weights=np.ones(tables["bank"].n_rows),
                loss=Logistic(),
                parameters=BoostingParameters(n_estimators=5, max_depth=3),
            ),
            [tapped(channel, "retailer") for channel in channels],
        )

    bits = rng.secure()
    passive = PassiveJob(
        party="retailer",
        run_id="r",
        id_digest="",
        features=tables["retailer"].features,
        rng=bits,
        release=drawn_from(bits),
        mechanisms=DesensitizeSection(epsilon=epsilon).mechanisms(schemas["retailer"]),
    )
    trained = carrier(lead, {"retailer": lambda channel: train(passive, tapped(channel, "bank"))})
    for desensitized in (True, False):
        found = carrier(
            lambda channels, desensitized=desensitized: predict_jointly(
                trained["bank"],
                tables["bank"].ids,
                own,
                [tapped(channel, "retailer") for channel in channels],
                party="bank",
                run_id="r",
                desensitized=desensitized,
            ),
            {
                "retailer": lambda channel: serve(
                    trained["retailer"].router,
                    tables["retailer"].ids,
                    tables["retailer"].features,
                    tapped(channel, "bank"),
                    party="retailer",
                    run_id="r",
                    rng=rng.secure(),
                    may_route=True,
                )
            },
        )
        assert found["retailer"] == tables["bank"].n_rows
    return {f"{party} {i}": frame for party, frames in received.items() for i, frame in enumerate(frames)}


@pytest.mark.usefixtures("summary")
def test_no_frame_holds_a_raw_number_an_exact_rank_column_or_labels(out: Path, carriers: dict[str, Any]) -> None:
    frames = exchange(out, carriers["memory"], epsilon=0.1)
    assert {name.split()[0] for name in frames} == {"bank", "retailer"}
    secrets = [*retailer_secrets(out), *label_secrets(out), *values_as_bytes(marked_values(out, "bank"))]
    assert holders(frames, [*secrets, *RETAILER_WORDS, *BANK_WORDS]) == set()


@pytest.mark.usefixtures("summary")
def test_the_same_search_finds_the_ranks_of_a_column_that_was_sent_without_noise(
    out: Path, carriers: dict[str, Any]
) -> None:
    frames = exchange(out, carriers["memory"], epsilon=np.inf)
    found = holders(frames, retailer_secrets(out))
    assert len(found) == 1
    assert found.pop().startswith("bank ")
