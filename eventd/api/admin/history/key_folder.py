"""The folder of the file with a node's keys."""

from __future__ import annotations

from pathlib import Path

from eventd.api.framework.operations import Services


def key_folder(services: Services) -> Path | None:
    """Return the folder of the key file; None where only a running node knows it."""
    path = services.database.path
    if path is not None:
        return path.parent
    return None if services.settings is None else services.settings.data_dir
