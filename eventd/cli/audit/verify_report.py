"""routerctl audit verify-report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eventd.cli.gateway.options import SHOW
from eventd.cli.gateway.session import Session, offline
from eventd.cli.program.key_files import read_public_keys
from eventd.cli.terminal.output import Column, note, text
from eventd.errors import CheckFailed
from eventd.text.invisible import printable
from eventd.text.plural import counted

FILES = (Column("FILE", text("path")), Column("STATE", text("state")))


@offline(*SHOW)
def verify_report(
    session: Session,
    report: Annotated[
        str,
        typer.Argument(
            metavar="REPORT", help="Folder or address of a signed report, or its report.json, to check that file alone."
        ),
    ],
    keys: Annotated[
        list[Path],
        typer.Option(
            "--auditor-keys", metavar="FILE", help="File with public keys of auditors that you trust; repeatable."
        ),
    ],
) -> None:
    """Verify the signature of a report offline: exits with status 4 if a file is not as it was signed."""
    from eventd.audit.review.verification import verify_report as verify

    found = verify(report, read_public_keys(keys))
    files = [{"path": file.path, "state": file.state.value} for file in found.files]
    verified = found.report
    answer = {
        "valid": not found.faults,
        "key": found.key,
        "made_at": verified and verified.made_at,
        "verdict": verified and verified.verdict,
        "lake": verified and verified.lake.state,
        "files": files,
        "delta_files": found.delta,
    }
    if session.out.is_table or session.out.format == "name":
        session.out.rows(FILES, files, name=lambda row: str(row["path"]))
    else:
        session.out.value(answer)
    if session.out.is_table and found.delta:
        note(f"not compared: {counted(found.delta, 'file')} of Delta tables in delta/, which no signature covers")
    if found.faults:
        names = ", ".join(f"{printable(file.path)} is {file.state.value}" for file in found.faults)
        raise CheckFailed(f"the report is not as it was signed: {names}", hint="fetch it again from the auditor")
    if session.out.is_table and verified is not None:
        note(
            f"valid: signed with {found.key}, {counted(len(files), 'file')}; report of {verified.made_at}, "
            f"its verdict: {verified.verdict}"
        )
