// One server: what is wrong with it, buttons, and tabs.

import { serverAddress } from "./address.js";
import { get, Refused } from "./api.js";
import { callsPanel } from "./calls.js";
import { commandAbout, hasFailed, nextAttemptText, stateBadge } from "./condition.js";
import { controls } from "./controls.js";
import { h, nameText, panel } from "./elements.js";
import { crumbs, showMissing } from "./page.js";
import { promptsPanel } from "./prompts.js";
import { resourcesPanel } from "./resources.js";
import { state } from "./store.js";
import { timelinePanel } from "./timeline.js";
import { toolsPanel } from "./tools.js";
import { clock, duration } from "./words.js";

const TABS = ["tools", "resources", "prompts", "history", "details"];
/** Tabs for what only some servers offer. */
const OPTIONAL = ["resources", "prompts"];

export function serverView(name, ...rest) {
  const badges = h("span");
  const head = h("div", { class: "head" }, h("h1", {}, nameText(name)), badges);
  const control = controls(name);
  const facts = h("dl", { class: "facts-list" });
  const trouble = h("div", { class: "trouble", hidden: true });
  const disabled = h("p", { class: "facts", hidden: true });
  const stderr = h("pre", { class: "output", tabindex: "0" });
  const tools = toolsPanel(name);
  const resources = resourcesPanel(name);
  const prompts = promptsPanel(name);
  const timeline = timelinePanel(name);
  const calls = callsPanel(name);
  const errors = panel("Standard error", null, h("div", { class: "body" }, stderr));
  const about = panel("About", null, h("div", { class: "body" }, facts));
  const lists = { tools, resources, prompts };
  const parts = {
    tools: [tools.element, calls.element], resources: [resources.element], prompts: [prompts.element],
    history: [timeline.element], details: [about, errors],
  };
  const sections = Object.fromEntries(TABS.map((tab) => [tab, h("div", { class: "tab", hidden: true }, parts[tab])]));
  const links = Object.fromEntries(TABS.map((tab) => [tab, h("a", { href: serverAddress(name, tab) }, tab[0].toUpperCase() + tab.slice(1))]));
  const tabs = h("nav", { class: "tabs", "aria-label": `Views of ${name}` }, Object.values(links));
  let current = "tools";
  let offered = new Set();
  let loading = false;

  const open = (tab, item) => {
    current = TABS.includes(tab) ? tab : "tools";
    for (const one of TABS) {
      sections[one].hidden = one !== current;
      if (one === current) links[one].setAttribute("aria-current", "page");
      else links[one].removeAttribute("aria-current");
    }
    drawTabs();
    lists[current]?.open(item);
  };
  const drawTabs = () => {
    for (const tab of OPTIONAL) links[tab].hidden = !offered.has(tab) && current !== tab;
  };

  const load = async () => {
    if (loading) return;
    loading = true;
    try {
      const server = await get("api/server", { name });
      badges.replaceChildren(stateBadge(server));
      control.update(server);
      facts.replaceChildren(...serverFacts(server));
      drawTrouble(trouble, server);
      disabled.hidden = server.state !== "disabled";
      const enable = commandAbout(server, "enable");
      disabled.replaceChildren(`Disabled ${server.source ? `in ${server.source}` : "by the program"}.`, ...(enable ? [" To have it started, run ", h("code", {}, enable)] : []));
      errors.hidden = server.stderr === null;
      stderr.textContent = server.stderr || "Nothing was written on standard error.";
      offered = new Set(server.capabilities);
      drawTabs();
      for (const list of Object.values(lists)) list.show(server);
    } catch (error) {
      if (error instanceof Refused && error.status === 404) showMissing(error.message);
    } finally {
      loading = false;
    }
  };

  open(...rest);
  load();
  return {
    title: name, kind: "server",
    elements: [crumbs(), head, control.element, disabled, trouble, tabs, ...Object.values(sections)],
    update: (kind, data) => {
      if (kind === "servers" || kind === "snapshot") load();
      if (kind !== "event") calls.update();
      if (kind !== "running") timeline.update();
      const row = state.servers.find((server) => server.name === name);
      if (row) control.update(row);
      tools.update(kind, data);
    },
    tick: () => {
      timeline.update();
      load();
    },
    follow: (names) => {
      if (names[0] !== "server" || names[1] !== name) return false;
      open(...names.slice(2));
      return true;
    },
  };
}

