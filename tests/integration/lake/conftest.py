from __future__ import annotations

from pathlib import Path

import pytest

from eventd.lake.storage import ConnectedStorage, Storage, connect


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return connect(str(tmp_path / "lake"))


@pytest.fixture(params=["folder", "file", "local", "memory"])
def any_storage(request: pytest.FixtureRequest, tmp_path: Path) -> ConnectedStorage:
    """A folder, by path and by URL; and the same methods over fsspec, on a disk and on a stand-in for an
    object store."""
    at = tmp_path / "lake"
    urls = {"folder": str(at), "file": f"file://{at}", "local": f"local://{at}", "memory": f"memory://{at}"}
    return connect(urls[request.param])


@pytest.fixture(params=["folder", "memory"])
def either_storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A folder, and a stand-in for an object store."""
    return connect(str(tmp_path / "lake") if request.param == "folder" else f"memory://{tmp_path}/lake")
