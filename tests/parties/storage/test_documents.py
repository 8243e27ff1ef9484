"""YAML documents: a key that stands twice, or a text that no file should hold, is refused in a sentence."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from parties.errors import ConfigError
from parties.storage.documents import read_yaml


@pytest.mark.parametrize("again", ["epsilon: 1", '"epsilon": 1', "'epsilon': 1", "? epsilon\n: 1"])
def test_a_key_is_the_same_however_it_is_written(tmp_path: Path, again: str) -> None:
    (tmp_path / "a.yaml").write_text(f"epsilon: 0.1\n{again}\n")
    with pytest.raises(ConfigError, match="'epsilon' stands in line 1 and again in line 2"):
        read_yaml(tmp_path / "a.yaml")


@pytest.mark.parametrize("first", ["[x]", "{x: 1}"])
@pytest.mark.parametrize("each", ["[{}]", "{{<<: [{}]}}", "{{y: [{}]}}"])
def test_aliases_of_aliases_are_counted(tmp_path: Path, first: str, each: str) -> None:
    """A few lines would otherwise stand for more values than there is memory."""
    names = [f"a{i}" for i in range(40)]
    lines = [f"a0: &a0 {first}", *(f"{b}: &{b} {each.format(f'*{a}, *{a}')}" for a, b in pairwise(names))]
    (tmp_path / "a.yaml").write_text("\n".join(lines))
    with pytest.raises(ConfigError, match=r"a.yaml: it holds more than 262,144 values|not YAML"):
        read_yaml(tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text("a: &a [*a]")
    with pytest.raises(ConfigError, match="holds more than"):
        read_yaml(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    "text", ["a: {b: [{c: 1, c: 2}]}", "a:\n- b: 1\n  b: 1\n", "? {x: 1, x: 1}\n: 2", "1: a\n0x1: b"]
)
def test_a_key_is_found_twice_at_any_depth(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"a\.yaml: the key .* stands in line \d and again in line \d; give it once"):
        read_yaml(tmp_path / "a.yaml")


def test_keys_that_are_merged_may_be_given_anew(tmp_path: Path) -> None:
    """YAML's own way to say "the same but for": the key nearer at hand counts, by its definition."""
    text = "base: &base {a: 1, b: 2}\nnext: &next {<<: *base, b: 3}\nlast: {<<: *next, a: 4}\nx: {<<: [*base, *next]}\n"
    (tmp_path / "a.yaml").write_text(text)
    assert read_yaml(tmp_path / "a.yaml") == yaml.safe_load(text)


@pytest.mark.parametrize("text", ["1.10", ".5", "1_000", "0x1F", "+5", "1.", "2024-05-31T10:00:00Z"])
def test_a_category_that_reads_as_another_text_is_refused_and_a_number_elsewhere_is_not(
    tmp_path: Path, text: str
) -> None:
    """Of cells with 1.10, categories [1.10] took none, and with `other: true` that was no error."""
    path = tmp_path / "document.yaml"
    path.write_text(f"columns: {{a: {{step: {text}, categories: [x, {text}]}}}}\n")
    with pytest.raises(ConfigError, match=rf"the text '{re.escape(text)}' in line 1 reads as .*; put it in quotes, or"):
        read_yaml(path)
    path.write_text(f"columns: {{a: {{step: {text}, categories: [x, '{text}', 1.5, 10, 2.0, 2024-05-31]}}}}\n")
    assert read_yaml(path)["columns"]["a"]["categories"][1] == text