function drawTrouble(trouble, server) {
  trouble.hidden = !server.last_error;
  trouble.className = hasFailed(server) ? "trouble" : "trouble past";
  const next = nextAttemptText(server);
  const advice = { failed: ["To find out more, run ", "doctor"], needs_authorization: ["To log in, run ", "login"] }[server.state];
  const command = advice ? commandAbout(server, advice[1]) : null;
  trouble.replaceChildren(...[
    h("h2", {}, hasFailed(server) ? "Why it failed" : "Last error"),
    h("pre", {}, server.last_error || ""),
    next ? h("p", {}, next) : null,
    command ? h("p", {}, advice[0], h("code", {}, command)) : null,
  ].filter(Boolean));
}

function standbyText(standby) {
  if (!standby) return null;
  const pid = standby.pid === null ? "" : `, process ${standby.pid}`;
  const next = standby.retry_at === null ? "" : `, next start ${clock(standby.retry_at)}`;
  const error = standby.last_error && standby.state !== "ready" ? `: ${standby.last_error}` : "";
  return `${standby.state}${pid}${next}${error}`;
}

function placeText(place) {
  if (!place) return null;
  const short = (identifier) => (identifier || "?").slice(0, 8);
  const hosts = place.hosts > 1 ? `, host number ${place.hosts}` : "";
  return `node ${place.node} (${short(place.node_id)}), actor ${short(place.actor)}, host process ${place.host_pid}${hosts}`;
}

function replicaText(replica) {
  const where = placeText(replica.placement) || "no place";
  const error = replica.last_error && replica.state !== "ready" ? `: ${replica.last_error}` : "";
  return `${replica.replica}: ${replica.state}, ${replica.in_flight} in flight, ${where}${error}`;
}

function serverFacts(server) {
  const info = server.server_info || {};
  const fact = (name, value, wide) => value === null || value === undefined || value === "" ? null
    : h("div", { class: wide ? "wide" : null }, h("dt", {}, name), h("dd", {}, String(value)));
  return [
    fact("Server", [info.name, info.version].filter(Boolean).join(" ")),
    fact("Protocol", server.protocol_version),
    fact("Process", server.pid),
    fact("Placed on", (server.replicas || []).length ? null : placeText(server.placement), true),
    ...(server.replicas || []).map((replica) => fact("Replica", replicaText(replica), true)),
    fact("Stand-by", standbyText(server.standby)),
    fact("Ready since", server.ready_since === null ? null : clock(server.ready_since)),
    fact("Generation", server.generation),
    fact("Restarts", server.restarts),
    fact("Recycled", server.recyclings ? `${server.recyclings}, last ${server.last_recycling}` : null),
    fact("In flight / queued", server.in_flight === undefined ? null : `${server.in_flight} / ${server.queued}`),
    fact("Calls / failed", server.calls === undefined ? null : `${server.calls} / ${server.errors}`),
    fact("Latency p50 / p95", (server.latency_p50 ?? null) === null ? null : `${duration(server.latency_p50)} / ${duration(server.latency_p95)}`),
    fact("Noise on standard output", server.noise_lines ? `${server.noise_lines} lines` : null),
    fact("Offers", (server.capabilities || []).join(", ")),
    fact("Configured in", server.source || "memory, by the program", true),
    fact("Instructions for models", server.instructions, true),
  ].filter(Boolean);
}
