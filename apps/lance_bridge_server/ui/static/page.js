// What pages have beyond plain HTML: "/" goes to the search, buttons copy, figures are filled in.
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
