"""YAML documents (run files, schemas, sweeps): a strict reader, and validation errors in words."""

from __future__ import annotations

import reprlib
import unicodedata
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from parties.errors import ConfigError
from parties.storage.atomic_files import odd_kind

_MERGE = "tag:yaml.org,2002:merge"
_INT = "tag:yaml.org,2002:int"

# Of whole numbers; longer ones Python does not write out in errors.
MAX_BITS = 8192

# What PyYAML's constructors raise for scalars that are not what their tag says, beside its own errors.
_MALFORMED = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file of keys and values.

    Raises
    ------
    ConfigError
        If the file cannot be read, is not YAML, has a text with a line break or a control character, or gives a key
        twice, of which YAML libraries take the last one.
    """
    try:
        if (kind := odd_kind(path)) is not None:
            raise ConfigError(f"{path} is {kind}, where a YAML file is needed")
        document = _Loader(path.read_text(encoding="utf-8")).get_single_data()
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


def explain(error: ValidationError) -> str:
    """Validation errors of a document in words, key by key."""
    sentences = []
    for problem in error.errors(include_url=False):
        # A sentence about several keys of a section says itself what it found.
        is_own = problem["type"] == "value_error" and isinstance(problem["input"], dict)
        is_told = is_own or problem["type"] in ("missing", "extra_forbidden")
        place = ".".join(map(str, problem["loc"])) or ("" if is_own else "the file")
        found = "" if is_told else f"; found {shown(problem['input'])}"
        sentences.append(f"{place}: ".removeprefix(": ") + problem["msg"].removeprefix("Value error, ") + found)
    return " | ".join(sentences)


def shown(value: object) -> str:
    """Bounded representation of a value for an error message, on one line."""
    return _SHORT.repr(value)


class _Short(reprlib.Repr):
    """Bounded representations; of a whole number that Python refuses to write out, its length in bits."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxdict, self.maxlist, self.maxtuple, self.maxset = 2, 4, 4, 4, 4
        self.maxstring, self.maxother = 120, 60

    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() < 200 else f"a whole number of {x.bit_length()} bits"


_SHORT = _Short()


class _Refused(Exception):
    """The document has a repeated key, a control character or a vast number."""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which refuses repeated keys before merge keys are resolved, and control characters."""

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        scalar = super().compose_scalar_node(anchor)
        line = scalar.start_mark.line + 1
        if any(unicodedata.category(character) in ("Cc", "Cs") for character in scalar.value):
            raise _Refused(f"the text {shown(scalar.value)} in line {line} holds a line break or a control character")
        number = self.construct_object(scalar) if scalar.tag == _INT else 0
        if isinstance(number, int) and number.bit_length() > MAX_BITS:
            raise _Refused(f"line {line} holds {shown(number)}; whole numbers have at most {MAX_BITS} bits")
        return scalar

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        mapping = super().compose_mapping_node(anchor)
        lines: dict[Hashable, int] = {}
        for node, _ in mapping.value:
            if not isinstance(node, yaml.ScalarNode):
                continue
            key = "<<" if node.tag == _MERGE else self.construct_object(node)
            line = node.start_mark.line + 1
            if key in lines:
                raise _Refused(
                    f"the key {shown(key)} stands in line {lines[key]} and again in line {line}; give it once"
                )
            lines[key] = line
        return mapping
