// The table of calls.

import { callAddress, recall, remember, serverAddress } from "./address.js";
import { badge, empty, h, nameText, panel, reconcile, table } from "./elements.js";
import { MOST_CALLS, state } from "./store.js";
import { clock, duration, now } from "./words.js";

/** A panel with the calls of all servers, or of one. */
export function callsPanel(server) {
  const body = h("tbody");
  const search = h("input", { type: "search", placeholder: server === undefined ? "Filter by tool, server, error" : "Filter by tool, error", "aria-label": "Find calls", value: recall("find") });
  const failures = h("input", { type: "checkbox", checked: recall("failures") !== "" });
  const columns = [["Time"], ["Server"], ["Tool"], ["Outcome"], ["Duration", "number"], ["Message"]];
  const none = empty("");
  const shown = table("Tool calls, the latest first", columns, body, server === undefined ? "calls" : "calls of-one");
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
  search.addEventListener("input", () => {
    remember("find", search.value);
    update();
  });
  failures.addEventListener("change", () => {
    remember("failures", failures.checked ? "1" : "");
    update();
  });
  const filters = h("div", { class: "filters" }, h("label", {}, failures, "failures only"), search);
  update();
  return { element: panel("Tool calls", filters, shown, none), update };
}

/** The cells that stay as they are; those that change are filled by `updateCall`, so that focus stays on a link. */
function createCall(call) {
  const open = (event) => {
    if (!event.target.closest("a")) location.hash = callAddress(call);
  };
  return h("tr", { class: "link", onclick: open },
    h("td", { class: "time" }, clock(call.started)),
    h("td", { class: "server-name" }, h("a", { href: serverAddress(call.server) }, nameText(call.server))),
    h("td", { class: "mono tool-name" }, h("a", { href: callAddress(call) }, nameText(call.tool || "?"))),
    h("td", { class: "outcome" }), h("td", { class: "number" }), h("td", { class: "message" }));
}

function updateCall(row, call) {
  const message = [call.error_type, call.message].filter(Boolean).join(": ");
  const [outcome, took, text] = [...row.children].slice(3);
  outcome.replaceChildren(badge(call.outcome));
  took.replaceChildren(...(call.outcome === "running" ? [progressBar(call), `${call.seconds} s …`] : [duration(call.seconds)]).filter(Boolean));
  text.textContent = message;
  text.title = message;
}

/** How far a running call is, as the server has reported; null if it has not. */
export function progressBar({ progress, total }) {
  if (progress === null || progress === undefined) return null;
  const known = typeof total === "number" && total > 0;
  const words = known ? `${Math.min(100, Math.round((progress / total) * 100))} %` : `${Math.round(progress * 100) / 100}`;
  const bar = known ? h("progress", { max: String(total), value: Math.min(progress, total), "aria-label": "Progress" }) : null;
  return h("span", { class: "progress" }, bar, words);
}
