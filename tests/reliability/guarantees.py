"""The guarantees of the README, and what shows each: invariants of the simulation, models, and tests."""

from __future__ import annotations

from typing import Final, NamedTuple


class Guarantee(NamedTuple):
    """`title` is the bold beginning of the guarantee in the README, and the heading of its part of the page.

    `invariants` are those that a run can violate when the guarantee does not hold; each of the `bugs` that the
    simulation finds is named by one of them.

    `tests` are files and folders that show it with real processes, sockets and databases. `bugs` are the numbers of the
    seeded bugs that break it; some bugs break none.
    """

    title: str
    invariants: tuple[str, ...]
    models: tuple[str, ...]
    tests: tuple[str, ...]
    bugs: tuple[int, ...] = ()


GUARANTEES: Final = (
    Guarantee(
        "Acknowledged means on the disk",
        ("V3",),
        ("the writer",),
        (
            "tests/acceptance/test_kill.py",
            "tests/acceptance/test_durable_before_answered.py",
            "tests/contract/log/core/test_log_durability.py",
        ),
        (12, 13, 14, 15, 23, 36, 41, 50),
    ),
    Guarantee(
        "Each event arrives, once",
        ("V1", "V4", "V5", "V6", "V8", "V9", "V38"),
        ("a link",),
        ("tests/chaos", "tests/integration/egress/peers/test_federation_contiguity.py"),
        (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 19, 20, 21, 22, 25, 26, 27, 31, 35, 38, 44, 45, 51),
    ),
    Guarantee(
        "An outage is not a refusal",
        ("V1", "V4"),
        ("a link",),
        ("tests/integration/egress/peers/test_federation_links.py", "tests/chaos"),
        (4, 59),
    ),
    Guarantee(
        "No peer delays another",
        (),
        (),
        ("tests/integration/egress/peers/test_outbox_budget.py",),
    ),
    Guarantee(
        "An event never returns",
        ("V4", "V5"),
        (),
        ("tests/integration/egress/peers/test_federation_exchange.py",),
        (28,),
    ),
    Guarantee(
        "Only members send",
        ("V17",),
        (),
        (
            "tests/integration/ingress/test_federation_refusals.py",
            "tests/integration/egress/peers/test_lying_servers.py",
        ),
        (10,),
    ),
    Guarantee(
        "Derived configuration exists exactly once",
        ("V13",),
        (),
        ("tests/acceptance/test_kill_subscriptions.py", "tests/contract/egress/subscriptions"),
        (33,),
    ),
    Guarantee(
        "One bad proposal stops no other",
        (),
        (),
        ("tests/contract/egress/subscriptions",),
    ),
    Guarantee(
        "A router duplicates no record",
        ("V12",),
        (),
        ("tests/contract/egress/routers",),
        (32,),
    ),
    Guarantee(
        "A watch misses no record",
        ("V10", "V14"),
        ("wake-ups",),
        ("tests/acceptance/test_kill_topics.py", "tests/integration/api/topics"),
        (20, 21, 40, 42, 48, 55, 58),
    ),
    Guarantee(
        "A loss is reported",
        ("V4", "V7", "V10", "V16"),
        ("a link",),
        ("tests/integration/egress/peers/test_federation_contiguity.py", "tests/contract/log/retention"),
        (16, 17, 18, 29, 30, 31, 46, 47, 62),
    ),
)
"""In the order of the README."""
