"""The origin that the options of a read name."""

from __future__ import annotations

from eventd.audit.source.options import Options, Where
from eventd.audit.source.origin import Origin


def open_origin(options: Options) -> Origin:
    """The origin that the options name. Touches nothing yet."""
    match options.where:
        case Where.LAKE:
            from eventd.audit.source.lakes import LakeOrigin

            return LakeOrigin(options)
        case Where.URL:
            from eventd.audit.source.nodes import NodeOrigin

            return NodeOrigin(options)
        case Where.DATABASE:
            from eventd.audit.source.databases import DatabaseOrigin

            return DatabaseOrigin(options)
