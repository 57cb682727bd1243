"""Opens the origin that the options of a read name."""

from __future__ import annotations

from eventd.audit.source.options import OriginKind, SourceOptions
from eventd.audit.source.origin import LedgerSource
from eventd.errors import Invalid
from eventd.lake.schema import Ledger


def open_origin(options: SourceOptions) -> LedgerSource:
    """Return the origin that the options name. It connects when it is first used.

    Raises Invalid for the ledger `history` of a node: its rows get their numbers when they are read.
    """
    if options.book is Ledger.HISTORY and options.where is not OriginKind.LAKE:
        raise Invalid("the ledger history can be read from a lake only", hint="give the option lake")
    match options.where:
        case OriginKind.LAKE:
            from eventd.audit.source.lakes import LakeOrigin

            return LakeOrigin(options)
        case OriginKind.URL:
            from eventd.audit.source.nodes import NodeOrigin

            return NodeOrigin(options)
        case OriginKind.DATABASE:
            from eventd.audit.source.databases import DatabaseOrigin

            return DatabaseOrigin(options)
