// The page of `gaia mcp dashboard`. No build step, no library, nothing from elsewhere.
//
// Names, descriptions, results, logs: nearly all text here was written by other people's servers. It gets into the page
// as text nodes only. The page's content security policy forbids everything else.
"use strict";

const TOKEN_KEY = "gaia.dashboard.token";
const MOST_CALLS = 300;
const MOST_EVENTS = 1000;
const WINDOWS = [["5 minutes", 300], ["15 minutes", 900], ["1 hour", 3600]];
const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const DELIVERY = {
  not_sent: "The server did not get the call: it is safe to repeat it.",
  unknown: "The server may have acted on the call: look before you repeat it.",
};
const WITHHELD = {
  denied: "A tool filter denies this tool: it cannot be called.",
  "not approved": "The definition of this tool is not the approved one: it cannot be called.",
};
const ANSWERED = new Set(["jsonrpc", "invalid_response", "denied"]);

const state = { servers: [], running: [], calls: [], events: [] };
let view = null;
/** How often following was begun: only the last one goes on. */
let followers = 0;

// Elements -----------------------------------------------------------------------------------------------------------

/** An element with properties (`class`, `onclick`, attributes) and children; strings become text nodes. */
function h(tag, properties = {}, ...children) {
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

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/**
 * Make the children of `container` those of `items`, keeping the elements of those that stay: focus stays with them.
 * No two items may have one key.
 */
function reconcile(container, items, key, create, update) {
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

function badge(word, kind = word) {
  return h("span", { class: `badge ${String(kind).replace(/[^a-z]/g, "")}` }, String(word).replaceAll("_", " "));
}

function empty(text) {
  return h("p", { class: "empty" }, text);
}

function panel(title, tools, ...body) {
  return h("section", { class: "panel", "aria-label": title }, h("header", {}, h("h2", {}, title), tools), ...body);
}

function table(caption, columns, body) {
  const head = columns.map(([name, kind]) => h("th", { scope: "col", class: kind }, name));
  return h("table", {}, h("caption", { class: "hidden" }, caption), h("thead", {}, h("tr", {}, head)), body);
}

// Words --------------------------------------------------------------------------------------------------------------

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.01) return `${(seconds * 1000).toFixed(2)} ms`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(2)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function clock(at) {
  return new Date(at * 1000).toLocaleTimeString([], { hour12: false });
}

function preciseClock(at) {
  return `${clock(at)}.${String(Math.floor((at % 1) * 1000)).padStart(3, "0")}`;
}

function now() {
  return Date.now() / 1000;
}

function json(value) {
  return JSON.stringify(value, null, 2);
}

function describeEvent(event) {
  switch (event.kind) {
    case "state":
      return `${event.old === null ? "is" : "became"} ${event.new.replaceAll("_", " ")}${event.reason ? `: ${event.reason}` : ""}`;
    case "restarted":
      return `ready again after ${duration(event.downtime)}, generation ${event.generation}`;
    case "gave_up":
      return `given up: ${event.reason}${event.retry_in === null ? "" : `; tried again in ${duration(event.retry_in)}`}`;
    case "tools":
      return `tools ${describeChanges(event)}`;
    case "definitions":
      return `tools are not as approved${event.blocked ? ", and withheld" : ""}: ${describeChanges(event)}`;
    default:
      return event.kind;
  }
}

function describeChanges(event) {
  const parts = ["added", "removed", "changed"].filter((word) => event[word].length);
  return parts.map((word) => `${word}: ${event[word].join(", ")}`).join("; ");
}

// The API ------------------------------------------------------------------------------------------------------------

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function token() {
  return sessionStorage.getItem(TOKEN_KEY) || "";
}

/** Take the token out of the address, so that it is in no bookmark, history or screenshot. */
function takeToken() {
  const given = new URLSearchParams(location.hash.replace(/^#\/?/, "")).get("token");
  if (given) {
    sessionStorage.setItem(TOKEN_KEY, given);
    history.replaceState(null, "", `${location.pathname}#/`);
  }
}

async function request(path, options = {}) {
  const response = await fetch(path, {
    ...options,
    headers: { authorization: `Bearer ${token()}`, "content-type": "application/json" },
  });
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new Refused(response.status, body.error?.message || `The dashboard answered ${response.status}`);
}

async function get(path, parameters) {
  return (await request(`${path}?${new URLSearchParams(parameters)}`)).json();
}

/** Follow the stream for as long as the page is open. `EventSource` cannot send the token, so it is read by hand. */
async function follow() {
  const mine = ++followers;
  let wait = 500;
  while (mine === followers) {
    try {
      const response = await request("api/events");
      showConnection("live", "live");
      wait = 500;
      await readEvents(response.body.getReader());
    } catch (error) {
      if (error instanceof Refused && error.status === 401) {
        showConnection("lost", "signed out");
        askForToken(token() ? "This token is not the right one any more." : "");
        return;
      }
    }
    showConnection("lost", "not connected, trying again");
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(wait * 2, 5000);
  }
}

async function readEvents(reader) {
  const decoder = new TextDecoder();
  let pending = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    pending += decoder.decode(value, { stream: true });
    const blocks = pending.split("\n\n");
    pending = blocks.pop();
    for (const block of blocks) {
      const match = /^event: (\w+)\ndata: (.*)$/s.exec(block);
      if (match) received(match[1], JSON.parse(match[2]));
    }
  }
}

function received(kind, data) {
  if (kind === "snapshot") Object.assign(state, data);
  else if (kind === "servers" || kind === "running") state[kind] = data;
  else if (kind === "call") state.calls = appended(state.calls, data, "span_id", MOST_CALLS);
  else if (kind === "event") {
    state.events = appended(state.events, data, "id", MOST_EVENTS);
    if (data.kind === "state") announce(`${data.server} ${describeEvent(data)}`);
  }
  showServers();
  view?.update?.(kind);
}

/** What happens while a snapshot is made may be in it, and told once more after it. */
function appended(items, item, key, most) {
  return items.some((one) => one[key] === item[key]) ? items : [...items, item].slice(-most);
}

function showConnection(kind, text) {
  const element = document.getElementById("connection");
  element.className = `connection ${kind}`;
  element.textContent = text;
}

function announce(text) {
  document.getElementById("announcer").textContent = text;
}

// Servers, at the side -----------------------------------------------------------------------------------------------

function showServers() {
  const list = document.getElementById("servers");
  if (!state.servers.length) {
    list.replaceChildren(h("li", { class: "none" }, "No servers are configured. Add one:",
      h("code", {}, 'gaia mcp add time "uvx mcp-server-time"')));
    return;
  }
  const latencies = new Map();
  for (const call of state.calls) {
    if (!latencies.has(call.server)) latencies.set(call.server, []);
    latencies.get(call.server).push(call.seconds);
  }
  const lines = state.servers.map((server) => ({ ...server, spark: (latencies.get(server.name) || []).slice(-40) }));
  const key = (server) => `server ${server.name}`;
  reconcile(list, lines, key, () => h("li", {}, h("a", { class: "server" })), updateServer);
  markCurrent();
}

function updateServer(element, server) {
  const link = element.firstElementChild;
  link.href = serverAddress(server.name);
  const facts = [];
  if (server.tool_count) facts.push(`${server.tool_count} tools`);
  if (server.restarts) facts.push(server.restarts === 1 ? "1 restart" : `${server.restarts} restarts`);
  const load = [];
  if (server.in_flight) load.push(`${server.in_flight} in flight`);
  if (server.queued) load.push(`${server.queued} queued`);
  const called = server.latency_p50 !== null && server.latency_p50 !== undefined;
  const spark = sparkline(server.spark);
  link.replaceChildren(...[
    h("span", { class: "line" }, h("span", { class: "name", title: server.name }, server.name), badge(server.state)),
    facts.length || spark ? h("span", { class: "line" }, h("span", { class: "facts" }, facts.join(" · ")), spark) : null,
    called ? h("span", { class: "facts" }, `p50 ${duration(server.latency_p50)} · p95 ${duration(server.latency_p95)}`) : null,
    load.length ? h("span", { class: "facts" }, load.join(" · ")) : null,
  ].filter(Boolean));
}

function sparkline(values) {
  if (values.length < 2) return null;
  const most = Math.max(...values, 1e-9);
  const points = values.map((value, index) => `${(index / (values.length - 1)) * 72},${19 - (value / most) * 17}`);
  return svg("svg", { class: "spark", viewBox: "0 0 72 20", "aria-hidden": "true" }, svg("polyline", { points: points.join(" ") }));
}

function serverAddress(name) {
  return `#/server/${encodeURIComponent(name)}`;
}

function callAddress(call) {
  return `#/call/${encodeURIComponent(call.trace_id)}/${encodeURIComponent(call.span_id)}`;
}

function markCurrent() {
  for (const link of document.querySelectorAll(".server")) {
    if (link.getAttribute("href") === location.hash) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

// The table of calls -------------------------------------------------------------------------------------------------

/** A panel with the calls of all servers, or of one. */
function callsPanel(server) {
  const body = h("tbody");
  const search = h("input", { type: "search", placeholder: "tool, server or error", "aria-label": "Find calls" });
  const failures = h("input", { type: "checkbox" });
  const columns = [["Time"], ["Server"], ["Tool"], ["Outcome"], ["Duration", "number"], ["Message"]];
  const none = empty("");
  const shown = h("div", { class: "scroll" }, table("Tool calls, the latest first", columns, body));
  const update = () => {
    const word = search.value.trim().toLowerCase();
    const running = state.running.map((call) => ({ ...call, seconds: Math.max(0, Math.floor(now() - call.started)) }));
    // For a moment a call that has ended may be among those under way, too.
    const ended = new Set(state.calls.map((call) => call.span_id));
    const all = [...state.calls, ...running.filter((call) => !ended.has(call.span_id))].filter((call) => server === undefined || call.server === server);
    const calls = all
      .filter((call) => !failures.checked || call.outcome === "error")
      .filter((call) => !word || [call.tool, call.server, call.error_type, call.message].join(" ").toLowerCase().includes(word))
      .sort((one, other) => other.started - one.started)
      .slice(0, MOST_CALLS);
    none.textContent = all.length ? "No call fits the filter." : "No tool has been called yet. Calls appear here as they are made.";
    none.hidden = calls.length > 0;
    shown.hidden = calls.length === 0;
    reconcile(body, calls, (call) => call.span_id, createCall, updateCall);
  };
  search.addEventListener("input", update);
  failures.addEventListener("change", update);
  const filters = h("div", { class: "filters" }, h("label", {}, failures, "failures only"), search);
  update();
  return { element: panel("Tool calls", filters, shown, none), update };
}

function createCall(call) {
  return h("tr", { class: "link", onclick: (event) => {
    if (!event.target.closest("a")) location.hash = callAddress(call);
  } });
}

function updateCall(row, call) {
  const message = [call.error_type, call.message].filter(Boolean).join(": ");
  row.replaceChildren(
    h("td", { class: "time" }, clock(call.started)),
    h("td", {}, h("a", { href: serverAddress(call.server) }, call.server)),
    h("td", { class: "mono" }, h("a", { href: callAddress(call) }, call.tool || "?")),
    h("td", {}, badge(call.outcome)),
    h("td", { class: "number" }, call.outcome === "running" ? `${call.seconds} s …` : duration(call.seconds)),
    h("td", { class: "message", title: message }, message),
  );
}

// The timeline -------------------------------------------------------------------------------------------------------

function timelinePanel(server) {
  const lanes = h("div", { class: "lanes" });
  const events = h("tbody");
  const columns = [["Time"], ["Server"], ["Event"]];
  const choice = h("select", { "aria-label": "Period" }, WINDOWS.map(([name, seconds]) => h("option", { value: seconds }, name)));
  choice.value = "300";
  const legend = h("div", { class: "legend" }, ["ready", "restarting", "failed", "stopped"].map((word) => h("span", { class: word }, word)));
  const update = () => {
    const fitting = state.events.filter((event) => server === undefined || event.server === server);
    drawLanes(lanes, fitting, server, Number(choice.value));
    const latest = fitting.slice(-100).reverse();
    events.replaceChildren(...latest.map((event) => h("tr", {},
      h("td", { class: "time" }, clock(event.at)), h("td", {}, event.server), h("td", {}, describeEvent(event)))));
  };
  choice.addEventListener("change", update);
  update();
  const history = h("details", { class: "history" }, h("summary", {}, "Events in words"),
    h("div", { class: "scroll" }, table("Events, the latest first", columns, events)));
  const tools = h("div", { class: "filters" }, legend, h("div", {}, choice));
  return { element: panel("Restarts and states", tools, h("div", { class: "body" }, lanes, history)), update };
}

function drawLanes(container, events, only, seconds) {
  const end = now();
  const begin = end - seconds;
  const rows = [];
  for (const { name } of state.servers.filter((server) => only === undefined || server.name === only)) {
    const own = events.filter((event) => event.server === name);
    const lane = h("div", { class: "lane", role: "img", "aria-label": laneInWords(name, own) });
    const states = own.filter((event) => event.kind === "state");
    states.forEach((event, index) => {
      const until = index + 1 < states.length ? states[index + 1].at : end;
      if (until < begin || event.new === "created" || event.new === "closed") return;
      const piece = h("i", { class: event.new, title: `${clock(event.at)} ${describeEvent(event)}` });
      place(piece, event.at, until, begin, seconds);
      lane.append(piece);
    });
    for (const event of own.filter((event) => event.kind === "restarted" && event.at >= begin)) {
      const mark = h("i", { class: "restart", title: `${clock(event.at)} ${describeEvent(event)}` });
      mark.style.left = `${((event.at - begin) / seconds) * 100}%`;
      lane.append(mark);
    }
    rows.push(h("span", { class: "label", title: name }, name), lane);
  }
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => h("span", {}, clock(begin + share * seconds)));
  container.replaceChildren(...(rows.length ? [...rows, h("div", { class: "axis", "aria-hidden": "true" }, ticks)] : [h("p", { class: "none" }, "There is nothing to draw yet.")]));
}

function laneInWords(name, events) {
  const restarts = events.filter((event) => event.kind === "restarted").length;
  const last = events.findLast((event) => event.kind === "state");
  return `${name}: ${last ? last.new : "not started"}, ${restarts === 1 ? "1 restart" : `${restarts} restarts`}`;
}

/** Lay a bar from `from` to `to` over a track of `length` seconds that begins at `begin`. */
function place(bar, from, to, begin, length) {
  const left = Math.max(0, (from - begin) / length);
  const right = Math.min(1, (to - begin) / length);
  bar.style.left = `${left * 100}%`;
  bar.style.width = `${Math.max(0, right - left) * 100}%`;
}

// All servers --------------------------------------------------------------------------------------------------------

function overview() {
  const tiles = h("dl", { class: "tiles" });
  const timeline = timelinePanel();
  const calls = callsPanel();
  const update = (kind) => {
    drawTiles(tiles);
    if (kind !== "running") timeline.update();
    if (kind !== "event") calls.update();
  };
  drawTiles(tiles);
  return { title: "All servers", elements: [h("h1", {}, "All servers"), tiles, timeline.element, calls.element], update, tick: timeline.update };
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

// One server ---------------------------------------------------------------------------------------------------------

function serverView(name) {
  const head = h("div", { class: "head" });
  const facts = h("dl", { class: "facts-list" });
  const trouble = h("div", { class: "trouble", hidden: true });
  const stderr = h("pre", { class: "output", tabindex: "0" });
  const tools = toolsPanel(name);
  const timeline = timelinePanel(name);
  const calls = callsPanel(name);
  const errors = panel("Standard error", null, h("div", { class: "body" }, stderr));
  const about = panel("About", null, h("div", { class: "body" }, facts));
  let loading = false;

  const load = async () => {
    if (loading) return;
    loading = true;
    try {
      const server = await get("api/server", { name });
      head.replaceChildren(h("h1", {}, name), badge(server.state));
      facts.replaceChildren(...serverFacts(server));
      trouble.hidden = !server.last_error;
      trouble.className = server.state === "ready" ? "trouble past" : "trouble";
      const advice = ["ready", "restarting", "starting"].includes(server.state) ? null
        : h("p", {}, "To find out more, run ", h("code", {}, `gaia mcp doctor ${name}`));
      trouble.replaceChildren(...[h("h2", {}, "Last error"), h("pre", {}, server.last_error || ""), advice].filter(Boolean));
      errors.hidden = server.stderr === null;
      stderr.textContent = server.stderr || "Nothing was written on standard error.";
      tools.show(server);
    } catch (error) {
      if (error instanceof Refused && error.status === 404) view = show(missing(error.message));
    } finally {
      loading = false;
    }
  };
  load();
  return {
    title: name,
    elements: [crumbs(), head, trouble, about, tools.element, calls.element, timeline.element, errors],
    update: (kind) => {
      if (kind === "servers" || kind === "snapshot") load();
      if (kind !== "event") calls.update();
      if (kind !== "running") timeline.update();
    },
    tick: () => {
      timeline.update();
      load();
    },
  };
}

function serverFacts(server) {
  const info = server.server_info || {};
  const fact = (name, value, wide) => value === null || value === undefined || value === "" ? null
    : h("div", { class: wide ? "wide" : null }, h("dt", {}, name), h("dd", {}, String(value)));
  return [
    fact("Server", [info.name, info.version].filter(Boolean).join(" ")),
    fact("Protocol", server.protocol_version),
    fact("Process", server.pid),
    fact("Ready since", server.ready_since === null ? null : clock(server.ready_since)),
    fact("Generation", server.generation),
    fact("Restarts", server.restarts),
    fact("In flight / queued", server.in_flight === undefined ? null : `${server.in_flight} / ${server.queued}`),
    fact("Calls / failed", server.calls === undefined ? null : `${server.calls} / ${server.errors}`),
    fact("Latency p50 / p95", (server.latency_p50 ?? null) === null ? null : `${duration(server.latency_p50)} / ${duration(server.latency_p95)}`),
    fact("Noise on standard output", server.noise_lines ? `${server.noise_lines} lines` : null),
    fact("Offers", (server.capabilities || []).join(", ")),
    fact("Configured in", server.source, true),
    fact("Instructions for models", server.instructions, true),
  ].filter(Boolean);
}

function crumbs(...more) {
  return h("p", { class: "crumbs" }, h("a", { href: "#/" }, "All servers"), more.map((part) => [" / ", part]).flat());
}

function missing(message) {
  return { title: "Not found", elements: [crumbs(), h("h1", {}, "Nothing here"), empty(message)] };
}

// Tools, and trying one ----------------------------------------------------------------------------------------------

function toolsPanel(server) {
  const list = h("ul", { "aria-label": "Tools" });
  const detail = h("div", { class: "tool" });
  const none = empty("");
  const both = h("div", { class: "tools" }, list, detail);
  const count = h("span", { class: "facts" });
  let shown = "";
  let picked = null;

  const pick = (tool) => {
    picked = tool.name;
    for (const button of list.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.tool === picked));
    detail.replaceChildren(...toolDetail(server, tool));
  };
  const show = (about) => {
    const stamp = JSON.stringify(about.tools);
    none.hidden = about.tools.length > 0;
    both.hidden = about.tools.length === 0;
    none.textContent = about.state === "ready" ? "This server offers no tools." : "Tools are shown once the server is ready.";
    // A form that somebody is filling in stays as it is.
    if (stamp === shown) return;
    shown = stamp;
    const denied = about.tools.filter((tool) => tool.denied).length;
    count.textContent = denied ? `${about.tools.length - denied} offered, ${denied} withheld` : `${about.tools.length} offered`;
    list.replaceChildren(...about.tools.map((tool) => h("li", {}, h("button", {
      type: "button", class: "pick", "data-tool": tool.name, disabled: Boolean(tool.denied), "aria-pressed": "false",
      title: tool.denied ? WITHHELD[tool.denied] : null, onclick: () => pick(tool),
    }, h("span", { class: "label mono" }, tool.name), tool.denied ? badge(tool.denied, "bad") : null))));
    const first = about.tools.find((tool) => tool.name === picked && !tool.denied) || about.tools.find((tool) => !tool.denied);
    if (first) pick(first);
    else detail.replaceChildren(empty("All tools of this server are withheld."));
  };
  return { element: panel("Tools", count, both, none), show };
}

function toolDetail(server, tool) {
  const hints = tool.annotations || {};
  const badges = [
    hints.readOnlyHint === true ? badge("read-only", "ok") : null,
    hints.idempotentHint === true ? badge("idempotent", "ok") : null,
    hints.destructiveHint === true ? badge("destructive", "bad") : null,
    hints.openWorldHint === true ? badge("open world", "accent") : null,
  ];
  const schemas = [["Input schema", tool.input_schema], ["Output schema", tool.output_schema]].filter(([, schema]) => schema);
  return [
    h("div", { class: "head" }, h("h3", { class: "mono" }, tool.name), badges),
    tool.title ? h("p", {}, tool.title) : null,
    h("p", { class: "about" }, tool.description || "The server does not describe this tool."),
    tryForm(server, tool),
    ...schemas.map(([name, schema]) => h("details", {}, h("summary", {}, name), h("pre", { class: "output" }, json(schema)))),
  ].filter(Boolean);
}

function tryForm(server, tool) {
  const schema = tool.input_schema || {};
  const properties = schema.properties && typeof schema.properties === "object" ? Object.entries(schema.properties) : [];
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const fields = properties.map(([name, facts], index) => field(`field-${index}`, name, facts, required.has(name)));
  const raw = h("textarea", { rows: 5, spellcheck: "false", "aria-label": "Arguments as JSON" });
  const asJson = h("input", { type: "checkbox" });
  const timeout = h("input", { type: "number", min: "0.1", max: "3600", step: "any", value: "30", "aria-label": "Timeout in seconds" });
  const run = h("button", { class: "main" }, "Call");
  const cancel = h("button", { type: "button", class: "quiet", hidden: true }, "Cancel");
  const wrong = h("p", { class: "wrong", role: "alert", hidden: true });
  const inputs = h("div", { class: "fields" }, fields.length ? fields.map((one) => one.element) : h("p", { class: "hint" }, "This tool takes no arguments."));
  const editor = h("div", { class: "field", hidden: true }, raw, h("span", { class: "hint" }, "One JSON object with all arguments."));
  const result = h("div", { class: "result", "aria-live": "polite" });

  const complain = (message) => {
    wrong.textContent = message;
    wrong.hidden = !message;
  };
  const given = () => asJson.checked ? parseObject(raw.value) : Object.fromEntries(fields.map((one) => one.read()).filter(Boolean));
  asJson.addEventListener("change", () => {
    if (asJson.checked) {
      try {
        raw.value = json(Object.fromEntries(fields.map((one) => one.read()).filter(Boolean)));
      } catch {
        raw.value = "{}";
      }
    }
    inputs.hidden = asJson.checked;
    editor.hidden = !asJson.checked;
  });

  const submit = async (event) => {
    event.preventDefault();
    let values;
    try {
      values = given();
      complain("");
    } catch (error) {
      complain(error.message);
      return;
    }
    const controller = new AbortController();
    cancel.onclick = () => controller.abort();
    run.disabled = true;
    cancel.hidden = false;
    result.replaceChildren();
    const began = performance.now();
    try {
      const body = JSON.stringify({ server, tool: tool.name, arguments: values, timeout: Number(timeout.value) || null });
      const response = await request("api/try", { method: "POST", body, signal: controller.signal });
      result.replaceChildren(...resultBlocks(await response.json(), (performance.now() - began) / 1000));
    } catch (error) {
      const message = error.name === "AbortError" ? "Cancelled. The server was told." : error.message;
      result.replaceChildren(h("div", { class: "trouble" }, message));
    } finally {
      run.disabled = false;
      cancel.hidden = true;
    }
  };
  const actions = h("div", { class: "actions" }, run, cancel, h("label", {}, "Timeout", timeout, "s"),
    properties.length ? h("label", {}, asJson, "Edit as JSON") : null);
  return h("form", { onsubmit: submit, "aria-label": `Call ${tool.name}`, novalidate: true }, inputs, editor, wrong, actions, result);
}

/** One input for one parameter. `read` gives [name, value], or null for what is left out; it throws for what is wrong. */
function field(id, name, schema, required) {
  const facts = schema && typeof schema === "object" ? schema : {};
  const types = [].concat(facts.type ?? []).filter((type) => type !== "null");
  const type = types.length === 1 ? types[0] : null;
  const choices = Array.isArray(facts.enum) ? facts.enum : type === "boolean" ? [true, false] : null;
  let input;
  let parse;
  if (choices) {
    input = h("select", { id }, required ? null : h("option", { value: "" }, "–"),
      choices.map((choice, index) => h("option", { value: index }, typeof choice === "string" ? choice : JSON.stringify(choice))));
    parse = (text) => choices[Number(text)];
    if (facts.default !== undefined && choices.includes(facts.default)) input.value = String(choices.indexOf(facts.default));
  } else if (type === "integer" || type === "number") {
    input = h("input", { id, inputmode: type === "integer" ? "numeric" : "decimal", autocomplete: "off" });
    parse = (text) => number(name, text, type);
  } else if (type === "string") {
    input = h("input", { id, autocomplete: "off", spellcheck: "false" });
    parse = (text) => text;
  } else {
    input = h("textarea", { id, rows: 3, spellcheck: "false", placeholder: type === "array" ? "[]" : type === "object" ? "{}" : "JSON" });
    parse = (text) => parseJson(name, text);
  }
  if (!choices && facts.default !== undefined) input.value = type === "string" ? String(facts.default) : JSON.stringify(facts.default);
  if (required) input.setAttribute("aria-required", "true");
  const kind = `${choices && type !== "boolean" ? "choice" : types.join(" or ") || "any"}${required ? "" : ", optional"}`;
  const hint = typeof facts.description === "string" ? facts.description : "";
  if (hint) input.setAttribute("aria-describedby", `${id}-hint`);
  const element = h("div", { class: "field" }, h("label", { for: id }, name, " ", h("span", { class: "kind" }, kind)), input,
    hint ? h("span", { class: "hint", id: `${id}-hint` }, hint) : null);
  const read = () => {
    const text = input.value;
    input.removeAttribute("aria-invalid");
    if (text === "" && !required) return null;
    try {
      if (text === "" && type !== "string") throw new Error(`${name}: a value is needed`);
      return [name, parse(text)];
    } catch (error) {
      input.setAttribute("aria-invalid", "true");
      throw error;
    }
  };
  return { element, read };
}

function number(name, text, type) {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) throw new Error(`${name}: expected a number`);
  if (type === "integer" && !Number.isInteger(value)) throw new Error(`${name}: expected a whole number`);
  return value;
}

function parseJson(name, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${name}: not valid JSON: ${error.message}`);
  }
}

function parseObject(text) {
  const value = parseJson("arguments", text);
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error("arguments: expected one JSON object");
  return value;
}

function resultBlocks(result, seconds) {
  const failed = result.error !== undefined || result.isError === true;
  const head = h("p", { class: "head" }, failed ? badge("failed") : badge("ok"), h("span", { class: "facts" }, duration(seconds)));
  if (result.error !== undefined) {
    const hint = ANSWERED.has(result.error_type) ? null : DELIVERY[result.delivery];
    return [head, h("div", { class: "trouble" }, h("pre", {}, String(result.error)), hint ? h("p", {}, hint) : null)];
  }
  const blocks = Array.isArray(result.content) ? result.content.map(contentBlock) : [];
  if (result.structuredContent !== undefined) {
    blocks.push(h("details", { open: !blocks.length }, h("summary", {}, "Structured content"), h("pre", { class: "output" }, json(result.structuredContent))));
  }
  return [head, ...(blocks.length ? blocks : [h("p", { class: "hint" }, "The result is empty.")])];
}

function contentBlock(block) {
  if (block?.type === "text" && typeof block.text === "string") return h("pre", { class: "output" }, block.text);
  if (block?.type === "image" && IMAGES.has(block.mimeType) && /^[A-Za-z0-9+/=\s]*$/.test(block.data)) {
    return h("img", { src: `data:${block.mimeType};base64,${block.data}`, alt: "Image in the result" });
  }
  return h("pre", { class: "output" }, json(block));
}

// One call -----------------------------------------------------------------------------------------------------------

function callView(trace, span) {
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
      if (error instanceof Refused) view = show(missing(error.message));
    }
  };
  load();
  return { title: "Call", elements, update: (kind) => (kind === "call" ? load() : undefined), tick: load };
}

function callElements({ call, spans, logs }) {
  const attributes = call.attributes;
  const server = attributes["gaia.mcp.server.name"] || "?";
  const outcome = call.seconds === null ? "running" : call.status === "error" ? "error" : "ok";
  const fact = (name, value, kind) => value === undefined || value === null ? null
    : h("div", { class: kind }, h("dt", {}, name), h("dd", {}, String(value)));
  const facts = [
    fact("Server", server),
    fact("Started", preciseClock(call.started)),
    fact("Duration", duration(call.seconds)),
    fact("Error type", attributes["error.type"]),
    fact("Delivery", attributes["gaia.mcp.delivery"]),
    fact("Protocol", attributes["mcp.protocol.version"]),
    fact("Request id", attributes["jsonrpc.request.id"]),
    fact("Trace", call.trace_id, "wide"),
  ].filter(Boolean);
  return [
    crumbs(h("a", { href: serverAddress(server) }, server)),
    h("div", { class: "head" }, h("h1", { class: "mono" }, attributes["gen_ai.tool.name"] || call.name), badge(outcome)),
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
  return panel("Log events", null, h("div", { class: "scroll" }, table("Log events", [["Time"], ["Level"], ["Event"], ["Fields"]], h("tbody", {}, rows))));
}

// Signing in ---------------------------------------------------------------------------------------------------------

function askForToken(problem) {
  const input = h("input", { type: "password", id: "token", autocomplete: "off" });
  const submit = (event) => {
    event.preventDefault();
    sessionStorage.setItem(TOKEN_KEY, input.value.trim());
    start();
  };
  const text = "The address that the dashboard printed when it was started has the token at its end. Open that address, or paste the token here.";
  view = show({ title: "Sign in", signedOut: true, elements: [h("section", { class: "panel sign-in" }, h("header", {}, h("h2", {}, "Which token?")),
    h("div", { class: "body" }, h("form", { onsubmit: submit }, h("p", { class: "about" }, text),
      h("div", { class: "field" }, h("label", { for: "token" }, "Token"), input),
      problem ? h("p", { class: "wrong", role: "alert" }, problem) : null,
      h("div", { class: "actions" }, h("button", { class: "main" }, "Open"))))) ] });
  input.focus();
}

// From the address to a view -----------------------------------------------------------------------------------------

function show(next) {
  document.title = `${next.title} – gaia dashboard`;
  document.body.classList.toggle("signed-out", next.signedOut === true);
  document.getElementById("main").replaceChildren(...next.elements);
  return next;
}

function route() {
  if (new URLSearchParams(location.hash.replace(/^#\/?/, "")).get("token")) {
    takeToken();
    start();
    return;
  }
  const [kind, ...names] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  if (kind === "server" && names.length === 1) view = show(serverView(names[0]));
  else if (kind === "call" && names.length === 2) view = show(callView(names[0], names[1]));
  else if (kind === "main") return;
  else view = show(overview());
  markCurrent();
  scrollTo(0, 0);
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function start() {
  route();
  follow();
}

addEventListener("hashchange", () => {
  route();
  document.getElementById("main").focus({ preventScroll: true });
});
setInterval(() => view?.tick?.(), 3000);
takeToken();
start();
