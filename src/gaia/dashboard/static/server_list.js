// The servers, at the side; on a narrow screen they are the first page.

import { isAbout, recall, remember, serverAddress } from "./address.js";
import { hasFailed, nextAttemptText, ordered, reasonOf, stateBadge } from "./condition.js";
import { h, nameText, reconcile, svg } from "./elements.js";
import { state } from "./store.js";
import { duration } from "./words.js";

const FEWEST_TO_FILTER = 2;
const FEWEST_TO_DRAW = 5;

const list = document.getElementById("servers");
const search = document.getElementById("find-servers");
const count = document.getElementById("server-count");

search.addEventListener("input", () => {
  remember("servers", search.value);
  showServers();
});

export function showServers() {
  if (document.activeElement !== search) search.value = recall("servers");
  search.hidden = state.servers.length < FEWEST_TO_FILTER && !search.value;
  const failed = state.servers.filter(hasFailed).length;
  const all = state.servers.length === 1 ? "1 server" : `${state.servers.length} servers`;
  count.textContent = !state.servers.length ? "Servers" : failed ? `${all}, ${failed} failed` : all;
  if (!state.servers.length) {
    list.replaceChildren(h("li", { class: "none" }, "No servers are configured. Add one:",
      h("code", {}, 'gaia mcp add time "uvx mcp-server-time"')));
    return;
  }
  const word = search.value.trim().toLowerCase();
  const fitting = ordered(state.servers).filter((server) => !word
    || [server.name, server.state, reasonOf(server)].join(" ").toLowerCase().includes(word));
  if (!fitting.length) {
    list.replaceChildren(h("li", { class: "none" }, "No server fits the filter."));
    return;
  }
  const latencies = new Map();
  for (const call of state.calls) {
    if (!latencies.has(call.server)) latencies.set(call.server, []);
    latencies.get(call.server).push(call.seconds);
  }
  const lines = fitting.map((server) => ({
    ...server, reason: reasonOf(server), next: nextAttemptText(server), spark: (latencies.get(server.name) || []).slice(-40),
  }));
  reconcile(list, lines, (server) => `server ${server.name}`, () => h("li", {}, h("a", { class: "server" })), update);
  for (const link of list.querySelectorAll(".server")) {
    if (isAbout(link.dataset.server)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function replicasText(replicas) {
  const ready = replicas.filter((replica) => replica.state === "ready").length;
  const number = ready === replicas.length ? `${ready}` : `${ready} of ${replicas.length}`;
  return replicas.length === 1 ? `${number} replica` : `${number} replicas`;
}

function update(element, server) {
  const link = element.firstElementChild;
  link.dataset.server = server.name;
  link.href = serverAddress(server.name);
  const facts = [];
  if (server.tool_count) facts.push(server.tool_count === 1 ? "1 tool" : `${server.tool_count} tools`);
  if (server.restarts) facts.push(server.restarts === 1 ? "1 restart" : `${server.restarts} restarts`);
  if ((server.replicas || []).length) facts.push(replicasText(server.replicas));
  else if (server.placement) facts.push(`on ${server.placement.node}`);
  const load = [];
  if (server.in_flight) load.push(`${server.in_flight} in flight`);
  if (server.queued) load.push(`${server.queued} queued`);
  const called = server.latency_p50 !== null && server.latency_p50 !== undefined;
  const spark = sparkline(server.spark);
  link.replaceChildren(...[
    h("span", { class: "line" }, nameText(server.name), stateBadge(server)),
    server.reason ? h("span", { class: hasFailed(server) ? "reason" : "reason busy", title: server.reason }, server.reason) : null,
    server.next ? h("span", { class: "facts" }, server.next) : null,
    facts.length || spark ? h("span", { class: "line" }, h("span", { class: "facts" }, facts.join(" · ")), spark) : null,
    called ? h("span", { class: "facts" }, `p50 ${duration(server.latency_p50)} · p95 ${duration(server.latency_p95)}`) : null,
    load.length ? h("span", { class: "facts" }, load.join(" · ")) : null,
  ].filter(Boolean));
}

function sparkline(values) {
  if (values.length < FEWEST_TO_DRAW) return null;
  const most = Math.max(...values, 1e-9);
  const points = values.map((value, index) => `${(index / (values.length - 1)) * 72},${19 - (value / most) * 17}`);
  return svg("svg", { class: "spark", viewBox: "0 0 72 20", "aria-hidden": "true" }, svg("polyline", { points: points.join(" ") }));
}
