// The page's address: `#/server/<name>/<tab>/<item>?servers=<filter>`. All that a reload should keep is in it.

/** What stays in the address while the user goes from view to view. */
const LASTING = ["servers", "period"];
const lasting = new Map();

let names = [];
let query = new URLSearchParams();

/** Read the address. Gives the names in its path. */
export function arrive() {
  const [path, rest = ""] = split(location.hash.replace(/^#\/?/, ""), "?");
  names = path.split("/").map(decoded);
  query = new URLSearchParams(rest);
  for (const name of LASTING) {
    if (query.has(name)) lasting.set(name, query.get(name));
    else if (lasting.has(name)) query.set(name, lasting.get(name));
  }
  write();
  return names;
}

/** A value in the query of the address; an empty text if it is not there. */
export function recall(name) {
  return query.get(name) ?? "";
}

/** Put a value into the query of the address; an empty text takes it out. */
export function remember(name, value) {
  if (value) query.set(name, value);
  else query.delete(name);
  if (LASTING.includes(name)) {
    if (value) lasting.set(name, value);
    else lasting.delete(name);
  }
  write();
}

/** Whether the address is about this server. */
export function isAbout(server) {
  return names[0] === "server" && names[1] === server;
}

export function serverAddress(server, ...more) {
  return `#/${["server", server, ...more].map(encodeURIComponent).join("/")}`;
}

export function callAddress(call) {
  return `#/${["call", call.trace_id, call.span_id].map(encodeURIComponent).join("/")}`;
}

function write() {
  const rest = query.toString();
  const wanted = `#/${names.map(encodeURIComponent).join("/")}${rest ? `?${rest}` : ""}`;
  if (location.hash !== wanted) history.replaceState(history.state, "", wanted);
}

function split(text, separator) {
  const at = text.indexOf(separator);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
