// Elements of the page. Text of servers gets into them as text nodes only: the page's content security policy forbids
// everything else.

/** An element with properties (`class`, `onclick`, attributes) and children; strings become text nodes. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/**
 * Make the children of `container` those of `items`, keeping the elements of those that stay: focus stays with them.
 * No two items may have one key.
 */
export function reconcile(container, items, key, create, update) {
  const old = new Map([...container.children].map((child) => [child.dataset.key, child]));
  let place = container.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let element = old.get(name);
    old.delete(name);
    const stamp = JSON.stringify(item);
    if (!element) {
      element = create(item);
      element.dataset.key = name;
    }
    if (element.dataset.stamp !== stamp) {
      update(element, item);
      element.dataset.stamp = stamp;
    }
    if (element === place) place = place.nextElementSibling;
    else container.insertBefore(element, place);
  }
  for (const element of old.values()) element.remove();
}

export function badge(word, kind = word) {
  return h("span", { class: `badge ${String(kind).replace(/[^a-z]/g, "")}` }, String(word).replaceAll("_", " "));
}

/** A name that may be long: it wraps at its separators, and its title is the whole name. */
export function nameText(name) {
  const parts = String(name).split(/(?<=[-_./:@])/);
  return h("span", { class: "name", title: name }, parts.flatMap((part, index) => (index ? [h("wbr"), part] : [part])));
}

export function empty(text) {
  return h("p", { class: "empty" }, text);
}

export function panel(title, tools, ...body) {
  return h("section", { class: "panel", "aria-label": title }, h("header", {}, h("h2", {}, title), tools), ...body);
}

/** A table in a box that scrolls, also by keyboard. `kinds` are classes. */
export function table(caption, columns, body, kinds) {
  const head = columns.map(([name, kind]) => h("th", { scope: "col", class: kind }, name));
  const element = h("table", { class: kinds }, h("caption", { class: "hidden" }, caption), h("thead", {}, h("tr", {}, head)), body);
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption }, element);
}

/** Lay a bar from `from` to `to` over a track of `length` seconds that begins at `begin`. */
export function place(bar, from, to, begin, length) {
  const left = Math.max(0, (from - begin) / length);
  const right = Math.min(1, (to - begin) / length);
  bar.style.left = `${left * 100}%`;
  bar.style.width = `${Math.max(0, right - left) * 100}%`;
}
