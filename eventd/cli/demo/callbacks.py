"""`routerd-eventd demo --callbacks`: a node pushes events to a receiver that dies and comes back, and nothing is lost.

The receiver is in this process; the node is `routerd-eventd serve`, and `routerctl` steers it, as in the other demo.
"""

from __future__ import annotations

import json
from collections import Counter

from rich.table import Table

from eventd.bench.receiver import CallbackReceiver, CallbackRequest, is_signed
from eventd.cli.demo.demo import console_of, playing
from eventd.cli.demo.nodes import DemoFailed, Stage
from eventd.cli.demo.picture import Narrator
from eventd.runtime.clock import SystemClock
from federation.keys import Key
from federation.webhooks import read_key

NODE, GROUP, CALLBACK = "site-a", "sites", "billing"
MANY = 200
"""Events that are emitted in one round."""
_EMIT = ("federation", "event", "emit", "--stdin")


def run() -> None:
    """Play the demo. Raises `DemoFailed` if a step fails or is interrupted; nothing of it is left behind."""
    narrator = Narrator(console_of())
    playing(lambda: _play(narrator))


async def _play(narrator: Narrator) -> None:
    demo = CallbackDemo(narrator)
    async with demo.stage:
        try:
            await demo.play()
        finally:
            await demo.receiver.stop()


