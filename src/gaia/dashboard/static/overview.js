// All servers.

import { callsPanel } from "./calls.js";
import { commandAbout, hasFailed, nextAttemptText, ordered, reasonOf, stateBadge } from "./condition.js";
import { controls } from "./controls.js";
import { serverAddress } from "./address.js";
import { h, nameText, panel, reconcile } from "./elements.js";
import { gatewayPanel } from "./gateway.js";
import { state } from "./store.js";
import { timelinePanel } from "./timeline.js";

export function overview() {
  const tiles = h("dl", { class: "tiles" });
  const trouble = troublePanel();
  const gateway = gatewayPanel();
  const timeline = timelinePanel();
  const calls = callsPanel();
  const update = (kind) => {
    drawTiles(tiles);
    trouble.update();
    gateway.update();
    if (kind !== "running") timeline.update();
    if (kind !== "event") calls.update();
  };
  drawTiles(tiles);
  trouble.update();
  gateway.update();
  return {
    title: "All servers", kind: "overview",
    elements: [h("h1", {}, "All servers"), tiles, trouble.element, gateway.element, timeline.element, calls.element],
    update, tick: timeline.update,
  };
}

function drawTiles(container) {
  const sum = (name) => state.servers.reduce((total, server) => total + (server[name] || 0), 0);
  const wanted = state.servers.filter((server) => server.state !== "disabled");
  const ready = wanted.filter((server) => server.state === "ready").length;
  const tile = (name, value, of, bad) => h("div", { class: bad ? "tile bad" : "tile" }, h("dt", {}, name),
    h("dd", {}, String(value), of === undefined ? null : h("small", {}, ` of ${of}`)));
  container.replaceChildren(
    tile("Servers ready", ready, wanted.length, ready < wanted.length),
    tile("Tools", sum("tool_count")),
    tile("Calls", sum("calls")),
    tile("Failed calls", sum("errors"), undefined, sum("errors") > 0),
    tile("In flight", sum("in_flight")),
    tile("Restarts", sum("restarts")),
  );
}

/**
 * The servers that failed: why, when each is tried again, and a button to do so now. One that was tried here stays until
 * the view is left, so that the user sees what came of it.
 */
function troublePanel() {
  const list = h("ul", { class: "failures", "aria-label": "Failed servers" });
  const element = panel("Failed servers", null, list);
  const buttons = new Map();
  const create = ({ name }) => {
    const control = controls(name, { stop: false });
    buttons.set(name, control);
    return h("li", {}, h("div", { class: "head" }), h("div", { class: "why" }), control.element);
  };
  const fill = (item, server) => {
    const [head, why] = item.children;
    head.replaceChildren(h("a", { href: serverAddress(server.name) }, nameText(server.name)), stateBadge(server));
    const login = server.state === "needs_authorization" ? commandAbout(server, "login") : null;
    why.replaceChildren(...[
      server.reason ? h("pre", { class: "reason", title: server.reason }, server.reason) : null,
      login ? h("p", { class: "facts" }, "To log in, run ", h("code", {}, login)) : null,
      server.next ? h("p", { class: "facts" }, server.next) : null,
    ].filter(Boolean));
    buttons.get(server.name).update(server);
  };
  const update = () => {
    const listed = ordered(state.servers).filter((server) => hasFailed(server) || buttons.get(server.name)?.hasNews())
      .map((server) => ({ ...server, reason: reasonOf(server), next: nextAttemptText(server) }));
    element.hidden = listed.length === 0;
    reconcile(list, listed, (server) => server.name, create, fill);
    // Those that are listed no longer; one that fails again gets new ones.
    for (const name of [...buttons.keys()]) if (!listed.some((server) => server.name === name)) buttons.delete(name);
  };
  return { element, update };
}
