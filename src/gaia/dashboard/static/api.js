// Requests to the dashboard, with the token.

const TOKEN_KEY = "gaia.dashboard.token";

/** How often following was begun: only the last one goes on. */
let followers = 0;

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function hasToken() {
  return Boolean(sessionStorage.getItem(TOKEN_KEY));
}

export function setToken(token) {
  sessionStorage.setItem(TOKEN_KEY, token);
}

/** Take the token out of the address, so that it is in no bookmark, history or screenshot. False if there is none. */
export function takeToken() {
  const given = /^#\/?(token=.*)$/.exec(location.hash);
  if (!given) return false;
  setToken(new URLSearchParams(given[1]).get("token"));
  history.replaceState(null, "", `${location.pathname}#/`);
  return true;
}

export async function get(path, parameters) {
  return (await request(`${path}?${new URLSearchParams(parameters)}`)).json();
}

export async function post(path, body, { signal, headers } = {}) {
  return (await request(path, { method: "POST", body: JSON.stringify(body), signal, headers })).json();
}

async function request(path, options = {}) {
  const token = sessionStorage.getItem(TOKEN_KEY) || "";
  const response = await fetch(path, {
    ...options,
    headers: { ...options.headers, authorization: `Bearer ${token}`, "content-type": "application/json" },
  });
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new Refused(response.status, body.error?.message || `The dashboard answered ${response.status}`);
}

/**
 * Follow the stream for as long as the page is open. `EventSource` cannot send the token, so it is read by hand.
 * `received(kind, data)` gets each event, `changed(kind, text)` the state of the connection; `refused` is called when the
 * token is not the right one.
 */
export async function follow(received, changed, refused) {
  const mine = ++followers;
  let wait = 500;
  while (mine === followers) {
    try {
      const response = await request("api/events");
      changed("live", "live");
      wait = 500;
      await readEvents(response.body.getReader(), received);
    } catch (error) {
      if (error instanceof Refused && error.status === 401) {
        changed("lost", "signed out");
        refused();
        return;
      }
    }
    changed("lost", "not connected, trying again");
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(wait * 2, 5000);
  }
}

async function readEvents(reader, received) {
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
