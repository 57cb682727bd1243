"""The two commands: `routerd-eventd`, the node, and `routerctl`, which works on it."""

from __future__ import annotations
