"""Runs damages of the campaign without Spark: `python -m tests.support.campaign [PART-OF-A-NAME …]`.

Those of signed histories are done to one lake, under the name `signed-histories`.
It takes a few seconds for each, and prints what the audit says wrong about them; with names also all that it reports.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Final

from eventd.audit.report.report import Report
from tests.support.campaign.damage import Damage
from tests.support.campaign.damages import DAMAGES
from tests.support.campaign.damages.trees import OF_FILES, SIGNED
from tests.support.campaign.federation import run_federation
from tests.support.campaign.signed_lake import complaints_of_signed
from tests.support.campaign.stage import stage
from tests.support.fresh import template

_SIGNED: Final = "signed-histories"


def main(names: list[str]) -> int:
    """Return 1 if the audit is wrong about a damage, and otherwise 0."""
    chosen = [damage for damage in DAMAGES if not names or any(name in damage.name for name in names)]
    signed = _run_signed() if not names or any(name in _SIGNED for name in names) else 0
    return min(_run_chosen(chosen, is_shown=bool(names)) + signed, 1) if chosen else signed


def _run_chosen(chosen: list[Damage], *, is_shown: bool) -> int:
    """Do these damages, each in a copy of one lake; return the number of those that the audit is wrong about."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="eventd-campaign-") as folder:
        federation = asyncio.run(run_federation(Path(folder) / "federation"))
        for damage in chosen:
            report, wrong = stage(federation, damage, Path(folder) / damage.name, None)
            failed += bool(wrong)
            print(
                f"{'wrong' if wrong else 'right':6} {damage.name}: {report.verdict}",
                *wrong,
                sep="\n       ",
                flush=True,
            )
            if is_shown:
                _show(report)
    print(f"{len(chosen) - failed} of {len(chosen)} right")
    return failed


def _run_signed() -> int:
    """Do the damages of signed histories, all in one lake; return 1 if the audit is wrong about one."""
    with tempfile.TemporaryDirectory(prefix="eventd-campaign-") as folder:
        wrong = asyncio.run(complaints_of_signed(Path(folder), template()))
    print(
        f"{'wrong' if wrong else 'right':6} {_SIGNED}: {len(SIGNED) + len(OF_FILES)} damages", *wrong, sep="\n       "
    )
    return bool(wrong)


def _show(report: Report) -> None:
    print(*report.headline, *report.findings, *report.troubles, *report.notices, sep="\n  ")
    for pair in report.pairs:
        print(
            f"  {pair.group} {pair.source} {pair.peer}: {pair.delivered} of {pair.expected}, {pair.proof}", *pair.notes
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
