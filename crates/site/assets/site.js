// The pages work without this. It adds: a theme that is kept, keys, copy buttons, and search inside a static export.
"use strict";

const root = document.documentElement;
root.classList.add("scripted");

function stored(key, value) {
  try {
    if (value !== undefined) localStorage.setItem(key, value);
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

const theme = stored("theme");
if (theme === "light" || theme === "dark") root.dataset.theme = theme;

function switchTheme() {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  stored("theme", root.dataset.theme);
}

function typing(target) {
  return target.closest("input, select, textarea, [contenteditable]") !== null;
}

// Moves the focus among the main links of the page's lists and tables, as arrow keys do in a list.
function step(by) {
  const rows = [...document.querySelectorAll("main .entries a:first-child, main tbody a.row")].filter((link) => link.offsetParent);
  if (rows.length === 0) return;
  const at = rows.indexOf(document.activeElement);
  const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by));
  rows[next].focus();
}

document.addEventListener("keydown", (event) => {
  const find = document.getElementById("find");
  if (event.key.toLowerCase() === "k" && (event.metaKey || event.ctrlKey) && !event.altKey && !event.shiftKey) {
    event.preventDefault();
    find?.focus();
    find?.select();
    return;
  }
  if (event.key === "Escape" && typing(event.target)) event.target.blur();
  if (event.metaKey || event.ctrlKey || event.altKey || typing(event.target)) return;
  if (event.key === "/") {
    event.preventDefault();
    find?.focus();
  } else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
});

function addCopyButtons() {
  if (!navigator.clipboard) return;
  for (const block of document.querySelectorAll(".command")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(block.querySelector("code").textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.append(button);
  }
}

// A file server cannot search. The export's search page lists everything, and this shows what fits.
function filterExport() {
  const list = document.querySelector("[data-filter]");
  const query = new URLSearchParams(location.search).get("q");
  if (!list || !query || !root.hasAttribute("data-static")) return;
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0;
  for (const entry of list.children) {
    const text = entry.textContent.toLowerCase();
    entry.hidden = !words.every((word) => text.includes(word));
    if (!entry.hidden) found += 1;
  }
  for (const input of document.querySelectorAll('input[name="q"]')) input.value = query;
  const count = document.querySelector("[data-count]");
  if (count) count.textContent = `${found} found for “${query}”`;
}

document.addEventListener("DOMContentLoaded", () => {
  document.getElementById("theme")?.addEventListener("click", switchTheme);
  addCopyButtons();
  filterExport();
});
