// Values in words.

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.01) return `${(seconds * 1000).toFixed(2)} ms`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(2)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function clock(at) {
  return new Date(at * 1000).toLocaleTimeString([], { hour12: false });
}

export function preciseClock(at) {
  return `${clock(at)}.${String(Math.floor((at % 1) * 1000)).padStart(3, "0")}`;
}

export function now() {
  return Date.now() / 1000;
}

export function json(value) {
  return JSON.stringify(value, null, 2);
}

export function describeEvent(event) {
  switch (event.kind) {
    case "state":
      return `${event.old === null ? "is" : "became"} ${event.new.replaceAll("_", " ")}${event.reason ? `: ${event.reason}` : ""}`;
    case "restarted":
      if (event.reason?.startsWith("recycled")) return `${event.reason}, generation ${event.generation}`;
      return `ready again after ${duration(event.downtime)}, generation ${event.generation}${event.reason ? `: ${event.reason}` : ""}`;
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
