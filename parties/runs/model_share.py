"""A share of a model in a run folder: files that belong together, and a passive party's router as one of them.

Each model file has a digest of its own content. That files are of one training, the note of the run's end says, which
has the digests of all of them. A model of another run, or an older backup of one, answers or asks for other tests; by
another schema cells are read otherwise; by other trees of S-GBDT, what records have paid is counted wrongly.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from opboost.routing import Router
from opboost.trees.model_file import document_digest
from parties.errors import RunFolderError
from parties.storage.paths import is_there, read_file, read_json
from parties.storage.serialization import router_from_dict, router_to_dict

# A run folder's copy of the schema, by which cells were read in training.
KEPT_SCHEMA = "schema.yaml"
TREES_FILE = "trees.json"

# The first ones were noted by earlier versions, too.
_FIRST_NOTED = ("model.json", "partners.json")
SHARE_FILES = (*_FIRST_NOTED, KEPT_SCHEMA, TREES_FILE)

ROUTER_FORMAT, ROUTER_VERSION = "opboost-router", 1


def share_digests(folder: Path) -> dict[str, str]:
    """Digests of the files that there are of a share of a model, by name.

    Raises
    ------
    RunFolderError
        If one cannot be read, or is no file.
    """
    return {
        name: hashlib.sha256(read_file(folder / name)).hexdigest() for name in SHARE_FILES if is_there(folder / name)
    }


def noted_shares(folder: Path) -> dict[str, object] | None:
    """Digests that were noted at the end of the run; None where there is no such note."""
    meta = folder / "meta.json"
    noted = read_json(meta).get("shares") if is_there(meta) else None
    return noted if noted is None or isinstance(noted, dict) else {}


def check_shares(folder: Path) -> None:
    """Refuse files that are not those with which the run ended; earlier versions noted fewer of them, or none.

    Raises
    ------
    RunFolderError
    """
    found, noted = share_digests(folder), noted_shares(folder)
    if noted is None:
        return
    names = [name for name in SHARE_FILES if name in {*_FIRST_NOTED, *noted} and found.get(name) != noted.get(name)]
    if names:
        raise RunFolderError(
            f"{' and '.join(names)} in {folder} are not as at the end of the run: of another run, or an older backup. "
            "Bring the folder back as it was. No model was read"
        )


def router_document(router: Router) -> dict[str, Any]:
    """A passive party's share of a model, with its digest."""
    document = {"format": ROUTER_FORMAT, "version": ROUTER_VERSION, **router_to_dict(router)}
    return {**document, "digest": document_digest(document)}


def router_of(document: dict[str, Any], path: Path) -> Router:
    """The router of a document that was read from a path.

    Raises
    ------
    RunFolderError
    """
    if (document.get("format"), document.get("version")) != (ROUTER_FORMAT, ROUTER_VERSION):
        raise RunFolderError(f"{path} is no {ROUTER_FORMAT} file of version {ROUTER_VERSION}")
    content = {key: value for key, value in document.items() if key != "digest"}
    if document.get("digest") not in (None, document_digest(content)):
        raise RunFolderError(f"{path} is not as it was written: its digest is another one. Bring a copy of it back")
    return router_from_dict(content)
