// What pages have beyond plain HTML: "/" goes to the search, buttons copy, figures are filled in,
// the filter of rows has colours and completes columns.
"use strict";

document.addEventListener("keydown", (event) => {
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  const search = document.getElementById("search");
  if (event.key === "/" && search && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    search.focus();
  }
});

for (const button of navigator.clipboard ? document.querySelectorAll("button.copy") : []) {
  const label = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
    button.textContent = button.dataset.copied;
    setTimeout(() => { button.textContent = label; }, 1500);
  });
}

// On small screens the tree is closed until it is wanted.
if (window.matchMedia("(max-width: 52rem)").matches) {
  for (const each of document.querySelectorAll(".side details")) each.open = false;
}

// -- figures: they are requested after the page is shown, of some tables at a time --

const TABLES = 10, REQUESTS = 2, ATTEMPTS = 5;

async function loadFigures(address) {
  for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
    const response = await fetch(address, { headers: { Accept: "application/json" } });
    if (response.redirected) return null;  // the session has ended
    if (response.ok) return (await response.json()).figures;
    const canRetry = response.status === 503 && response.headers.has("Retry-After");
    if (response.status !== 429 && !canRetry) return null;
    const seconds = Number(response.headers.get("Retry-After")) || 1;
    await new Promise((done) => { setTimeout(done, seconds * 1000); });
  }
  return null;
}

function showFigures(row, figures) {
  for (const cell of row.querySelectorAll("[data-figure]")) {
    const [text, value] = figures?.[cell.dataset.figure] ?? ["–", ""];
    cell.textContent = text;
    cell.dataset.value = value;
  }
  if (!figures?.problem) return;
  const note = document.createElement("div");
  note.className = "quiet small";
  note.textContent = figures.problem;
  row.cells[0].append(note);
}

function tasksOf(table) {
  const rows = [...table.querySelectorAll("tr[data-name]")];
  const tasks = [];
  while (rows.length) {
    const part = rows.splice(0, TABLES);
    const names = new URLSearchParams(part.map((row) => ["table", row.dataset.name]));
    tasks.push(async () => {
      const found = await loadFigures(`${table.dataset.figures}?${names}`).catch(() => null);
      for (const row of part) showFigures(row, found?.[row.dataset.name]);
    });
  }
  return tasks;
}

const tasks = [...document.querySelectorAll("table[data-figures]")].flatMap(tasksOf);
for (const row of document.querySelectorAll("tr[data-figures]")) {
  tasks.push(async () => showFigures(row, await loadFigures(row.dataset.figures).catch(() => null)));
}
for (const cell of document.querySelectorAll("tr[data-name] [data-figure], tr[data-figures] [data-figure]")) {
  cell.textContent = "…";
}
for (let each = 0; each < REQUESTS; each += 1) {
  (async () => { while (tasks.length) await tasks.shift()(); })();
}

// Headings of figures sort the tables of the page; unknown figures come last.
function sortBy(heading) {
  const table = heading.closest("table");
  const isDown = heading.getAttribute("aria-sort") !== "descending";
  const valueOf = (row) => row.querySelector(`[data-figure="${heading.dataset.sort}"]`).dataset.value || "";
  const rows = [...table.tBodies[0].rows].sort((one, other) => {
    const [first, second] = [valueOf(one), valueOf(other)];
    if (first === "" || second === "") return (first === "") - (second === "");
    return isDown ? second - first : first - second;
  });
  for (const each of table.querySelectorAll("th[aria-sort]")) each.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", isDown ? "descending" : "ascending");
  table.tBodies[0].append(...rows);
}

for (const heading of document.querySelectorAll("th[data-sort]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "sort";
  button.title = "Sort the tables on this page";
  button.textContent = heading.textContent;
  button.addEventListener("click", () => sortBy(heading));
  heading.replaceChildren(button);
}

// -- the filter of rows: SQL in colours behind the text of the input, and names of columns --

const PARTS = /('(?:[^']|'')*'?)|(`[^`]*`?)|(\b\d+(?:\.\d+)?\b)|([\p{L}_][\p{L}\p{N}_]*)/gu;
const KEYWORDS = new Set(("AND OR NOT IN IS NULL LIKE ILIKE BETWEEN TRUE FALSE CAST AS CASE WHEN THEN ELSE END "
  + "ESCAPE DATE TIMESTAMP INTERVAL").split(" "));
