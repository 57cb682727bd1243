"""Tries every order of the steps of a model, breadth first, so that the first counter-example is the shortest.

A state is a tuple, and the steps that are possible in it come from a generator. For spaces that are too large there are
random walks; a path is also what the checker of traces follows.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple, Protocol

State = Any
Label = tuple[Any, ...]
"""The name of a step, and its arguments."""


class Broken(NamedTuple):
    """Stands in place of a next state: the step itself breaks an invariant."""

    invariant: str


class Model(Protocol):
    """Interface of a model."""

    name: str
    bug: str
    """The seeded bug; empty: none."""

    def start(self) -> State:
        """Return the first state."""
        ...

    def steps(self, state: State) -> Iterator[tuple[Label, State]]:
        """Yield each step that is possible, and the state after it, or `Broken`."""
        ...

    def broken(self, state: State) -> str:
        """Return the invariant that the state breaks; empty if it breaks none."""
        ...

    def rests(self, state: State) -> bool:
        """Return whether the state is one to which the model must always be able to come: all work is done."""
        ...

    def words(self, label: Label) -> str:
        """Return a step as a sentence."""
        ...


@dataclass(frozen=True)
class Counterexample:
    """The steps that lead to a broken invariant."""

    invariant: str
    steps: Sequence[str]

    def __str__(self) -> str:
        lines = [f"{number:3}. {step}" for number, step in enumerate(self.steps, 1)]
        return "\n".join([f"broken after {len(self.steps)} steps: {self.invariant}", *lines])


@dataclass(frozen=True)
class Exploration:
    """What a run over a model found. `whole`: every reachable state was seen."""

    states: int
    edges: int
    depth: int
    seconds: float
    whole: bool
    found: Counterexample | None


def explore(
    model: Model, *, most: int = 10**9, live: bool = False, every: Callable[[int, float], None] | None = None
) -> Exploration:
    """Try every order of steps, breadth first, up to `most` states.

    `live`: also require that each state can still come to rest. That needs all edges in memory. `every` is called with
    the number of states and of seconds every 200,000 states.
    """
    begun, first = time.monotonic(), model.start()
    seen: dict[State, State] = {first: None}
    into: dict[State, list[State]] = {}
    queue, edges, found = deque([first]), 0, None
    depth, left = 0, 1
    while queue and found is None and len(seen) < most:
        state = queue.popleft()
        if invariant := model.broken(state):
            found = _example(model, seen, state, invariant)
            break
        for label, after in model.steps(state):
            edges += 1
            if type(after) is Broken:
                found = _example(model, seen, state, after.invariant, label)
                break
            if after not in seen:
                seen[after] = state
                queue.append(after)
                if every is not None and len(seen) % 200_000 == 0:
                    every(len(seen), time.monotonic() - begun)
            if live:
                into.setdefault(after, []).append(state)
        left -= 1
        if not left:
            depth, left = depth + 1, len(queue)
    whole = found is None and not queue
    if whole and live:
        found = _stuck(model, seen, into)
    return Exploration(len(seen), edges, depth, time.monotonic() - begun, whole, found)


def _stuck(model: Model, seen: dict[State, State], into: dict[State, list[State]]) -> Counterexample | None:
    """Return the way to the first state from which no rest can be reached any more; None if there is none."""
    able = {state for state in seen if model.rests(state)}
    queue = deque(able)
    while queue:
        for before in into.get(queue.popleft(), ()):
            if before not in able:
                able.add(before)
                queue.append(before)
    lost = next((state for state in seen if state not in able), None)  # in the order in which they were found
    return None if lost is None else _example(model, seen, lost, "rest can be reached from every state (V1)")


def _example(
    model: Model, seen: dict[State, State], state: State, invariant: str, last: Label | None = None
) -> Counterexample:
    """Return the steps to a state: each state knows the one before it, and its steps are asked for again."""
    labels: list[Label] = [] if last is None else [last]
    while (before := seen[state]) is not None:
        labels.append(next(label for label, after in model.steps(before) if after == state))
        state = before
    return Counterexample(invariant, [model.words(label) for label in reversed(labels)])


def walk(model: Model, seed: int, *, walks: int, length: int) -> Exploration:
    """Take random steps from the start: `walks` times, up to `length` steps each."""
    begun, random, edges, seen = time.monotonic(), Random(seed), 0, set[int]()
    for _ in range(walks):
        state, labels = model.start(), list[Label]()
        for _ in range(length):
            choices = list(model.steps(state))
            if not choices:
                break
            edges += 1
            label, state = random.choice(choices)
            labels.append(label)
            invariant = state.invariant if type(state) is Broken else model.broken(state)
            if invariant:
                found = Counterexample(invariant, [model.words(each) for each in labels])
                return Exploration(len(seen), edges, len(labels), time.monotonic() - begun, False, found)
            seen.add(hash(state))
    return Exploration(len(seen), edges, length, time.monotonic() - begun, False, None)


def follow_trace(model: Model, trace: Iterable[Label], hidden: Sequence[str] = ()) -> str:
    """Return why a trace is not a path of the model; empty if it is one.

    A None in a step of the trace stands for any argument. `hidden` are the names of steps that the trace does not
    show: any number of them may lie before each of its steps.
    """
    states = _with_hidden(model, {model.start()}, hidden)
    done: list[str] = []
    for label in trace:
        after = set[State]()
        for state in states:
            for made, following in model.steps(state):
                if _is(made, label):
                    if type(following) is Broken:
                        return f"step {len(done) + 1}, {model.words(label)}, breaks: {following.invariant}"
                    if invariant := model.broken(following):
                        return f"step {len(done) + 1}, {model.words(label)}, breaks: {invariant}"
                    after.add(following)
        if not after:
            possible = sorted({model.words(made) for state in states for made, _ in model.steps(state)})
            return (
                f"step {len(done) + 1}, {model.words(label)}, is not possible after: {'; '.join(done[-5:])}."
                f" Possible: {'; '.join(possible)}"
            )
        done.append(model.words(label))
        states = _with_hidden(model, after, hidden)
    return ""


def _is(made: Label, wanted: Label) -> bool:
    return len(made) == len(wanted) and all(ours in (None, theirs) for theirs, ours in zip(made, wanted, strict=True))


def _with_hidden(model: Model, states: set[State], hidden: Sequence[str]) -> set[State]:
    reached, queue = set(states), deque(states)
    while hidden and queue:
        for label, after in model.steps(queue.popleft()):
            if label[0] in hidden and type(after) is not Broken and after not in reached:
                reached.add(after)
                queue.append(after)
    return reached