class CallbackDemo:
    """Plays the demo: a receiver gets signed events, dies, misses some, and gets them when it is back."""

    def __init__(self, narrator: Narrator) -> None:
        self.clock = SystemClock()
        self.stage = Stage(self.clock, self._tick, names=(NODE,), env={"EVENTD_CALLBACK_ALLOW": "127.0.0.1"})
        self.receiver = CallbackReceiver(self._take)
        self._narrator = narrator
        self._node = self.stage.nodes[NODE]
        self._key: Key | None = None
        self._received: list[str] = []
        self._unsigned = 0
        self._emitted: list[str] = []

    async def play(self) -> None:
        """Run all steps in order."""
        self._narrator.title(
            "routerd-eventd", "A node that pushes every event to an HTTP endpoint, signed and in order."
        )
        await self._declare()
        await self._push()
        await self._lose_the_receiver()
        await self._kill_the_node()
        await self._bring_the_receiver_back()
        await self._prove()

    def _take(self, request: CallbackRequest) -> None:
        self._received.append(str(json.loads(request.body)["id"]))
        if self._key is None or not is_signed(request, self._key, self.clock.now()):
            self._unsigned += 1

    # --- acts -------------------------------------------------------------------------------------------------

    async def _declare(self) -> None:
        self._narrator.act("1", "An endpoint is declared, like everything else")
        await self.receiver.start()
        self._node.start()
        await self.stage.until("the node to start", self._node.listens)
        self._narrator.command("(umask 077; routerctl callback secret new > billing.key)")
        secret = await self.stage.routerctl(NODE, "callback", "secret", "new", data_dir=False)
        key, declaration = self.stage.folder / "billing.key", self.stage.folder / "callback.yaml"
        key.touch(0o600)
        key.write_text(secret)
        self._key = read_key("demo", secret)
        declaration.write_text(_DECLARATION.format(port=self.receiver.port, key=json.dumps(str(key))))
        self._narrator.command("routerctl apply -f callback.yaml")
        self._narrator.output(await self.stage.routerctl(NODE, "apply", "-f", "callback.yaml"))
        self._narrator.proven(f"The receiver is at http://127.0.0.1:{self.receiver.port}/hooks, in this program.")

    async def _push(self) -> None:
        self._narrator.act("2", "Events are pushed")
        await self._emit()
        await self.stage.until("the receiver to have every event", self._has_all)
        self._narrator.proven(
            f"The receiver has {len(self._received):,} events, each in a request with a valid signature."
        )

    async def _lose_the_receiver(self) -> None:
        self._narrator.act("3", "The receiver dies")
        await self.receiver.stop()
        await self._emit()
        await self.stage.until("the callback to back off", self._backs_off)
        self._narrator.command("routerctl callback list")
        self._narrator.output(await self.stage.routerctl(NODE, "callback", "list"))
        self._narrator.proven("The callback waits, says why and until when, and holds what it could not deliver.")

    async def _kill_the_node(self) -> None:
        self._narrator.act("4", "And so does the node")
        self._narrator.command(f"kill -9 {self._node.pid}")
        self._node.kill()
        await self._emit()
        self._node.start()
        await self.stage.until("the node to start", self._node.listens)
        self._narrator.proven(f"routerctl has written {MANY} more events into its log while it was down.")

    async def _bring_the_receiver_back(self) -> None:
        self._narrator.act("5", "The receiver comes back")
        began = self.clock.monotonic()
        await self.receiver.start()
        await self.stage.until("the receiver to have every event", self._has_all)
        await self.stage.until("the callback to be idle", self._is_idle)
        self._narrator.command(f"routerctl callback attempts {CALLBACK} --limit 5")
        attempts = ("callback", "attempts", CALLBACK, "--limit", "5")
        self._narrator.output(await self.stage.routerctl(NODE, *attempts))
        self._narrator.proven(f"Everything has arrived {self.clock.monotonic() - began:.1f} s after it listened again.")

    async def _prove(self) -> None:
        self._narrator.act("6", "The proof")
        first = list(dict.fromkeys(self._received))
        stored = (await self.stage.holding(self._node)).ids
        repeats = sum(count - 1 for count in Counter(self._received).values())
        self._narrator.show(_proof(len(self._emitted), len(stored), len(first), repeats, self._unsigned))
        if set(first) != stored or first != self._emitted or self._unsigned:
            raise DemoFailed("the receiver does not have exactly the events of the log, in its order, all signed")
        self._narrator.proven(
            f"{len(self._emitted):,} events were emitted, and the receiver has each of them, in the order of the log."
            " What comes twice, after a crash or a lost answer, has the same `webhook-id`."
        )

    # --- emitting and waiting ---------------------------------------------------------------------------------

    async def _emit(self) -> None:
        begin = len(self._emitted)
        ids = [f"demo-{number:05}" for number in range(begin, begin + MANY)]
        lines = [json.dumps({"id": id, "type": "invoice.paid", "subject": id}) + "\n" for id in ids]
        self._narrator.command("routerctl federation event emit --stdin < paid.jsonl")
        await self.stage.routerctl(NODE, *_EMIT, stdin="".join(lines))
        self._emitted += ids

    def _has_all(self) -> bool:
        return set(self._received) >= set(self._emitted)

    async def _backs_off(self) -> bool:
        return str((await self._state())["state"]) == "backing-off"

    async def _is_idle(self) -> bool:
        state = await self._state()
        return state["state"] == "running" and not state["waitingEvents"]

    async def _state(self) -> dict[str, object]:
        found: dict[str, object] = await self.stage.ask(self._node, f"/api/v1/callbacks/{CALLBACK}")
        return found

    async def _tick(self) -> None:
        """Nothing on the screen moves during waits."""


def _proof(emitted: int, stored: int, received: int, repeats: int, unsigned: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("emitted", "in the log", "received", "twice", "unsigned"):
        table.add_column(name, justify="right")
    table.add_row(*(f"{number:,}" for number in (emitted, stored, received, repeats, unsigned)))
    return table


_DECLARATION = """apiVersion: federation.routerd.net/v1alpha1
kind: EventGroup
metadata: {{name: sites}}
spec: {{nodeName: site-a}}
---
apiVersion: federation.routerd.net/v1alpha1
kind: EventCallback
metadata: {{name: billing}}
spec:
  source: {{groupRef: sites}}
  url: http://127.0.0.1:{port}/hooks
  allowPlain: true # on this machine only
  retry: {{baseBackoff: 100ms, maxBackoff: 1s}}
  signing:
    keys:
      - {{id: demo, secretFile: {key}}}
"""
