// What scripts add to the content of a page: labels of cells, for narrow windows in which rows are shown as cards, and
// buttons that copy ids, commands and keys. An update of the page does not have them, so they are added after each.

const COPIED = "main code.command, main code.id, main h1.id, main pre.secret";
const NARROW = matchMedia("(max-width: 600px)");

/** Labels the cells of each table with the headers of their columns; a cell without content is marked. */
function label(table) {
  const titles = [...table.querySelectorAll("thead th")].map((one) => one.textContent.trim());
  if (!titles.length) return;
  table.classList.add("cards");
  table.setAttribute("role", "table");
  for (const row of table.rows) {
    row.setAttribute("role", "row");
    for (const cell of row.cells) {
      const head = cell.tagName === "TH", text = cell.textContent.trim();
      cell.setAttribute("role", !head ? "cell" : cell.scope === "col" ? "columnheader" : "rowheader");
      cell.dataset.label = cell.colSpan > 1 ? "" : titles[cell.cellIndex] ?? "";
      cell.toggleAttribute("data-none", text === "–" || (!text && !cell.children.length));
    }
  }
}

/** Adds a button that copies a text. Browsers offer no clipboard to pages that came over plain HTTP: then there is none. */
function offer(text) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.dataset.keep = "";
  button.textContent = "Copy";
  button.setAttribute("aria-label", `Copy ${text.textContent.trim().slice(0, 80)}`);
  text.after(button);
}

async function copy(button) {
  const text = button.previousElementSibling?.textContent.trim();
  if (!text) return;
  await navigator.clipboard.writeText(text);
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

export function enhance() {
  if (NARROW.matches) for (const table of document.querySelectorAll("#main .wide > table")) label(table);
  if (!navigator.clipboard) return;
  for (const button of document.querySelectorAll("#main button.copy")) {
    if (!button.previousElementSibling?.matches(COPIED)) button.remove();
  }
  for (const text of document.querySelectorAll(COPIED)) {
    if (!text.nextElementSibling?.matches("button.copy")) offer(text);
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button.copy");
  if (button) copy(button);
});
NARROW.addEventListener("change", enhance);
enhance();
const own = document.querySelector(".map .site.own"), map = own?.closest(".map");
if (map) map.scrollLeft = own.getBoundingClientRect().left - map.getBoundingClientRect().left - map.clientWidth / 2;
