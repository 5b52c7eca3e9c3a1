// What the page knows: the last snapshot, and what has happened since.

export const MOST_CALLS = 300;
const MOST_EVENTS = 1000;

export const state = { servers: [], running: [], calls: [], events: [], gateway: null };

/** Take over one event of the stream. */
export function received(kind, data) {
  if (kind === "snapshot") Object.assign(state, data);
  else if (kind === "servers" || kind === "running" || kind === "gateway") state[kind] = data;
  else if (kind === "call") state.calls = appended(state.calls, data, "span_id", MOST_CALLS);
  else if (kind === "event") state.events = appended(state.events, data, "id", MOST_EVENTS);
}

/** What happens while a snapshot is made may be in it, and told once more after it. */
function appended(items, item, key, most) {
  return items.some((one) => one[key] === item[key]) ? items : [...items, item].slice(-most);
}