@pytest.mark.parametrize(
    ("text", "number"), [("1:30", "90"), ("-0:30.5", "-30.5"), ("12:30:45", "45045"), ("010", "8"), ("[1, 007]", "7")]
)
def test_a_number_in_base_60_or_8_is_refused_and_a_text_of_the_same_letters_is_not(
    tmp_path: Path, text: str, number: str
) -> None:
    (tmp_path / "a.yaml").write_text(f"x: 1\nwait: {text}\n")
    with pytest.raises(ConfigError, match=f"in line 2 reads as {number}; put it in quotes, or write that"):
        read_yaml(tmp_path / "a.yaml")
    for one in ("'1:30'", "'010'", "09", "0", "0.5", "0x10", "1_000", "tcp://a:10", "2024-01-01 10:00:00"):
        (tmp_path / "a.yaml").write_text(f"wait: {one}\n")
        assert read_yaml(tmp_path / "a.yaml") == yaml.safe_load(f"wait: {one}")


_texts = st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=5)


_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _texts


_documents = st.dictionaries(
    _texts,
    st.recursive(_scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3)),
    min_size=1,
    max_size=4,
)


@given(document=_documents)
def test_what_stands_once_is_read_as_pyyaml_reads_it(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "once.yaml"
    path.write_text(yaml.safe_dump(document))
    assert read_yaml(path) == document


@pytest.mark.parametrize(
    "text",
    [
        "a: 2024-13-45",
        "a: !!int ''",
        "a: !!float x",
        "a: !!timestamp x",
        "a: =",
        "? [a]\n: 1",
        "a: !!binary é",
        "a: 1\n---\nb: 2",
        "<<: 1",
        "a: \x07",
        "%YAML 9.9\n---\na: 1",
        "a: !!omap [b]",
        "a: !!bool maybe",
    ],
)
def test_what_yaml_cannot_hold_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"a\.yaml is not YAML") as error:
        read_yaml(tmp_path / "a.yaml")
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("n", [50, 100_000])
def test_lists_in_lists_are_refused_before_python_gives_up(tmp_path: Path, n: int) -> None:
    (tmp_path / "a.yaml").write_text("a: " + "[" * n + "]" * (n % 1000))
    with pytest.raises(ConfigError, match=r"a\.yaml: lists and sections are nested more than 50 deep$"):
        read_yaml(tmp_path / "a.yaml")
    (tmp_path / "a.yaml").write_text("a: " + "[" * 49 + "]" * 49)
    assert str(read_yaml(tmp_path / "a.yaml")["a"]) == "[" * 49 + "]" * 49


def test_a_query_may_have_many_lines_and_be_long(tmp_path: Path) -> None:
    """One of nine columns was refused as too long a name, and folded into one line, a comment took the rest."""
    query = f"SELECT {', '.join(f'a_long_column_{i}' for i in range(60))} -- all of them\n\tFROM customers\n"
    lines = "".join(f"    {line}\n" for line in query.splitlines())
    (tmp_path / "a.yaml").write_text(f"data:\n  uri: sqlite:///a.db\n  query: |\n{lines}")
    assert read_yaml(tmp_path / "a.yaml")["data"]["query"] == query
    for text, words in ((f"query: {'x' * 20_001}", "too long: at most 20,000 bytes"), ('query: "a\\0b"', "a control")):
        (tmp_path / "a.yaml").write_text(text)
        with pytest.raises(ConfigError, match=words):
            read_yaml(tmp_path / "a.yaml")
    # The next text is a name again.
    (tmp_path / "a.yaml").write_text(f"query: x\nparty: {'x' * 201}")
    with pytest.raises(ConfigError, match="too long: at most 200 bytes"):
        read_yaml(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    "text", ['data: "a\\nb"', 'data: "a\\0b"', 'a: {b: "\\x9b"}', "a: |\n  b\n  c\n", '"a\\tb": 1']
)
def test_texts_of_several_lines_or_with_control_characters_are_refused(tmp_path: Path, text: str) -> None:
    """They would stand in paths, in messages of one line, and on terminals."""
    (tmp_path / "a.yaml").write_text(f"x: 1\n{text}\n")
    with pytest.raises(ConfigError, match=r"a\.yaml: the text .* in line 2 holds a line break or a control character"):
        read_yaml(tmp_path / "a.yaml")
