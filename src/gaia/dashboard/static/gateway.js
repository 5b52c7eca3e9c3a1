// A gateway that runs elsewhere: its clients, sessions and limits.

import { clock } from "./words.js";
import { badge, empty, h, nameText, panel, table } from "./elements.js";
import { state } from "./store.js";

export function gatewayPanel() {
  const body = h("div", { class: "gateway" });
  const element = panel("Gateway", null, body);
  const update = () => {
    const gateway = state.gateway;
    element.hidden = !gateway;
    if (gateway) body.replaceChildren(...facts(gateway), ...tables(gateway));
  };
  return { element, update };
}

function facts(gateway) {
  const words = [
    `${gateway.session_count} of at most ${gateway.max_sessions} sessions`, `gaia-mcp ${gateway.version}`,
    `running since ${clock(gateway.started)}`,
  ];
  if (gateway.name) words.unshift(gateway.name);
  const refused = gateway.reload?.error;
  return [
    h("p", { class: "facts" }, words.join(", "), gateway.is_draining ? badge("stopping", "failed") : null),
    gateway.problem ? h("pre", { class: "reason" }, gateway.problem) : null,
    refused ? h("pre", { class: "reason" }, `Configuration refused: ${refused}`) : null,
  ].filter(Boolean);
}

function tables(gateway) {
  const found = [];
  if (gateway.clients.length) {
    found.push(h("h3", {}, "Clients"), rows("Clients", ["Client", "Profile", "Sessions", "Running"],
      gateway.clients.map((one) => [nameText(one.name), one.profile, one.sessions, one.running])));
  }
  found.push(h("h3", {}, "Sessions"));
  if (gateway.sessions.length) {
    found.push(rows("Sessions", ["Client", "Program", "Path", "Protocol", "Running", "Idle"],
      gateway.sessions.map((one) => [nameText(one.client ?? "–"), one.program, one.path, one.protocol_version, one.running,
        `${one.idle} s`])));
  } else {
    found.push(empty("No session is open. Clients of revision 2026-07-28 have none."));
  }
  if (gateway.limits.length) {
    found.push(h("h3", {}, "Limits"), rows("Limits", ["Limit", "At once", "Per second", "Running", "Waiting"],
      gateway.limits.map((one) => [nameText(one.name), one.concurrent ?? "–", one.per_second ?? "–", one.running, one.waiting])));
  }
  return found;
}

function rows(caption, columns, lines) {
  const body = h("tbody", {}, lines.map((cells) => h("tr", {}, cells.map((cell) => h("td", {},
    cell instanceof Node ? cell : String(cell))))));
  return table(caption, columns.map((name) => [name, ""]), body, "plain");
}
