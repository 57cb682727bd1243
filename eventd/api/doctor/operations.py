"""The operations of doctor: examine a node, and carry out the fixes that are safe."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator

from eventd.api.admin.lake import is_configured, read_shipping
from eventd.api.doctor.callbacks import LOSSES_SINCE, check_callbacks
from eventd.api.doctor.certificates import check_certificates, check_handshakes
from eventd.api.doctor.checks import check_group
from eventd.api.doctor.facts import AREA
from eventd.api.doctor.fixing import carry_out
from eventd.api.doctor.lake import check_shipping
from eventd.api.doctor.links import check_links
from eventd.api.doctor.local_socket import check_local_socket
from eventd.api.doctor.plan import Action, plan_actions, show_plan
from eventd.api.doctor.readiness import check_readiness
from eventd.api.doctor.reading import read_groups
from eventd.api.doctor.report import Check, CheckStatus, report
from eventd.api.doctor.streams import check_streams
from eventd.api.doctor.surface import check_surface
from eventd.api.doctor.tracing import check_tracing
from eventd.api.doctor.trees import check_key_file, check_trees, read_group_trees
from eventd.api.doctor.witnesses import check_witnesses, read_witness_state
from eventd.api.framework.operations import Params, Services
from eventd.groups.callback_history import count_losses
from eventd.groups.callbacks import read_callback_statuses, read_callbacks
from eventd.log.core.topic_row import find_topic
from eventd.log.topics.topics import ROUTEMASTER
from eventd.resources.group_configuration import GroupConfig
from eventd.resources.stream_configuration import CacheSpec, StreamTenantConfig, stream_caches, stream_tenants
from eventd.store.engine.database import Connection
from eventd.store.rows.registry import read_resources
from eventd.streams.names import CacheName

AREAS = (AREA,)


class ExamineParams(Params):
    """Which area and group to examine, and whether to include the plan of fixes."""

    area: str = Field(default="", description="The area to check: `federation`; all areas if empty.")
    group: str = Field(default="", description="Only this group; all if empty.")
    remediation_plan: bool = Field(default=False, description="Include the plan of fixes.")

    @field_validator("area")
    @classmethod
    def _is_known(cls, area: str) -> str:
        if area and area not in AREAS:
            raise ValueError(f"must be {' or '.join(AREAS)}, or empty for all")
        return area


class FixParams(ExamineParams):
    """Which area and group to examine; every safe action of the plan is then executed."""


async def examine(services: Services, params: ExamineParams) -> dict[str, Any]:
    shown, actions = await _look(services, params)
    if params.remediation_plan:
        shown["remediationPlan"] = show_plan(actions, services.clock.now())
    return shown


async def fix(services: Services, params: FixParams) -> dict[str, Any]:
    shown, actions = await _look(services, params)
    if params.remediation_plan:
        shown["remediationPlan"] = show_plan(actions, services.clock.now())
    return {**shown, "fix": await carry_out(services, actions)}


def _read_streams(conn: Connection) -> tuple[Mapping[str, StreamTenantConfig], Mapping[CacheName, CacheSpec]]:
    stored = read_resources(conn)
    return stream_tenants(stored), stream_caches(stored)


def _read_callbacks(conn: Connection, group: str, now: int) -> list[Check]:
    chosen = [one for one in read_callbacks(conn).values() if group in ("", one.config.group)]
    losses = count_losses(conn, now - LOSSES_SINCE)
    return [*check_callbacks(read_callback_statuses(conn, chosen, now), losses, now)]


def _check_histories(conn: Connection, configs: Sequence[GroupConfig], now: int, *, running: bool) -> list[Check]:
    found = (read_witness_state(conn, config, now) for config in configs)
    return [check for state in found if state is not None for check in check_witnesses(state, running=running)]


async def _check_trees(services: Services, configs: Sequence[GroupConfig], now: int) -> list[Check]:
    settings, path = services.settings, services.database.path
    facts = await services.database.read(read_group_trees, configs, now)
    checks = [*check_trees(facts, now, running=settings is not None)]
    if facts and settings is not None:
        # Beside the database where that is a file, as the head file.
        folder = settings.data_dir if path is None else path.parent
        checks += await asyncio.to_thread(check_key_file, folder)
    return checks


async def _look(services: Services, params: ExamineParams) -> tuple[dict[str, Any], list[Action]]:
    groups, now = await read_groups(services, params.group), services.clock.now()
    checks = [
        check for group in groups for check in (*check_group(group), *check_links(group), *check_handshakes(group))
    ]
    configs = [group.config for group in groups if group.config is not None]
    states = await asyncio.to_thread(services.certificates, configs)
    checks += check_certificates([each for each in states if each.group or not params.group], now)
    checks += await check_readiness(services.readiness, params.group)
    checks += check_local_socket(services.local_socket())
    checks += [] if params.group else check_tracing()
    checks += await services.database.read(_read_callbacks, params.group, now)
    checks += await services.database.read(_check_histories, configs, now, running=services.settings is not None)
    checks += await _check_trees(services, configs, now)
    if not params.group:
        if services.settings is not None and services.settings.routemaster_listen is not None:
            topic = await services.database.read(find_topic, ROUTEMASTER)
            checks += check_surface(services.settings, services.settings.routemaster_listen, topic)
        tenants, caches = await services.database.read(_read_streams)
        checks += check_streams(tenants, caches, services.tenant_keys(), services.settings)
        expected = bool(groups and is_configured(services))
        checks += check_shipping((await services.database.read(read_shipping))["books"], expected=expected)
    if not groups:
        checks.append(Check("expected peers", CheckStatus.SKIP, detail="no EventGroup is declared"))
    return report(groups, checks), plan_actions(checks)
