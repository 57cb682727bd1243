"""What the metrics of all consumers share: links to peers, subscriptions and callbacks."""

from __future__ import annotations

from typing import Final

LINK_STATES: Final = ("running", "backing-off", "blocked", "paused", "failed")
"""The states of a consumer."""
LAGS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 86400)
"""The buckets of lags and of runs, in seconds."""
