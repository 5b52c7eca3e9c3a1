// What the states of servers mean to a person.

import { badge } from "./elements.js";
import { state } from "./store.js";
import { clock } from "./words.js";

/** Failures first; those with one number stay in the order of the configuration. */
const RANKS = { failed: 0, needs_authorization: 0, restarting: 1, authorizing: 1, starting: 2, closed: 4, disabled: 5 };
const NOT_STARTED = "not started";
const WORDS = { closed: "stopped", created: NOT_STARTED };

export function ordered(servers) {
  const rank = (server) => (hasFailed(server) ? 0 : RANKS[server.state] ?? (server.state === NOT_STARTED ? 4 : 3));
  return [...servers].sort((one, other) => rank(one) - rank(other));
}

export function stateBadge(server) {
  return badge(WORDS[server.state] || server.state, server.state);
}

/** Whether it is down for a reason that may need a person; also while it is tried once more. */
export function hasFailed(server) {
  return RANKS[server.state] === 0 || (server.state === "starting" && Boolean(server.last_error));
}

export function isReady(server) {
  return server.state === "ready";
}

export function isOff(server) {
  return ["closed", "created", "disabled", NOT_STARTED].includes(server.state);
}

/** Why it is not ready; empty if it is, or should not be. */
export function reasonOf(server) {
  return isReady(server) || isOff(server) || server.state === "exited" ? "" : server.last_error || "";
}

/** When a server that is down is started next, in seconds since the epoch; null if it is not, or that is not known. */
export function nextAttempt(server) {
  if (server.retry_at) return server.retry_at;
  if (server.state !== "failed") return null;
  const last = state.events.findLast((event) => event.server === server.name && event.kind === "gave_up");
  return last && last.retry_in !== null ? last.at + last.retry_in : null;
}

/** When it is tried again, in words; empty if it is not. */
export function nextAttemptText(server) {
  if (server.unusable) return "Correct the entry, then start this program again.";
  const at = nextAttempt(server);
  return at === null ? "" : `Next attempt at ${clock(at)}.`;
}

/** A `gaia mcp` command about a server, to be copied; null if the server is in no file, where no command finds it. */
export function commandAbout(server, command) {
  if (!server.cli_options) return null;
  // A name that begins with a dash would be an option.
  const name = server.name.startsWith("-") ? ["--", server.name] : [server.name];
  return ["gaia", "mcp", command, ...server.cli_options, ...name].map(shellWord).join(" ");
}

function shellWord(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
