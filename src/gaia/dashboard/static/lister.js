// A list that is asked of the server when its tab is opened: of resources, or of prompts.

import { h } from "./elements.js";

/**
 * `load()` gives the items, each with a `key`. They are shown in `both`, a split; `none` says why there are none. The
 * list is asked for again after a restart of the server, and with the button.
 */
export function lister(load, { both, none, nothing, label, detail, missing }) {
  const button = h("button", { type: "button", class: "quiet", onclick: () => fetch() }, "Reload");
  let items = [];
  let isOpen = false;
  let ready = false;
  let generation = null;
  let loaded = null;
  let named = null;
  let detailed = null;

  const choose = () => {
    const wanted = named === null ? items[0] : items.find((item) => item.key === named);
    const stamp = JSON.stringify([wanted, named]);
    if (stamp === detailed) {
      both.show(named !== null);
      return;
    }
    detailed = stamp;
    if (wanted) both.choose(wanted.key, detail(wanted), named !== null);
    else both.choose(null, [h("p", { class: "empty" }, `There is no ${missing} ${named}.`)], named !== null);
  };

  const say = (text) => {
    none.textContent = text;
    none.hidden = false;
    both.element.hidden = true;
  };

  const fetch = async () => {
    loaded = generation;
    button.disabled = true;
    if (!items.length) say("Loading …");
    try {
      items = await load();
      both.fill(items.map((item) => ({ key: item.key, title: item.key, content: label(item) })));
      none.hidden = true;
      both.element.hidden = false;
      if (items.length || named !== null) choose();
      else say(nothing);
    } catch (error) {
      items = [];
      say(error.message);
    } finally {
      button.disabled = false;
    }
  };

  const refresh = () => {
    if (!isOpen) return;
    if (!ready) {
      if (!items.length) say("Shown once the server is ready.");
    } else if (loaded !== generation) fetch();
  };

  return {
    button,
    /** Told of the server whenever something about it has changed. */
    show: (about) => {
      ready = about.state === "ready";
      generation = `${about.pid} ${about.generation} ${about.ready_since}`;
      refresh();
    },
    /** The tab was opened, with one of the items if the address names one. */
    open: (key) => {
      named = key ?? null;
      isOpen = true;
      if (items.length) choose();
      refresh();
    },
  };
}
