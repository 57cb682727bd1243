"""`routerd-eventd tls`: makes a self-signed certificate, and shows the pin, names and expiry of one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from eventd.cli.program.command_line import Command, Group
from eventd.cli.terminal.output import Column, Format, Output, text
from eventd.errors import Invalid

app = typer.Typer(cls=Group, help="Make a self-signed certificate, or show the pin, names and expiry of one.")

PAIR = (
    Column("CERTIFICATE", text("certFile")),
    Column("KEY", text("keyFile")),
    Column("PIN", text("pin")),
    Column("EXPIRES", text("expires")),
)
SHOWN = (
    Column("FILE", text("file")),
    Column("PIN", text("pin")),
    Column("NAMES", text("names")),
    Column("EXPIRES", text("expires")),
)
_LONGEST_DAYS = 3650
_NEXT = """
In the EventGroup of {node}:
  listen: {{…, tls: {{certFile: {certFile}, keyFile: {keyFile}}}}}
In the EventPeer of {node} on its peers, with an endpoint that begins with https://:
  tls: {{pins: ["{pin}"]}}
Or for the API, in the settings of {node}:
  api_tls_cert_file = "{certFile}"
  api_tls_key_file = "{keyFile}"
"""


@app.command(cls=Command)
def init(
    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of this node in its groups (`nodeName`).")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME", help="Host name or IP address of this node, for clients without a pin."),
    ] = None,
    folder: Annotated[Path, typer.Option("--dir", metavar="PATH", help="Folder for tls.crt and tls.key.")] = Path(),
    days: Annotated[int, typer.Option(min=1, max=_LONGEST_DAYS, help="Days until the certificate expires.")] = 825,
    output: Annotated[Format, typer.Option("-o", "--output", help="Output format.")] = "table",
) -> None:
    """Make a self-signed certificate and its key, and print its pin for the EventPeers of its peers.

    Existing files are never replaced.
    """
    from datetime import UTC, datetime

    from eventd.runtime.clock import SECOND, SystemClock
    from eventd.tls.certificate import show_moment
    from eventd.tls.making import make_pair

    _require_node_name(node)
    now = datetime.fromtimestamp(SystemClock().now() // SECOND, UTC)
    pair = make_pair(folder.expanduser().absolute(), node, host or [], days, now)
    row = {
        "certFile": str(pair.cert_file),
        "keyFile": str(pair.key_file),
        "pin": pair.certificate.pin,
        "expires": show_moment(pair.certificate.expires),
    }
    out = Output(output, headers=True, colour=False)
    if out.is_document:
        out.value(row)
        return
    out.rows(PAIR, [row], name=lambda each: each["certFile"])
    if out.is_table:
        print(_NEXT.format(node=node, **row), end="")


@app.command(cls=Command)
def show(
    certificate: Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="PEM file of a certificate.")],
    output: Annotated[Format, typer.Option("-o", "--output", help="Output format.")] = "table",
) -> None:
    """Show the pin, the names and the expiry of a certificate."""
    from eventd.tls.certificate import show_few, show_moment
    from eventd.tls.files import read_certificates

    read = read_certificates(certificate)[0]
    names = [*sorted(read.nodes), *sorted(read.hosts)]
    row: dict[str, Any] = {
        "file": str(certificate),
        "pin": read.pin,
        "names": names,
        "expires": show_moment(read.expires),
    }
    out = Output(output, headers=True, colour=False)
    if out.is_document:
        out.value(row)
    else:
        out.rows(SHOWN, [row | {"names": show_few(names)}], name=lambda each: each["file"])


def _require_node_name(node: str) -> None:
    """Raise `Invalid` for a name that no node of a group can have."""
    from federation.peers import NODE_NAME

    if not NODE_NAME.fullmatch(node):
        raise Invalid(f"{node[:60]!r} is not the name of a node", hint="write the `nodeName` of the EventGroup")
