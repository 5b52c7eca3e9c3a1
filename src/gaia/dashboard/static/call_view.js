// One call.

import { serverAddress } from "./address.js";
import { get, Refused } from "./api.js";
import { badge, empty, h, nameText, panel, place, table } from "./elements.js";
import { crumbs, showMissing } from "./page.js";
import { duration, json, now, preciseClock } from "./words.js";

/** One call, with the spans of its trace and its log events. */
export function callView(trace, span) {
  const content = h("div", { class: "panel" }, empty("Loading …"));
  const elements = [crumbs(), h("h1", {}, "Call"), content];
  let done = false;
  let stamp = "";
  const load = async () => {
    if (done) return;
    try {
      const about = await get("api/call", { trace, span });
      // What a call leads to, such as a restart of its server, begins right after its end.
      const over = about.call.seconds !== null && now() > about.call.started + about.call.seconds + 2;
      done = over && about.spans.every((one) => one.seconds !== null);
      if (stamp === JSON.stringify(about)) return;
      stamp = JSON.stringify(about);
      const main = document.getElementById("main");
      main.replaceChildren(...callElements(about));
    } catch (error) {
      if (error instanceof Refused && error.status === 404) showMissing(error.message);
    }
  };
  load();
  return { title: "Call", kind: "call", elements, update: (kind) => (kind === "call" ? load() : undefined), tick: load };
}

function callElements({ call, spans, logs }) {
  const attributes = call.attributes;
  const server = attributes["gaia.mcp.server.name"] || "?";
  const outcome = call.seconds === null ? "running" : call.status === "error" ? "error" : "ok";
  const [done, total] = [attributes["gaia.mcp.progress"], attributes["gaia.mcp.progress.total"]];
  const progress = done === undefined ? null : total === undefined ? done : `${done} of ${total}`;
  const fact = (name, value, kind) => value === undefined || value === null ? null
    : h("div", { class: kind }, h("dt", {}, name), h("dd", {}, String(value)));
  const facts = [
    fact("Server", server),
    fact("Started", preciseClock(call.started)),
    fact("Duration", duration(call.seconds)),
    fact("Progress", progress),
    fact("Error type", attributes["error.type"]),
    fact("Delivery", attributes["gaia.mcp.delivery"]),
    fact("Protocol", attributes["mcp.protocol.version"]),
    fact("Request id", attributes["jsonrpc.request.id"]),
    fact("Trace", call.trace_id, "wide"),
  ].filter(Boolean);
  return [
    crumbs(h("a", { href: serverAddress(server) }, nameText(server))),
    h("div", { class: "head" }, h("h1", { class: "mono" }, nameText(attributes["gen_ai.tool.name"] || call.name)), badge(outcome)),
    call.message ? h("div", { class: "trouble" }, h("pre", {}, call.message)) : null,
    panel("About", null, h("div", { class: "body" }, h("dl", { class: "facts-list" }, facts))),
    panel("Spans", h("span", { class: "facts" }, spans.length === 1 ? "1 span" : `${spans.length} spans`), waterfall(spans, call)),
    logsPanel(logs),
  ].filter(Boolean);
}

function waterfall(spans, call) {
  const container = h("div", { class: "waterfall" });
  for (const trace of new Set(spans.map((span) => span.trace_id))) {
    const own = spans.filter((span) => span.trace_id === trace);
    const begin = Math.min(...own.map((span) => span.started));
    const end = Math.max(...own.map((span) => (span.seconds === null ? now() : span.started + span.seconds)));
    if (trace !== call.trace_id) container.append(h("p", { class: "other-trace" }, `What became of the server, from ${preciseClock(begin)}`));
    for (const [span, depth] of inTreeOrder(own)) {
      container.append(spanRow(span, depth, begin, Math.max(end - begin, 1e-6), span.span_id === call.span_id));
    }
  }
  return container;
}

/** Parents before their children, in the order of their starts; a span whose parent is not kept is a root. */
function inTreeOrder(spans) {
  const known = new Set(spans.map((span) => span.span_id));
  const children = new Map();
  for (const span of spans) {
    const parent = known.has(span.parent_id) && span.parent_id !== span.span_id ? span.parent_id : null;
    if (!children.has(parent)) children.set(parent, []);
    children.get(parent).push(span);
  }
  const ordered = [];
  const waiting = (children.get(null) || []).map((span) => [span, 0]).reverse();
  while (waiting.length) {
    const [span, depth] = waiting.pop();
    ordered.push([span, depth]);
    waiting.push(...(children.get(span.span_id) || []).map((child) => [child, depth + 1]).reverse());
  }
  return ordered;
}

function spanRow(span, depth, begin, length, isCall) {
  const title = h("span", { class: "title" }, h("span", { title: span.name }, span.name));
  title.style.paddingLeft = `${Math.min(depth, 12) * 1.1}rem`;
  const bar = h("i");
  place(bar, span.started, span.seconds === null ? now() : span.started + span.seconds, begin, length);
  const summary = h("summary", {}, title, h("span", { class: "track", "aria-hidden": "true" }, bar), h("span", { class: "took" }, duration(span.seconds)));
  const inside = h("div", { class: "inside" },
    span.message && !isCall ? h("div", { class: "trouble" }, h("pre", {}, span.message)) : null,
    attributeList({ kind: span.kind, started: preciseClock(span.started), ...span.attributes }),
    span.events.map((event) => h("div", {}, h("h3", {}, `${event.name} at +${duration(event.at - span.started)}`), attributeList(event.attributes))));
  return h("details", { class: `span ${span.status} ${span.kind}`, open: isCall && depth === 0 ? "" : null }, summary, inside);
}

function attributeList(attributes) {
  const pairs = Object.entries(attributes).map(([name, value]) => [h("dt", {}, name), h("dd", {}, typeof value === "string" ? value : json(value))]);
  return h("dl", { class: "attributes" }, pairs.flat());
}

function logsPanel(logs) {
  if (!logs.length) return panel("Log events", null, empty("Nothing was logged about this call."));
  const rows = logs.map((line) => h("tr", {},
    h("td", { class: "time" }, preciseClock(line.at)),
    h("td", { class: `level-${line.level}` }, line.level),
    h("td", { class: "mono" }, line.event),
    h("td", { class: "mono" }, Object.entries(line.fields).map(([name, value]) => `${name}=${value}`).join("  "))));
  return panel("Log events", null, table("Log events", [["Time"], ["Level"], ["Event"], ["Fields"]], h("tbody", {}, rows), "logs"));
}
