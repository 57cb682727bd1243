"""Which check of the audit finds a changed value, field by field: of each ledger, of states, and of manifests.

The value is changed at one place, with a manifest that fits. A test holds the table against the columns and fields of
the code, so a new one needs an entry: what finds a change of it, or that nothing does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

EDIT: Final = "edit"
"""The proof of a field that `test_audit_fields` changes, with the others of its table."""


@dataclass(frozen=True)
class FieldCheck:
    """What finds a changed value of a field.

    `verdict` is the kind of the finding, or `unproven`; empty: nothing finds it, and the page on damage says so. `by`
    is the explanation on the page. `proof` is what shows it: the name of a damage of the campaign, a test as
    `FILE::NAME` in the folder of the tests, or `EDIT`.
    """

    verdict: str
    by: str
    proof: str = EDIT


@dataclass(frozen=True)
class FieldTable:
    """The checks of the fields of one ledger or struct, with its heading on the page."""

    title: str
    checks: Mapping[str, FieldCheck]

    @property
    def unchecked(self) -> Iterator[str]:
        """Yield the fields that nothing is compared with."""
        return (name for name, check in self.checks.items() if not check.verdict)


def found(verdict: str, by: str, proof: str = EDIT) -> FieldCheck:
    """Return the entry of a field of which a changed value is found."""
    return FieldCheck(verdict, by, proof)


def unchecked(by: str) -> FieldCheck:
    """Return the entry of a field of which no changed value is found; `by` is the reason."""
    return FieldCheck("", by)
