// What the pages have beyond plain HTML: "/" goes to the search, and buttons copy snippets.
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
