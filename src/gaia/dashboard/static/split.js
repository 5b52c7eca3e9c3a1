// A list, and what is chosen of it: side by side, or one after the other on a narrow screen.

import { h } from "./elements.js";
import { isNarrow } from "./page.js";

const FEWEST_TO_FILTER = 9;

/** `back` is the address of the list, `pick(key)` is called for a click. */
export function split({ label, back, pick }) {
  const list = h("ul", { "aria-label": label });
  const search = h("input", { type: "search", placeholder: "Filter", "aria-label": `Find ${label.toLowerCase()}`, hidden: true });
  const content = h("div", { class: "content" });
  const detail = h("div", { class: "detail", tabindex: "-1" }, h("a", { class: "back", href: back }, h("span", { "aria-hidden": "true" }, "‹ "), `All ${label.toLowerCase()}`), content);
  const element = h("div", { class: "split" }, h("div", { class: "choices" }, search, list), detail);
  let chosen = null;

  const filter = () => {
    const word = search.value.trim().toLowerCase();
    for (const item of list.children) item.hidden = !item.textContent.toLowerCase().includes(word);
  };
  search.addEventListener("input", filter);

  const button = (key) => [...list.querySelectorAll("button")].find((one) => one.dataset.key === key);

  /** `items` are `{ key, title, disabled, content }`. */
  const fill = (items) => {
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    list.replaceChildren(...items.map((item) => h("li", {}, h("button", {
      type: "button", class: "pick", "data-key": item.key, disabled: Boolean(item.disabled), title: item.title,
      "aria-pressed": String(item.key === chosen), onclick: () => pick(item.key),
    }, item.content))));
    search.hidden = items.length < FEWEST_TO_FILTER;
    filter();
    if (focused !== null) button(focused)?.focus();
  };

  /** Show the details of one. `named` says whether the address names it: then it takes the place of the list. */
  const choose = (key, elements, named) => {
    const changed = key !== chosen;
    chosen = key;
    for (const one of list.querySelectorAll("button")) one.setAttribute("aria-pressed", String(one.dataset.key === key));
    content.replaceChildren(...elements);
    show(named, changed);
  };

  const show = (named, changed = true) => {
    const before = element.classList.contains("named");
    element.classList.toggle("named", named);
    if (!isNarrow() || (before === named && !changed)) return;
    if (named) {
      detail.focus({ preventScroll: true });
      detail.scrollIntoView({ block: "start" });
    } else if (before) button(chosen)?.focus();
  };

  return { element, fill, choose, show };
}
