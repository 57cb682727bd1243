"""Opens the origin that the options of a read name."""

from __future__ import annotations

from eventd.audit.source.options import OriginKind, SourceOptions
from eventd.audit.source.origin import LedgerSource


def open_origin(options: SourceOptions) -> LedgerSource:
    """Return the origin that the options name. It connects when it is first used."""
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
