// The resources of a server, and reading one.

import { serverAddress } from "./address.js";
import { post } from "./api.js";
import { idPrefix, question, took } from "./asking.js";
import { badge, empty, h, nameText, panel } from "./elements.js";
import { lister } from "./lister.js";
import { resourceContent } from "./results.js";
import { split } from "./split.js";

export function resourcesPanel(server) {
  const both = split({ label: "Resources", back: serverAddress(server, "resources"), pick: (uri) => { location.hash = serverAddress(server, "resources", uri); } });
  const none = empty("Loading …");
  both.element.hidden = true;

  const listed = lister(async () => {
    const { resources, templates } = await post("api/resources", { server });
    return [...resources.map((one) => ({ ...one, key: one.uri })), ...templates.map((one) => ({ ...one, key: one.uriTemplate, template: true }))];
  }, { both, none, nothing: "This server offers no resources now.", label, detail: (resource) => resourceDetail(server, resource), missing: "resource" });

  return { element: panel("Resources", listed.button, both.element, none), show: listed.show, open: listed.open };
}

function label(resource) {
  return [h("span", { class: "label" }, nameText(resource.title || resource.name || resource.key)), resource.template ? badge("template", "accent") : null];
}

function resourceDetail(server, resource) {
  const id = `${idPrefix()}-uri`;
  const uri = h("input", { id, value: resource.key, spellcheck: "false", autocomplete: "off", readonly: !resource.template });
  const hint = resource.template ? "Put values in place of the names in braces." : null;
  const read = () => {
    if (/[{}]/.test(uri.value)) throw new Error("URI: put values in place of the names in braces");
    if (!uri.value.trim()) throw new Error("URI: a value is needed");
    return uri.value.trim();
  };
  const ask = async (value, signal, _report, seconds) => {
    const answer = await post("api/resource", { server, uri: value }, { signal });
    if (answer.error) return [h("div", { class: "trouble" }, answer.error)];
    const contents = Array.isArray(answer.contents) ? answer.contents : [];
    return [h("p", { class: "head" }, badge("ok"), took(seconds())), ...(contents.length ? contents.map(resourceContent) : [h("p", { class: "hint" }, "The resource is empty.")])];
  };
  const facts = [resource.mimeType, typeof resource.size === "number" ? `${resource.size.toLocaleString()} bytes` : null].filter(Boolean).join(" · ");
  const inputs = h("div", { class: "field" }, h("label", { for: id }, resource.template ? "URI" : "URI"), uri, hint ? h("span", { class: "hint" }, hint) : null);
  return [
    h("div", { class: "head" }, h("h3", {}, nameText(resource.title || resource.name || resource.key)), facts ? h("span", { class: "facts" }, facts) : null),
    resource.description ? h("p", { class: "about" }, resource.description) : null,
    question({ label: `Read ${resource.name || resource.key}`, verb: "Read", inputs: [inputs], read, ask }),
  ].filter(Boolean);
}
