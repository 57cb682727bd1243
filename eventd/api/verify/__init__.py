"""Comparing what this node's books say a peer has with what the peer holds, event by event where they differ."""

from __future__ import annotations
