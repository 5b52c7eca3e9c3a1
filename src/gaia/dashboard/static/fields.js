// Inputs for arguments, made of a JSON schema.

import { h } from "./elements.js";

/** One input for one parameter. `read` gives [name, value], or null for what is left out; it throws for what is wrong. */
export function field(id, name, schema, required) {
  const facts = schema && typeof schema === "object" ? schema : {};
  const types = [].concat(facts.type ?? []).filter((type) => type !== "null");
  const type = types.length === 1 ? types[0] : null;
  const choices = Array.isArray(facts.enum) ? facts.enum : type === "boolean" ? [true, false] : null;
  let input;
  let parse;
  if (choices) {
    input = h("select", { id }, required ? null : h("option", { value: "" }, "–"),
      choices.map((choice, index) => h("option", { value: index }, typeof choice === "string" ? choice : JSON.stringify(choice))));
    parse = (text) => choices[Number(text)];
    if (facts.default !== undefined && choices.includes(facts.default)) input.value = String(choices.indexOf(facts.default));
  } else if (type === "integer" || type === "number") {
    input = h("input", { id, inputmode: type === "integer" ? "numeric" : "decimal", autocomplete: "off" });
    parse = (text) => number(name, text, type);
  } else if (type === "string") {
    input = h("input", { id, autocomplete: "off", spellcheck: "false" });
    parse = (text) => text;
  } else {
    input = h("textarea", { id, rows: 3, spellcheck: "false", placeholder: type === "array" ? "[]" : type === "object" ? "{}" : "JSON" });
    parse = (text) => parseJson(name, text);
  }
  if (!choices && facts.default !== undefined) input.value = type === "string" ? String(facts.default) : JSON.stringify(facts.default);
  if (required) input.setAttribute("aria-required", "true");
  const kind = `${choices && type !== "boolean" ? "choice" : types.join(" or ") || "any"}${required ? "" : ", optional"}`;
  const hint = typeof facts.description === "string" ? facts.description : "";
  if (hint) input.setAttribute("aria-describedby", `${id}-hint`);
  const element = h("div", { class: "field" }, h("label", { for: id }, name, " ", h("span", { class: "kind" }, kind)), input,
    hint ? h("span", { class: "hint", id: `${id}-hint` }, hint) : null);
  const read = () => {
    const text = input.value;
    input.removeAttribute("aria-invalid");
    if (text === "" && !required) return null;
    try {
      if (text === "" && type !== "string") throw new Error(`${name}: a value is needed`);
      return [name, parse(text)];
    } catch (error) {
      input.setAttribute("aria-invalid", "true");
      throw error;
    }
  };
  return { element, read };
}

function number(name, text, type) {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) throw new Error(`${name}: expected a number`);
  if (type === "integer" && !Number.isInteger(value)) throw new Error(`${name}: expected a whole number`);
  return value;
}

function parseJson(name, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${name}: not valid JSON: ${error.message}`);
  }
}

export function parseObject(text) {
  const value = parseJson("arguments", text);
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error("arguments: expected one JSON object");
  return value;
}
