// States and restarts over time.

import { recall, remember } from "./address.js";
import { ordered } from "./condition.js";
import { h, nameText, panel, place, table } from "./elements.js";
import { state } from "./store.js";
import { clock, describeEvent, now } from "./words.js";

const PERIODS = [["5 minutes", "300"], ["15 minutes", "900"], ["1 hour", "3600"]];

/** A panel with the timeline of all servers, or of one. */
export function timelinePanel(server) {
  const lanes = h("div", { class: "lanes" });
  const events = h("tbody");
  const columns = [["Time"], ["Server"], ["Event"]];
  const choice = h("select", { "aria-label": "Period" }, PERIODS.map(([name, seconds]) => h("option", { value: seconds }, name)));
  choice.value = recall("period") || "300";
  if (!choice.value) choice.value = "300";
  const legend = h("div", { class: "legend" }, ["ready", "restarting", "failed", "stopped"].map((word) => h("span", { class: word }, word)));
  const update = () => {
    const fitting = state.events.filter((event) => server === undefined || event.server === server);
    drawLanes(lanes, fitting, server, Number(choice.value));
    const latest = fitting.slice(-100).reverse();
    events.replaceChildren(...latest.map((event) => h("tr", {},
      h("td", { class: "time" }, clock(event.at)), h("td", { class: "server-name" }, nameText(event.server)), h("td", { class: "event" }, describeEvent(event)))));
  };
  choice.addEventListener("change", () => {
    remember("period", choice.value === "300" ? "" : choice.value);
    update();
  });
  update();
  const history = h("details", { class: "history" }, h("summary", {}, "Events in words"),
    table("Events, the latest first", columns, events));
  const tools = h("div", { class: "filters" }, legend, h("div", {}, choice));
  return { element: panel("Restarts and states", tools, h("div", { class: "body" }, lanes, history)), update };
}

function drawLanes(container, events, only, seconds) {
  const end = now();
  const begin = end - seconds;
  const rows = [];
  for (const { name } of ordered(state.servers).filter((server) => only === undefined || server.name === only)) {
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
    rows.push(h("span", { class: "label" }, nameText(name)), lane);
  }
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => h("span", {}, clock(begin + share * seconds)));
  container.replaceChildren(...(rows.length ? [...rows, h("div", { class: "axis", "aria-hidden": "true" }, ticks)] : [h("p", { class: "none" }, "There is nothing to draw yet.")]));
}

function laneInWords(name, events) {
  const restarts = events.filter((event) => event.kind === "restarted").length;
  const last = events.findLast((event) => event.kind === "state");
  return `${name}: ${last ? last.new : "not started"}, ${restarts === 1 ? "1 restart" : `${restarts} restarts`}`;
}
