"""A chaos test: a mesh of real nodes under seeded random faults; nothing acknowledged is lost, no event is visible
twice.

`plan` draws the faults, `mesh` runs the nodes and the proxies between them, `load` emits and records what was
acknowledged, `faults` carries out the plan, `verdict` checks the result. `python -m tests.chaos --help` runs it.
"""

from __future__ import annotations
