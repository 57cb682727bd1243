// Keeps the page up to date. The server sends the whole content of a page each time it changes; it is merged into what
// is shown, so that focus, scroll position and open details stay.

import { enhance } from "./enhance.mjs";
import { Idiomorph } from "./vendor/idiomorph.mjs";

const BASE = document.body.dataset.base;
const STATUS = document.getElementById("live");
const SLOTS = 3; // of the six connections that a browser opens to a host, over all tabs
const POLL = 10_000, SILENCE = 35_000;
const OWN = new Set(["data-at", "data-label", "data-none"]);
const policy = window.trustedTypes
  ? window.trustedTypes.createPolicy("console", { createHTML: (text) => text })
  : { createHTML: (text) => text };

const live = {
  source: null, release: null, timer: 0, watchdog: 0, tries: 0, last: "", since: null, paused: false, waiting: null, count: 0,
};

/** When the forms of this page were sent: a double click sends one once. */
let sent = new WeakMap();
const DOUBLE = 3000;

const view = () => location.pathname + location.search;
const clock = (time) => time.toISOString().slice(11, 19) + " UTC";

function say(text, kind) {
  STATUS.className = `live ${kind}`;
  // what the page shows was so: no state of it is green or red any more
  document.body.classList.toggle("outdated", kind === "off");
  if (STATUS.textContent !== text) STATUS.textContent = text;
}

/** Returns why the content must not change under the visitor's hands; empty if it may. */
function busy() {
  const main = document.getElementById("main");
  const active = document.activeElement;
  if (document.querySelector("dialog[open]")) return "dialog";
  if (main.querySelector("input[type=checkbox][name=pick]:checked")) return "selection";
  if (active && main.contains(active) && active.matches("input:not([type=checkbox]), textarea, select")) return "form";
  const chosen = getSelection();
  if (chosen && !chosen.isCollapsed && main.contains(chosen.anchorNode)) return "text";
  return "";
}

function parse(text) {
  return new DOMParser().parseFromString(policy.createHTML(text), "text/html").getElementById("main");
}

function show(text) {
  if (busy()) {
    live.waiting = text;
    live.count += 1;
    bar();
    return;
  }
  const fresh = parse(text);
  if (!fresh) return;
  live.waiting = null;
  live.count = 0;
  const main = document.getElementById("main");
  Idiomorph.morph(main, fresh, {
    ignoreActiveValue: true,
    callbacks: {
      // What only the browser knows stays: the row that keys have chosen, open details, and labels of cells.
      beforeAttributeUpdated: (name, node) => !OWN.has(name) && !(name === "open" && node.matches("details, dialog")),
      beforeNodeRemoved: (old) => !(old.nodeType === 1 && old.dataset.keep !== undefined),
      beforeNodeMorphed: (old) => !(old.nodeType === 1 && old.dataset.keep !== undefined),
    },
  });
  enhance();
  key();
  bar();
}

/** Gives the forms of the page its key, by which the node knows a form that is sent twice: updates have none. */
function key() {
  for (const one of document.querySelectorAll("#main input[name=once]")) one.value = document.body.dataset.once;
}

function bar() {
  let note = document.getElementById("waiting");
  if (!live.waiting) {
    note?.remove();
    return;
  }
  if (!note) {
    note = document.createElement("button");
    note.id = "waiting";
    note.className = "waiting";
    note.addEventListener("click", () => {
      getSelection()?.removeAllRanges();
      document.activeElement?.blur();
      for (const one of document.querySelectorAll("input[name=pick]:checked")) one.checked = false;
      show(live.waiting);
    });
    STATUS.after(note);
  }
  note.textContent = live.count === 1 ? "1 change waits" : `${live.count} changes wait`;
}

function good() {
  live.tries = 0;
  live.since = null;
  say("live", "on");
}

function bad() {
  live.since ??= new Date();
  say(`not live since ${clock(live.since)}`, "off");
}

function stop() {
  live.source?.close();
  live.source = null;
  clearTimeout(live.timer);
  clearTimeout(live.watchdog);
  live.release?.();
  live.release = null;
}

