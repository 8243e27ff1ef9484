"""A share of a model in a run folder: files that belong together, and a passive party's router as one of them.

Each file has a digest of its own content. That they are of one training, the note of the run's end says, which has the
digests of all of them: a file of another run, or an older backup of one, answers or asks for other tests.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from opboost.routing import Router
from opboost.trees.model_file import document_digest
from parties.errors import RunFolderError
from parties.storage.atomic_files import is_there
from parties.storage.serialization import router_from_dict, router_to_dict

SHARE_FILES = ("model.json", "partners.json")

ROUTER_FORMAT, ROUTER_VERSION = "opboost-router", 1


def share_digests(folder: Path) -> dict[str, str]:
    """Digests of the files that there are of a share of a model, by name."""
    return {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in SHARE_FILES
        if is_there(folder / name)
    }


def check_shares(folder: Path, noted: object) -> None:
    """Refuse files that are not those with which the run ended; earlier versions noted nothing.

    Raises
    ------
    RunFolderError
    """
    if noted is not None and noted != (found := share_digests(folder)):
        kept = noted if isinstance(noted, dict) else {}
        names = [name for name in SHARE_FILES if found.get(name) != kept.get(name)]
        raise RunFolderError(
            f"{' and '.join(names)} in {folder} are not as at the end of the run: of another run, or an older backup. "
            "Bring the folder back as it was"
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
