// The prompts of a server, and getting one with arguments.

import { serverAddress } from "./address.js";
import { post } from "./api.js";
import { idPrefix, question, took } from "./asking.js";
import { badge, empty, h, nameText, panel } from "./elements.js";
import { field } from "./fields.js";
import { lister } from "./lister.js";
import { contentBlock } from "./results.js";
import { split } from "./split.js";

export function promptsPanel(server) {
  const both = split({ label: "Prompts", back: serverAddress(server, "prompts"), pick: (name) => { location.hash = serverAddress(server, "prompts", name); } });
  const none = empty("Loading …");
  both.element.hidden = true;
  const load = async () => (await post("api/prompts", { server })).prompts.map((one) => ({ ...one, key: one.name }));
  const listed = lister(load, {
    both, none, nothing: "This server offers no prompts now.", missing: "prompt",
    label: (prompt) => [h("span", { class: "label mono" }, nameText(prompt.name))],
    detail: (prompt) => promptDetail(server, prompt),
  });
  return { element: panel("Prompts", listed.button, both.element, none), show: listed.show, open: listed.open };
}

function promptDetail(server, prompt) {
  const wanted = Array.isArray(prompt.arguments) ? prompt.arguments.filter((one) => typeof one?.name === "string") : [];
  const prefix = idPrefix();
  const fields = wanted.map((one, index) => field(`${prefix}-${index}`, one.name, { type: "string", description: one.description }, one.required === true));
  const inputs = h("div", { class: "fields" }, fields.length ? fields.map((one) => one.element) : h("p", { class: "hint" }, "This prompt takes no arguments."));
  const read = () => Object.fromEntries(fields.map((one) => one.read()).filter(Boolean));
  const ask = async (values, signal, _report, seconds) => {
    const answer = await post("api/prompt", { server, prompt: prompt.name, arguments: values }, { signal });
    if (answer.error) return [h("div", { class: "trouble" }, answer.error)];
    const messages = Array.isArray(answer.messages) ? answer.messages : [];
    return [
      h("p", { class: "head" }, badge("ok"), took(seconds())),
      answer.description ? h("p", { class: "about" }, answer.description) : null,
      ...messages.map((message) => h("div", { class: "message-of" }, badge(message?.role || "?", "accent"),
        [].concat(message?.content ?? []).map(contentBlock))),
    ].filter(Boolean);
  };
  return [
    h("div", { class: "head" }, h("h3", { class: "mono" }, nameText(prompt.name))),
    prompt.title ? h("p", {}, prompt.title) : null,
    prompt.description ? h("p", { class: "about" }, prompt.description) : null,
    question({ label: `Get ${prompt.name}`, verb: "Get", inputs: [inputs], read, ask }),
  ].filter(Boolean);
}