function later(run, wait) {
  clearTimeout(live.timer);
  live.timer = setTimeout(run, wait);
}

function again() {
  const wait = Math.min(30_000, 1000 * 2 ** live.tries) * (0.75 + Math.random() / 2);
  live.tries += 1;
  later(begin, wait);
}

function watch() {
  clearTimeout(live.watchdog);
  live.watchdog = setTimeout(() => {
    bad();
    stop();
    again();
  }, SILENCE);
}

/** Takes one of the slots that all tabs share; runs `held` with it, or returns false if none is free. */
async function slot(held) {
  if (!navigator.locks) return held(), true;
  for (let number = 0; number < SLOTS; number += 1) {
    const taken = await new Promise((answer) => {
      navigator.locks.request(`eventd-stream-${number}`, { ifAvailable: true }, (lock) => {
        if (!lock) return answer(false);
        return new Promise((release) => {
          live.release = release;
          answer(true);
        });
      });
    });
    if (taken) {
      held();
      return true;
    }
  }
  return false;
}

async function poll() {
  if (live.paused || document.hidden) return;
  try {
    const answer = await fetch(view(), { headers: { Accept: "text/html" }, redirect: "manual" });
    if (answer.type === "opaqueredirect" || answer.status === 401) return leave();
    if (!answer.ok) throw new Error(`the node answers with ${answer.status}`);
    const text = await answer.text();
    if (live.paused || document.hidden || live.source) return;
    show(text);
    live.tries = 0;
    live.since = null;
    say("every 10 s", "on");
    later(begin, POLL);
  } catch {
    bad();
    again();
  }
}

function leave() {
  stop();
  location.reload();
}

async function begin() {
  stop();
  if (live.paused || document.hidden) return;
  const free = await slot(stream);
  if (!free) poll();
}

function stream() {
  const source = new EventSource(
    `${BASE}/stream?view=${encodeURIComponent(view())}&last=${encodeURIComponent(live.last)}`,
  );
  live.source = source;
  source.addEventListener("open", () => {
    good();
    watch();
  });
  source.addEventListener("view", (event) => {
    live.last = event.lastEventId;
    good();
    watch();
    show(event.data);
  });
  source.addEventListener("alive", () => {
    good();
    watch();
  });
  source.addEventListener("trouble", (event) => {
    say(event.data, "off");
    watch();
  });
  source.addEventListener("ended", leave);
  source.addEventListener("error", async () => {
    // the node answers, but not with a stream: as many pages as it keeps up to date have one already
    const refused = source.readyState === EventSource.CLOSED;
    stop();
    if (refused) return poll();
    bad();
    try {
      const answer = await fetch(view(), { method: "HEAD", redirect: "manual" });
      if (answer.type === "opaqueredirect" || answer.status === 401) return leave();
    } catch {
      // the node is away: it is tried again
    }
    again();
  });
}

export function pause() {
  live.paused = !live.paused;
  if (live.paused) {
    stop();
    say("paused (p)", "off");
  } else {
    begin();
  }
}

function zone() {
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone ?? "";
  const secure = location.protocol === "https:" ? "; secure" : "";
  document.cookie = `eventd-zone=${encodeURIComponent(name)}; path=/; max-age=31536000; samesite=lax${secure}`;
}

zone();
document.addEventListener("submit", (event) => {
  if (event.target.method !== "post" || event.defaultPrevented) return;
  const now = Date.now();
  if (now - (sent.get(event.target) ?? 0) < DOUBLE) event.preventDefault();
  else sent.set(event.target, now);
});
addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  // the visitor came back to the page: what is sent now is meant
  sent = new WeakMap();
  document.body.dataset.once = "";
  key();
});
if (STATUS?.dataset.live === "yes") {
  say("connecting", "");
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stop();
    else if (!live.paused) begin();
  });
  document.addEventListener("selectionchange", () => live.waiting && !busy() && show(live.waiting));
  document.addEventListener("focusout", () => setTimeout(() => live.waiting && !busy() && show(live.waiting)));
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => event.persisted && begin());
  begin();
}
