"""YAML documents (run files, schemas, sweeps): a strict reader, and validation errors in words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from opboost.errors import nearest, shown
from parties.errors import ConfigError
from parties.storage.paths import odd_kind

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# File systems take names of 255 bytes, some of which suffixes need, and paths of 4096.
MAX_NAME_BYTES = 200
MAX_TEXT_BYTES = 2000

# The key of a text of many lines: SQL, whose comments end with them.
_QUERY, MAX_QUERY_BYTES = "query", 20_000

# Values of a document, which aliases of aliases multiply without end; and lists and sections within each other, of
# which a run file has five.
MAX_VALUES, MOST_NESTED = 1 << 18, 50

# Types that may stand at one place, as pydantic names them.
_BRANCHES = {"int", "float", "str", "bool"}

_QUOTED = re.compile("'([^']*)'")

_SENTENCES = {
    "missing": "is required",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text",
    "string_pattern_mismatch": "must be a name: letters, digits, '_', '.' and '-', at most 64, of which the first is a "
    "letter or a digit",
    "path_type": "must be a path",
    "tuple_type": "must be a list",
    "dict_type": "must hold keys and values",
    "model_type": "must hold keys and values",
}

_MERGE = "tag:yaml.org,2002:merge"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_TIME = "tag:yaml.org,2002:timestamp"

# The key of a list of texts, with which cells are compared.
_WORDS = "categories"

# YAML 1.1 reads 1:30 as 90 and 010 as 8, where a time or a code was meant.
_MISREAD = re.compile(r".*:.*|[-+]?0[0-9_]+")

# What PyYAML's constructors raise for scalars that are not what their tag says, beside its own errors.
_MALFORMED = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file of keys and values.

    Raises
    ------
    ConfigError
        If the file cannot be read, is not YAML, has more values than `MAX_VALUES`, a text that is too long or holds a
        line break or a control character, a number in base 60 or 8, or a category that reads as another text, is nested
        deeper than `MOST_NESTED`, or gives a key twice, of which YAML libraries take the last one.
    """
    try:
        if (kind := odd_kind(path)) is not None:
            raise ConfigError(f"{path} is {kind}, where a YAML file is needed")
        document = _Loader(path.read_text(encoding="utf-8")).get_single_data()
        _check_number(document)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except _Refused as error:
        raise ConfigError(f"{path}: {error}") from None
    except _MALFORMED as error:
        place = getattr(error, "problem_mark", None)
        raise ConfigError(f"{path} is not YAML{f' at line {place.line + 1}' if place else ''}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path} must hold keys and values")
    return document


def holds_control(text: str) -> bool:
    """Whether a text holds a line break, a control character, or a byte that is no text: no document may."""
    return any(unicodedata.category(character) in ("Cc", "Cs") for character in text)


def _check_number(document: Any) -> None:
    waiting, n_values = [document], 0
    while waiting:
        one, n_values = waiting.pop(), n_values + 1
        if n_values > MAX_VALUES:
            raise _too_many()
        waiting.extend(one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())


def _too_many() -> _Refused:
    return _Refused(f"it holds more than {MAX_VALUES:,} values; an alias counts wherever it stands")


def explain(error: ValidationError, kind: type[BaseModel]) -> str:
    """Validation errors of a document in words, key by key; an unknown key is told with those that are nearest."""
    sentences_by_key: dict[str, list[str]] = {}
    inputs: dict[str, str] = {}
    problems = error.errors(include_url=False)
    inner = {problem["loc"][:depth] for problem in problems for depth in range(1, len(problem["loc"]))}
    for problem in problems:
        # A list that is too short without a wrong entry, or a default that depends on a wrong key, is no second error.
        if problem["type"] == "default_factory_not_called" or problem["loc"] in inner:
            continue
        # A sentence about several keys of a section says itself what it found.
        is_own = problem["type"] == "value_error" and isinstance(problem["input"], dict)
        is_told = is_own or problem["type"] in ("missing", "extra_forbidden")
        # Branches of a type that has several are no keys.
        keys = [part for part in problem["loc"] if not (isinstance(part, str) and "[" in part)]
        if keys[1:] and (keys[-1] in _BRANCHES or str(keys[-1]).startswith("constrained-")):
            keys.pop()
        path = ".".join(map(str, keys)) or ("" if is_own else "the file")
        sentences_by_key.setdefault(path, []).append(_sentence(problem, _keys_beside(kind, keys)))
        inputs[path] = "" if is_told else f"; found {shown(problem['input'])}"
    lines = ((path, " or ".join(dict.fromkeys(sentences))) for path, sentences in sentences_by_key.items())
    return " | ".join(f"{path}: ".removeprefix(": ") + sentence + inputs[path] for path, sentence in lines)


