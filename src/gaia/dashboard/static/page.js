// The view that is shown. A view has `title`, `elements`, and as it needs them: `update(kind, data)` for each event of the
// stream, `tick()` every few seconds, and `follow(names)`, which is true if it shows another address itself.

import { h, empty } from "./elements.js";

export let view = null;

const narrowScreen = matchMedia("(max-width: 900px)");

/** Whether there is room for one column only. */
export function isNarrow() {
  return narrowScreen.matches;
}

export function show(next) {
  view = next;
  document.title = `${next.title} – gaia dashboard`;
  document.body.dataset.view = next.kind;
  document.getElementById("main").replaceChildren(...next.elements);
}

export function showMissing(message) {
  show({ title: "Not found", kind: "missing", elements: [crumbs(), h("h1", {}, "Nothing here"), empty(message)] });
}

/** The way back. */
export function crumbs(...more) {
  return h("nav", { class: "crumbs", "aria-label": "Way back" }, h("a", { href: "#/" }, h("span", { "aria-hidden": "true" }, "‹ "), "All servers"),
    more.map((part) => [h("span", { "aria-hidden": "true" }, "/"), part]).flat());
}

export function announce(text) {
  document.getElementById("announcer").textContent = text;
}
