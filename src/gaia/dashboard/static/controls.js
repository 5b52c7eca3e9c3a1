// Buttons that start, restart and stop a server, and say what happened.

import { post } from "./api.js";
import { hasFailed, isOff, nextAttempt } from "./condition.js";
import { h } from "./elements.js";
import { duration } from "./words.js";

/** `stop` says whether there is a button to stop it, too. */
export function controls(name, { stop = true } = {}) {
  const said = h("p", { class: "said", role: "status" });
  const starter = h("button", { type: "button", class: "quiet", onclick: () => restart() });
  const stopper = h("button", { type: "button", class: "quiet danger", onclick: () => halt() });
  let server = null;
  let busy = false;

  const change = async (path, doing, done) => {
    busy = true;
    draw();
    said.className = "said";
    said.textContent = doing;
    const began = performance.now();
    try {
      said.textContent = done(await post(path, { server: name }), (performance.now() - began) / 1000);
    } catch (error) {
      said.className = "said wrong";
      said.textContent = error.message;
    } finally {
      busy = false;
      draw();
    }
  };

  const restart = async () => {
    if (busy) return;
    change("api/restart", "Starting …", (result, seconds) => {
      if (result.state === "ready" && result.failed) {
        said.className = "said wrong";
        return `The old process goes on: ${result.error}`;
      }
      if (result.state === "ready") return `Ready after ${duration(seconds)}.`;
      if (!result.error) return "It is still starting.";
      said.className = "said wrong";
      return `It did not start: ${result.error}`;
    });
  };

  const halt = async () => {
    if (busy) return;
    const calls = server?.in_flight || 0;
    const text = calls ? `${calls === 1 ? "A call is" : `${calls} calls are`} under way, and will fail as cancelled.` : "Calls to it fail until it is started again.";
    if (!(await confirmed(`Stop ${name}?`, text, "Stop"))) return;
    change("api/stop", "Stopping …", () => "Stopped. It stays so until it is started here, or the program is started again.");
  };

  const draw = () => {
    if (!server) return;
    const state = server.state;
    starter.textContent = hasFailed(server) ? "Try again now" : isOff(server) ? "Start" : "Restart";
    stopper.textContent = state === "failed" ? "Stop trying" : "Stop";
    toggle(starter, !server.is_remote && state !== "disabled" && state !== "starting" && !server.unusable);
    toggle(stopper, !server.is_remote && stop && !isOff(server) && (!hasFailed(server) || state === "starting" || nextAttempt(server) !== null));
    for (const button of [starter, stopper]) button.setAttribute("aria-disabled", String(busy));
  };

  /** Focus goes to the other button if this one goes away. */
  const toggle = (button, visible) => {
    const other = button === starter ? stopper : starter;
    const focused = document.activeElement === button;
    button.hidden = !visible;
    if (focused && !visible && !other.hidden) other.focus();
  };

  return {
    element: h("div", { class: "controls", role: "group", "aria-label": `Control ${name}` }, starter, stopper, said),
    update: (about) => {
      server = about;
      draw();
    },
    /** Whether it is at work, or has said what came of it. */
    hasNews: () => busy || said.textContent !== "",
  };
}

/** Ask once, in a dialog. Escape is no. */
function confirmed(title, text, verb) {
  const opener = document.activeElement;
  const dialog = h("dialog", { class: "confirm", "aria-labelledby": "confirm-title", "aria-describedby": "confirm-text" });
  const close = (value) => dialog.close(value);
  dialog.append(
    h("h2", { id: "confirm-title" }, title),
    h("p", { id: "confirm-text" }, text),
    h("div", { class: "actions" },
      h("button", { type: "button", class: "main danger", onclick: () => close("yes") }, verb),
      h("button", { type: "button", class: "quiet", onclick: () => close(""), autofocus: true }, "Cancel")));
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      opener?.focus();
      resolve(dialog.returnValue === "yes");
    });
  });
}
