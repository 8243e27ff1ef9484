"""YAML documents (run files, schemas, sweeps): a strict reader, and validation errors in words."""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from opboost.errors import shown
from parties.errors import ConfigError
from parties.storage.atomic_files import odd_kind

# File systems take names of 255 bytes, some of which suffixes need, and paths of 4096.
MAX_NAME_BYTES = 200
MAX_TEXT_BYTES = 2000

_MERGE = "tag:yaml.org,2002:merge"

# What PyYAML's constructors raise for scalars that are not what their tag says, beside its own errors.
_MALFORMED = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file of keys and values.

    Raises
    ------
    ConfigError
        If the file cannot be read, is not YAML, has a text that is too long or holds a line break or a control
        character, or gives a key twice, of which YAML libraries take the last one.
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


class _Refused(Exception):
    """The document has a repeated key, or a text that can be no name."""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which refuses repeated keys before merge keys are resolved, and texts that are no names."""

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        scalar = super().compose_scalar_node(anchor)
        text, which = scalar.value, f"the text {shown(scalar.value)} in line {scalar.start_mark.line + 1}"
        if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
            raise _Refused(f"{which} holds a line break or a control character")
        if len(text.encode()) > MAX_TEXT_BYTES or max(len(part.encode()) for part in text.split("/")) > MAX_NAME_BYTES:
            raise _Refused(
                f"{which} is too long: at most {MAX_NAME_BYTES} bytes from one slash to the next, and {MAX_TEXT_BYTES} "
                "in all, are allowed"
            )
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
