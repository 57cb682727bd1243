"""Ledgers with every fault, shape and size that an audit can meet.

They extend the generator of `routerctl audit generate`, which has the faults that users practise on.
"""

from __future__ import annotations

from tests.support.federations.copies import copy_generated
from tests.support.federations.generate import generate
from tests.support.federations.settings import FullSettings

__all__ = ["FullSettings", "copy_generated", "generate"]
