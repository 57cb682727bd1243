"""A mesh of real nodes under faults that a seed decides: nothing acknowledged is lost, nothing is visible twice.

`plan` draws what happens, `mesh` runs the nodes and the proxies between them, `load` emits and remembers what was
acknowledged, `faults` does what the plan says, `verdict` judges. `python -m tests.chaos --help` runs it.
"""

from __future__ import annotations
