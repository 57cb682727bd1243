"""Lakes with generated ledgers for tests that change them: generated once in a process, and copied."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from eventd.audit import generate as product
from eventd.audit.generate import GeneratorSettings, Truth
from tests.support.federations.generate import generate
from tests.support.federations.settings import FullSettings


def copy_generated(settings: GeneratorSettings, lake: Path | str) -> Truth:
    """Make a lake in a folder that does not exist yet, as `generate` does: the same settings make the same files."""
    made, truth = _generated(settings)
    shutil.copytree(made, lake)
    return truth


@cache
def _generated(settings: GeneratorSettings) -> tuple[Path, Truth]:
    folder = Path(tempfile.mkdtemp(prefix="eventd-ledgers-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    make = generate if isinstance(settings, FullSettings) else product.generate
    return folder / "lake", make(settings, str(folder / "lake"))
