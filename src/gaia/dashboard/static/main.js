// The page of `gaia mcp dashboard`. No build step, no library, nothing from elsewhere.

import { arrive } from "./address.js";
import { follow, takeToken } from "./api.js";
import { callView } from "./call_view.js";
import { overview } from "./overview.js";
import { announce, show, view } from "./page.js";
import { showServers } from "./server_list.js";
import { serverView } from "./server_view.js";
import { askForToken } from "./sign_in.js";
import { received } from "./store.js";
import { describeEvent } from "./words.js";

const TICK_MILLISECONDS = 3000;

/** Show what the address says. Focus goes to what is new. */
function route({ focus = false } = {}) {
  const names = arrive();
  const [kind, ...rest] = names;
  if (!view?.follow?.(names)) {
    if (kind === "server" && rest.length >= 1) show(serverView(...rest));
    else if (kind === "call" && rest.length === 2) show(callView(...rest));
    else show(overview());
    scrollTo(0, 0);
    if (focus) document.getElementById("main").focus({ preventScroll: true });
  }
  showServers();
}

/** The state that was told last of each server. */
const told = new Map();

/** Tell screen readers that a state has changed, but not each attempt to start a server that fails again. */
function tell(event) {
  if (event.new === "starting" || told.get(event.server) === event.new) return;
  told.set(event.server, event.new);
  announce(`${event.server} ${describeEvent(event)}`);
}

function start() {
  route();
  follow(
    (kind, data) => {
      received(kind, data);
      if (kind === "event" && data.kind === "state") tell(data);
      if (kind !== "progress") showServers();
      view?.update?.(kind, data);
    },
    (kind, text) => {
      const element = document.getElementById("connection");
      element.className = `connection ${kind}`;
      element.textContent = text;
    },
    () => askForToken(start),
  );
}

addEventListener("hashchange", () => (takeToken() ? start() : route({ focus: true })));
document.querySelector(".skip").addEventListener("click", (event) => {
  // The address stays what it is, so that a reload keeps the view.
  event.preventDefault();
  document.getElementById("main").focus();
});
setInterval(() => view?.tick?.(), TICK_MILLISECONDS);
takeToken();
start();
