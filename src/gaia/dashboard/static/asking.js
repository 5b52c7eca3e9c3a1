// Asking a server: a button that asks, one that cancels, the progress, and what came of it.

import { h } from "./elements.js";
import { duration } from "./words.js";

let questions = 0;

/** A prefix for ids of inputs that no other form on the page has. */
export function idPrefix() {
  questions += 1;
  return `question-${questions}`;
}

/**
 * A form. `read()` gives what is asked for, or throws what is wrong with it; `ask(value, signal, report)` gives the
 * elements that show the answer, from the value and the seconds it took: `[result, elements]`.
 */
export function question({ label, verb, inputs, extras = [], read, ask }) {
  const run = h("button", { class: "main" }, verb);
  const cancel = h("button", { type: "button", class: "quiet", hidden: true }, "Cancel");
  const wrong = h("p", { class: "wrong", role: "alert", hidden: true });
  const progress = h("p", { class: "under-way", hidden: true });
  const result = h("div", { class: "result", "aria-live": "polite" });
  let busy = false;

  const complain = (message) => {
    wrong.textContent = message;
    wrong.hidden = !message;
  };

  const report = ({ progress: done, total, message }) => {
    const known = typeof total === "number" && total > 0 && typeof done === "number";
    const words = known ? `${Math.min(100, Math.round((done / total) * 100))} %` : done === null ? "" : String(done);
    progress.replaceChildren(...[
      known ? h("progress", { max: String(total), value: Math.min(done, total), "aria-label": "Progress" }) : null,
      h("span", {}, [words, message].filter(Boolean).join(" · ")),
    ].filter(Boolean));
  };

  const submit = async (event) => {
    event.preventDefault();
    if (busy) return;
    let value;
    try {
      value = read();
      complain("");
    } catch (error) {
      complain(error.message);
      return;
    }
    const controller = new AbortController();
    cancel.onclick = () => controller.abort();
    busy = true;
    run.setAttribute("aria-disabled", "true");
    cancel.hidden = false;
    progress.hidden = false;
    progress.replaceChildren("Waiting for the server …");
    result.replaceChildren();
    const began = performance.now();
    try {
      result.replaceChildren(...await ask(value, controller.signal, report, () => (performance.now() - began) / 1000));
    } catch (error) {
      const message = error.name === "AbortError" ? "Cancelled. The server was told." : error.message;
      result.replaceChildren(h("div", { class: "trouble" }, message));
    } finally {
      busy = false;
      run.removeAttribute("aria-disabled");
      if (document.activeElement === cancel) run.focus();
      cancel.hidden = true;
      progress.hidden = true;
    }
  };

  const actions = h("div", { class: "actions" }, run, cancel, extras);
  return h("form", { onsubmit: submit, "aria-label": label, novalidate: true }, inputs, wrong, actions, progress, result);
}

/** How long an answer took. */
export function took(seconds) {
  return h("span", { class: "facts" }, duration(seconds));
}
