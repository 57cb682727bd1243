"""routerctl audit prepare."""

from __future__ import annotations

import tempfile
from pathlib import Path

from eventd.cli.gateway.session import Session, offline
from eventd.errors import Unavailable
from eventd.text.size import MIB


@offline("output")
def prepare(session: Session) -> None:
    """Store what lets Spark start fast for this user (about 160 MB)."""
    from eventd.audit.spark.extra import require

    require()
    from eventd.audit.engine.request import AuditRequest
    from eventd.audit.engine.run import run_on
    from eventd.audit.generate import GeneratorSettings, generate
    from eventd.audit.spark.class_archive import class_archive
    from eventd.audit.spark.java import find_java, java_home

    with tempfile.TemporaryDirectory(prefix="eventd-prepare-") as folder:
        archive = class_archive(java_home(), Path(folder))
        before = archive.file.stat().st_mtime_ns if archive.file.exists() else 0
        generate(GeneratorSettings(nodes=3, events=300, lose=1), f"{folder}/lake")
        run_on(AuditRequest(lake=f"{folder}/lake", out=f"{folder}/report"), record=True)
    if not archive.file.exists() or archive.file.stat().st_mtime_ns == before:
        java = find_java()
        raise Unavailable(
            f"Java {java.version} at {java.home} wrote no class archive",
            hint="use another Java (JAVA_HOME); audits work without this, and start more slowly",
        )
    size = archive.file.stat().st_size
    session.out.outcome(
        {"file": str(archive.file), "bytes": size},
        f"{archive.file}: {size // MIB} MiB; audits of this user start faster from now on",
        name=lambda row: str(row["file"]),
    )
