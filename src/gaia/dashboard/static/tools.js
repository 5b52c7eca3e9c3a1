// The tools of a server, and calling one.

import { callAddress, serverAddress } from "./address.js";
import { post } from "./api.js";
import { idPrefix, question } from "./asking.js";
import { badge, empty, h, nameText, panel } from "./elements.js";
import { field, parseObject } from "./fields.js";
import { resultBlocks } from "./results.js";
import { split } from "./split.js";
import { state } from "./store.js";
import { json } from "./words.js";

const WITHHELD = {
  denied: "A tool filter denies this tool: it cannot be called.",
  "not approved": "The definition of this tool is not the approved one: it cannot be called.",
};

export function toolsPanel(server) {
  const none = empty("Loading …");
  const count = h("span", { class: "facts" });
  const base = serverAddress(server, "tools");
  const both = split({ label: "Tools", back: base, pick: (name) => { location.hash = serverAddress(server, "tools", name); } });
  both.element.hidden = true;
  let tools = [];
  let shown = "";
  let detailed = "";
  let named = null;
  let form = null;

  const choose = () => {
    const wanted = named === null ? tools.find((tool) => !tool.denied) : tools.find((tool) => tool.name === named);
    // A form that is being filled in stays as it is.
    const stamp = JSON.stringify([wanted, named !== null && !wanted]);
    if (stamp === detailed) {
      both.show(named !== null);
      return;
    }
    detailed = stamp;
    form = null;
    if (wanted && !wanted.denied) {
      form = tryForm(server, wanted);
      both.choose(wanted.name, toolDetail(wanted, form.element), named !== null);
    } else {
      const why = wanted ? WITHHELD[wanted.denied] : named === null ? "All tools of this server are withheld." : `There is no tool ${named}.`;
      both.choose(null, [empty(why)], named !== null);
    }
  };

  const show = (about) => {
    tools = about.tools;
    none.hidden = tools.length > 0;
    both.element.hidden = tools.length === 0;
    none.textContent = about.state === "ready" ? "This server offers no tools." : "Tools are shown once the server is ready.";
    const stamp = JSON.stringify(tools);
    if (stamp === shown) return;
    shown = stamp;
    const denied = tools.filter((tool) => tool.denied).length;
    count.textContent = denied ? `${tools.length - denied} offered, ${denied} withheld` : `${tools.length} offered`;
    both.fill(tools.map((tool) => ({
      key: tool.name, disabled: tool.denied, title: tool.denied ? WITHHELD[tool.denied] : tool.name,
      content: [h("span", { class: "label mono" }, nameText(tool.name)), tool.denied ? badge(tool.denied, "bad") : null],
    })));
    if (tools.length) choose();
  };

  const open = (name) => {
    named = name ?? null;
    if (tools.length) choose();
  };
  return { element: panel("Tools", count, both.element, none), show, open, update: (kind, data) => form?.update(kind, data) };
}

function toolDetail(tool, form) {
  const hints = tool.annotations || {};
  const badges = [
    hints.readOnlyHint === true ? badge("read-only", "ok") : null,
    hints.idempotentHint === true ? badge("idempotent", "ok") : null,
    hints.destructiveHint === true ? badge("destructive", "bad") : null,
    hints.openWorldHint === true ? badge("open world", "accent") : null,
  ];
  const schemas = [["Input schema", tool.input_schema], ["Output schema", tool.output_schema]].filter(([, schema]) => schema);
  return [
    h("div", { class: "head" }, h("h3", { class: "mono" }, nameText(tool.name)), badges),
    tool.title ? h("p", {}, tool.title) : null,
    h("p", { class: "about" }, tool.description || "The server does not describe this tool."),
    form,
    ...schemas.map(([name, schema]) => h("details", {}, h("summary", {}, name), h("pre", { class: "output" }, json(schema)))),
  ].filter(Boolean);
}

function tryForm(server, tool) {
  const schema = tool.input_schema || {};
  const properties = schema.properties && typeof schema.properties === "object" ? Object.entries(schema.properties) : [];
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const prefix = idPrefix();
  const fields = properties.map(([name, facts], index) => field(`${prefix}-${index}`, name, facts, required.has(name)));
  const raw = h("textarea", { rows: 5, spellcheck: "false", "aria-label": "Arguments as JSON" });
  const asJson = h("input", { type: "checkbox" });
  const timeout = h("input", { type: "number", min: "0.1", max: "3600", step: "any", value: "30", "aria-label": "Timeout in seconds" });
  const inputs = h("div", { class: "fields" }, fields.length ? fields.map((one) => one.element) : h("p", { class: "hint" }, "This tool takes no arguments."));
  const editor = h("div", { class: "field", hidden: true }, raw, h("span", { class: "hint" }, "One JSON object with all arguments."));
  const trail = h("p", { class: "trail" });
  const written = () => Object.fromEntries(fields.map((one) => one.read()).filter(Boolean));
  let call = null;
  let reported = () => {};

  asJson.addEventListener("change", () => {
    if (asJson.checked) {
      try {
        raw.value = json(written());
      } catch {
        raw.value = "{}";
      }
    }
    inputs.hidden = asJson.checked;
    editor.hidden = !asJson.checked;
  });

  /** A link to the page of the call, as soon as it is known which it is: it is in the trace that was made for it. */
  const link = () => {
    const own = call && [...state.running, ...state.calls].find((one) => one.trace_id === call.split("-")[1]);
    if (own) trail.replaceChildren(h("a", { href: callAddress(own) }, "Spans and log events of this call"));
  };

  const ask = async (values, signal, report, seconds) => {
    call = traceparent();
    reported = report;
    trail.replaceChildren();
    const wanted = { server, tool: tool.name, arguments: values, timeout: Number(timeout.value) || null };
    return resultBlocks(await post("api/try", wanted, { signal, headers: { traceparent: call } }), seconds());
  };
  const form = question({
    label: `Call ${tool.name}`, verb: "Call", inputs: [inputs, editor], ask,
    extras: [h("label", {}, "Timeout", timeout, "s"), properties.length ? h("label", {}, asJson, "Edit as JSON") : null],
    read: () => (asJson.checked ? parseObject(raw.value) : written()),
  });
  form.append(trail);
  return {
    element: form,
    update: (kind, data) => {
      if (kind === "progress" && data.call === call) reported(data);
      link();
    },
  };
}

/** The trace that a call is to be in (W3C Trace Context), by which the page knows the call again. */
function traceparent() {
  const hex = (bytes) => [...crypto.getRandomValues(new Uint8Array(bytes))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return `00-${hex(16)}-${hex(8)}-01`;
}
