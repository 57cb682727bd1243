"""The options that several commands of the audit share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from eventd.cli.gateway.lake_choice import LakeOption, lake_address
from eventd.cli.program.declaring import declare
from eventd.cli.program.key_files import read_signing_key
from eventd.cli.program.values import Duration, Size
from eventd.errors import Invalid
from eventd.runtime.clock import SECOND
from eventd.text.size import MIB

if TYPE_CHECKING:
    from eventd.audit.engine.request import AuditRequest
    from federation.history.notes import NoteKey


def checked_by(check: Callable[[Any], object]) -> Callable[[Any], Any]:
    """Return a callback that refuses a value for which `check` raises Invalid, as wrong use of the command.

    It runs before the command does, and so before libraries are loaded, which takes seconds.
    """

    def callback(value: Any) -> Any:
        try:
            if value:
                check(value)
        except Invalid as error:
            raise wrong_use(error) from None
        return value

    return callback


def wrong_use(error: Invalid) -> typer.BadParameter:
    """Return the error for wrong use of the command line, with the message and the hint of the given error."""
    return typer.BadParameter("; ".join(filter(None, (error.message, error.hint))))


def _check_conditions(texts: list[str]) -> None:
    from eventd.audit.report.objectives import read_conditions

    read_conditions(texts)


def _check_time_zone(name: str) -> None:
    from eventd.audit.report.time_zone import read_zone

    read_zone(name)


def _check_master(master: str) -> None:
    from eventd.audit.spark.masters import check_form

    check_form(master)


def _check_sample(text: str) -> None:
    _read_sample(text)


def _read_sample(text: str) -> float:
    """Return the percentage in `sample=PERCENT`. Raises Invalid."""
    name, _, share = text.partition("=")
    try:
        percent = float(share)
    except ValueError:
        percent = -1.0
    if name != "sample" or not 0 <= percent <= 100:
        raise Invalid(f"--history is {text!r}", hint="write sample=25 for a quarter of all tiles; without it, all")
    return percent


def _read_policy(file: Path) -> tuple[NoteKey, ...]:
    """Return the keys of trees in a policy. Raises Invalid."""
    from eventd.runtime.regular_files import NotRegular, read_regular
    from federation.errors import HistoryError
    from federation.history.policy import MAX_POLICY, read_policy

    try:
        return read_policy(read_regular(file, MAX_POLICY + 1).content.decode(errors="replace")).logs
    except (OSError, NotRegular) as error:
        raise Invalid(f"the policy {file} cannot be read: {error}") from None
    except HistoryError as error:
        raise Invalid(f"{file}: {error}", hint="`routerctl log keys` prints a policy") from None


def check_time(text: str) -> None:
    """Check that an option is a time or an age. Raises Invalid."""
    from eventd.api.framework.moments import parse_moment

    parse_moment(text, 0)


SILENCE = Duration.read("15m")
MEMORY = Size.read("2GiB")
LEAST_MEMORY = Size.read("512MiB")
"""Minimum of `--memory`: Spark refuses to start with a heap below 450 MiB, and Java's collector takes a part of the
heap."""

FailOption = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="CONDITION",
        help="Exit with status 4 on this: a kind of finding, unproven, stale, new, or completeness<99.99; repeatable.",
        callback=checked_by(_check_conditions),
    ),
]
SloOption = Annotated[
    str, typer.Option("--slo", metavar="FILE", help="File with FederationSLO documents to check deliveries against.")
]
SilenceOption = Annotated[
    Duration,
    typer.Option(
        "--silence",
        metavar="AGE",
        min=SECOND,
        help="A node that reports nothing for this long, and for 3 shipping intervals, is silent: its later events are"
        " unproven.",
    ),
]
_percent = partial(typer.Option, metavar="PERCENT", min=0, max=100)
RecheckOption = Annotated[
    float, _percent("--recheck", help="Share of the data of earlier runs whose digests are checked again.")
]
ReceiptsOption = Annotated[float, _percent("--receipts", help="Share of the receipts that are checked and verified.")]
DigestsOption = Annotated[
    float,
    _percent("--digests", help="Share of the events with payloads whose contents are compared with their digests."),
]
KeysOption = Annotated[
    list[str] | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        help="File with EventGroup documents whose keys verify the receipts' signatures; repeatable.",
    ),
]
BaselineOption = Annotated[
    str,
    typer.Option(
        "--baseline",
        metavar="REPORT",
        help="Earlier report to compare the findings with: its folder or address, or its report.json.",
    ),
]
CountOption = Annotated[
    bool, typer.Option("--count-acknowledged", help="Let acknowledged findings meet the conditions of --fail-on, too.")
]
TimeZoneOption = Annotated[
    str,
    typer.Option(
        "--time-zone",
        metavar="ZONE",
        help="Time zone of the times on the page and in the summary, such as Europe/Berlin; report.json has UTC.",
        callback=checked_by(_check_time_zone),
    ),
]
WithoutLedgersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--without-ledgers",
        metavar="NODE",
        help="Node that is known to ship no ledgers, such as one of protocol v1; repeatable. Without it, the audit is"
        " unproven if others have events or batches from the node.",
    ),
]
HistoryOption = Annotated[
    str,
    typer.Option(
        "--history",
        metavar="sample=PERCENT",
        help="Compute only this share of the tiles of trees from rows; the shipped hashes count for the others.",
        callback=checked_by(_check_sample),
    ),
]
PolicyOption = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        metavar="FILE",
        help="File with the keys of trees that you trust, as `routerctl log keys` prints it.",
    ),
]
SignOption = Annotated[
    Path | None,
    typer.Option("--sign", metavar="KEY", help="Sign the report with the Ed25519 private key in this PEM file."),
]
MasterOption = Annotated[
    str,
    typer.Option(
        "--master",
        metavar="MASTER",
        help="Spark master (default: all cores of this machine).",
        callback=checked_by(_check_master),
    ),
]
MemoryOption = Annotated[
    Size,
    typer.Option(
        "--memory",
        metavar="SIZE",
        min=LEAST_MEMORY,
        help="Memory that Spark may take on this machine, such as 2GiB; at least 512MiB.",
    ),
]
StorageOption = Annotated[
    Literal["auto", "fsspec", "spark"],
    typer.Option(
        "--storage",
        help="How the files of lake and report are reached: fsspec, or spark: Spark's file systems and credentials."
        " auto: spark for an address on a cluster.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """The options shared by all commands that audit a lake."""

    lake: LakeOption = ""
    fail_on: FailOption = None
    slo: SloOption = ""
    master: MasterOption = ""
    memory: MemoryOption = MEMORY
    storage: StorageOption = "auto"
    silence: SilenceOption = SILENCE
    receipts: ReceiptsOption = 100.0
    digests: DigestsOption = 100.0
    keys: KeysOption = None
    baseline: BaselineOption = ""
    count_acknowledged: CountOption = False
    sign: SignOption = None
    time_zone: TimeZoneOption = "UTC"
    without_ledgers: WithoutLedgersOption = None
    history: HistoryOption = ""
    policy: PolicyOption = None


def request_of(options: AuditOptions, out: str, **own: Any) -> AuditRequest:
    """Return the requested audit; `own` are fields of the request that a command sets itself.

    Raises BadParameter for options that do not fit together, Invalid for a file that is not valid, SecretUnreadable,
    and for the baseline NotFound or LakeUnavailable.
    """
    from eventd.audit.engine.request import AuditRequest
    from eventd.audit.receipts.receipt_keys import read_receipt_keys
    from eventd.audit.report.objectives import NEW, read_conditions, read_objectives
    from eventd.audit.review.earlier import read_earlier
    from eventd.audit.spark.access import Access

    conditions = read_conditions(options.fail_on or [])
    if not options.baseline and any(one.text == NEW for one in conditions):
        raise typer.BadParameter(f"--fail-on {NEW} needs an earlier report: add --baseline REPORT")
    return AuditRequest(
        lake=lake_address(options.lake),
        out=out,
        objectives=read_objectives(options.slo or None),
        conditions=conditions,
        master=options.master,
        memory=f"{options.memory // MIB}m",
        access=Access(options.storage),
        patience=options.silence,
        receipts=options.receipts,
        digests=options.digests,
        keys=read_receipt_keys(options.keys or []),
        baseline=read_earlier(options.baseline) if options.baseline else None,
        count_acknowledged=options.count_acknowledged,
        time_zone=options.time_zone,
        without_ledgers=tuple(sorted({*(options.without_ledgers or ())})),
        history=_read_sample(options.history) if options.history else 100.0,
        policy=None if options.policy is None else _read_policy(options.policy),
        signing_key=read_signing_key(options.sign) if options.sign is not None else None,
        **own,
    )


def with_audit_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command with a parameter `options`: it gets the fields of `AuditOptions` as options instead."""
    own = [*inspect.signature(command, eval_str=True).parameters.values()]
    fields = inspect.signature(AuditOptions, eval_str=True).parameters

    def run(*session: Any, **given: Any) -> None:
        chosen = {name: given.pop(name) for name in fields}
        command(*session, options=AuditOptions(**chosen), **given)

    return declare(run, command, [*(one for one in own if one.name != "options"), *fields.values()])
