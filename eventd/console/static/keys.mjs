// Single keys as shortcuts: none fires in a field or with a modifier, and a switch turns them off.

import { pause } from "./live.mjs";

const HELP = [
  ["?", "this help"],
  ["/", "find an event"],
  ["g, then a letter", ""],
  ["j, k", "next row, previous row"],
  ["Enter", "open the row"],
  ["x", "select the row"],
  ["r", "focus the first action"],
  ["p", "pause and resume updates"],
];
let go = false;

/** Returns what `g` leads to: the pages of the navigation, with their letters. */
function pages() {
  const links = [...document.querySelectorAll("nav.pages a[data-key]")];
  return `go to a page: ${links.map((one) => `${one.dataset.key} ${one.textContent.toLowerCase()}`).join(", ")}`;
}

const rows = () => [...document.querySelectorAll("#main tbody tr")];

function move(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.dataset.at !== undefined);
  const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + step))];
  for (const row of all) row.toggleAttribute("data-at", row === next);
  (next.querySelector("a, button") ?? next).focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

function help() {
  const open = document.getElementById("help");
  if (open) return open.remove();
  const dialog = document.createElement("dialog");
  dialog.id = "help";
  dialog.setAttribute("aria-label", "Shortcuts");
  const list = document.createElement("dl");
  for (const [key, text] of HELP) {
    const term = document.createElement("dt"), means = document.createElement("dd");
    const name = document.createElement("kbd");
    name.textContent = key;
    term.append(name);
    means.textContent = text || pages();
    list.append(term, means);
  }
  const close = document.createElement("button");
  close.textContent = "Close";
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  dialog.append(list, close);
  document.body.append(dialog);
  dialog.showModal();
}

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.closest?.("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  if (go) {
    go = false;
    const link = document.querySelector(`nav.pages a[data-key="${CSS.escape(event.key)}"]`);
    if (link) link.click();
    return;
  }
  const at = document.querySelector("#main tr[data-at]");
  const known = {
    "?": help,
    "/": () => document.getElementById("find")?.focus(),
    g: () => { go = true; setTimeout(() => { go = false; }, 1500); },
    j: () => move(1),
    k: () => move(-1),
    x: () => at?.querySelector("input[name=pick]")?.click(),
    r: () => document.querySelector("#main .row a.button, #main .row button")?.focus(),
    p: pause,
  };
  if (known[event.key]) {
    event.preventDefault();
    known[event.key]();
  }
}

if (document.body.dataset.keys === "on") {
  document.addEventListener("keydown", press);
  document.getElementById("find")?.setAttribute("aria-keyshortcuts", "/");
}