def _sentence(problem: ErrorDetails, known: Sequence[str]) -> str:
    name, given = problem["type"], str(problem["input"])
    if name == "extra_forbidden":
        return f"is no key here{nearest(str(problem['loc'][-1]), known)}"
    if name in ("literal_error", "enum"):
        expected = problem["ctx"]["expected"]
        choices = re.findall(_QUOTED, expected)
        return f"must be {expected}{nearest(given, choices) if len(choices) > 1 else ''}"
    if name == "too_short":
        return f"must have at least {problem['ctx']['min_length']} entries"
    if name == "too_long":
        return f"must have at most {problem['ctx']['max_length']} entries"
    if name in _SENTENCES:
        return _SENTENCES[name]
    message = problem["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return message if message[:1].islower() or name == "value_error" else "is not what may stand here"


def _keys_beside(kind: type[BaseModel], keys: Sequence[int | str]) -> list[str]:
    """The keys of the section in which the last key of a path stands."""
    at: Any = kind
    for key in keys[:-1]:
        at = _section_in(at, key) or at
    return [field.alias or name for name, field in at.model_fields.items()]


def _section_in(section: type[BaseModel], key: int | str) -> type[BaseModel] | None:
    """The section under a key, or that a list or mapping under it is made of."""
    fields = {field.alias or name: field.annotation for name, field in section.model_fields.items()}
    waiting = [fields.get(str(key))]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
        waiting.extend(get_args(kind))
    return None


class _Refused(Exception):
    """The document has a repeated key, a number in an odd base, or a text that can be no name."""


def _which(scalar: yaml.ScalarNode) -> str:
    return f"the text {shown(scalar.value)} in line {scalar.start_mark.line + 1}"


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which refuses odd numbers, texts that are no names, deep nests and repeated keys."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._is_query = False

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        # The time of a bracket grows with how many are open: hundreds of them took a second, up to Python's own limit.
        self._depth += 1
        if self._depth > MOST_NESTED:
            raise _Refused(f"lists and sections are nested more than {MOST_NESTED} deep")
        self._is_query = isinstance(index, yaml.ScalarNode) and index.value == _QUERY
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        scalar = super().compose_scalar_node(anchor)
        text, which = scalar.value, _which(scalar)
        if self._is_query:
            if holds_control(text.replace("\n", "").replace("\t", "")):
                raise _Refused(f"{which} holds a control character")
            if len(text.encode()) > MAX_QUERY_BYTES:
                raise _Refused(f"{which} is too long: at most {MAX_QUERY_BYTES:,} bytes are allowed")
            return scalar
        if holds_control(text):
            raise _Refused(f"{which} holds a line break or a control character")
        if len(text.encode()) > MAX_TEXT_BYTES or max(len(part.encode()) for part in text.split("/")) > MAX_NAME_BYTES:
            raise _Refused(
                f"{which} is too long: at most {MAX_NAME_BYTES} bytes from one slash to the next, and {MAX_TEXT_BYTES} "
                "in all, are allowed"
            )
        if scalar.tag in _NUMBERS and _MISREAD.fullmatch(text):
            raise self._misread(scalar)
        return scalar

    def _misread(self, scalar: yaml.ScalarNode) -> _Refused:
        found = shown(self.construct_object(scalar))
        return _Refused(f"{_which(scalar)} reads as {found}; put it in quotes, or write that")

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > MAX_VALUES:
            raise _too_many()

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        mapping = super().compose_mapping_node(anchor)
        lines: dict[Hashable, int] = {}
        for node, value in mapping.value:
            if not isinstance(node, yaml.ScalarNode):
                continue
            if node.value == _WORDS and isinstance(value, yaml.SequenceNode):
                self._check_words(value)
            key = "<<" if node.tag == _MERGE else self.construct_object(node)
            line = node.start_mark.line + 1
            if key in lines:
                raise _Refused(
                    f"the key {shown(key)} stands in line {lines[key]} and again in line {line}; give it once"
                )
            lines[key] = line
        return mapping

    def _check_words(self, texts: yaml.SequenceNode) -> None:
        """Refuse numbers and times that stand for texts, and are not written as they read."""
        for scalar in texts.value:
            if scalar.tag in (*_NUMBERS, _TIME) and str(self.construct_object(scalar)) != scalar.value:
                raise self._misread(scalar)