const SUGGESTIONS = 8;

function colourSql(text) {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(PARTS)) {
    parts.push(text.slice(end, found.index));
    end = found.index + found[0].length;
    const kind = found[1] ? "string" : found[3] ? "number" : KEYWORDS.has(found[0].toUpperCase()) ? "keyword" : "";
    const part = document.createElement("span");
    part.className = kind && `sql-${kind}`;
    part.textContent = found[0];
    parts.push(part);
  }
  return [...parts, text.slice(end)];
}

function wordBefore(input) {
  const text = input.value.slice(0, input.selectionStart);
  const isInString = (text.match(/'/g) || []).length % 2 === 1;
  return isInString ? "" : text.match(/`[^`]*$|[\p{L}_][\p{L}\p{N}_]*$/u)?.[0] ?? "";
}

function completeColumns(input) {
  const columns = JSON.parse(input.dataset.columns);
  const list = document.createElement("ul");
  list.id = "filter-columns";
  list.className = "suggestions";
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Columns");
  list.hidden = true;
  let active = -1;
  const set = (name, value) => input.setAttribute(`aria-${name}`, value);
  const close = () => { list.hidden = true; set("expanded", false); input.removeAttribute("aria-activedescendant"); };
  const choose = (name) => {
    const at = input.selectionStart - wordBefore(input).length;
    input.setRangeText(name, at, input.selectionStart, "end");
    input.dispatchEvent(new Event("input"));
    close();
  };
  const mark = (index) => {
    active = (index + list.children.length) % list.children.length;
    [...list.children].forEach((each, i) => each.setAttribute("aria-selected", i === active));
    set("activedescendant", list.children[active].id);
    list.children[active].scrollIntoView({ block: "nearest" });
  };
  const suggest = () => {
    const word = wordBefore(input).replace("`", "").toLowerCase();
    const known = columns.filter((each) => each.replace("`", "").toLowerCase().startsWith(word));
    active = -1;
    list.replaceChildren(...known.slice(0, SUGGESTIONS).map((name, i) => {
      const option = document.createElement("li");
      option.id = `filter-column-${i}`;
      option.setAttribute("role", "option");
      option.setAttribute("aria-selected", false);
      option.textContent = name;
      option.addEventListener("mousedown", (event) => { event.preventDefault(); choose(name); });
      return option;
    }));
    const isDone = known.length === 0 || (known.length === 1 && known[0] === wordBefore(input));
    if (isDone) { close(); return; }
    list.hidden = false;
    set("expanded", true);
    input.removeAttribute("aria-activedescendant");
  };
  input.setAttribute("role", "combobox");
  set("autocomplete", "list"); set("expanded", false); set("controls", list.id);
  input.parentElement.append(list);
  input.addEventListener("input", (event) => {
    if (event.isTrusted) { if (wordBefore(input)) suggest(); else close(); }
  });
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (list.hidden) {
      if (step !== 1) return;
      suggest();
      if (!list.hidden) mark(0);
    } else if (step) mark(active < 0 && step < 0 ? -1 : active + step);
    else if (event.key === "Escape") close();
    else if ((event.key === "Enter" || event.key === "Tab") && active >= 0) choose(list.children[active].textContent);
    else return;
    event.preventDefault();
  });
}

for (const input of document.querySelectorAll("input[data-columns]")) {
  const frame = document.createElement("div");
  const colours = document.createElement("div");
  frame.className = "sql";
  colours.className = "colours";
  colours.setAttribute("aria-hidden", true);
  input.replaceWith(frame);
  frame.append(colours, input);
  const follow = () => { colours.scrollLeft = input.scrollLeft; };
  const show = () => { colours.replaceChildren(...colourSql(input.value)); follow(); };
  for (const each of ["scroll", "keyup", "click", "select"]) input.addEventListener(each, follow);
  input.addEventListener("input", show);
  show();
  completeColumns(input);
}
