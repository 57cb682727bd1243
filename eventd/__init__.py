"""routerd-eventd: a node of a federated event bus."""

from __future__ import annotations

__version__ = "0.1.0"
