// What servers answer: content blocks, and errors.

import { badge, h } from "./elements.js";
import { duration, json } from "./words.js";

const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const BASE64 = /^[A-Za-z0-9+/=\s]*$/;
const DELIVERY = {
  not_sent: "The server did not get the call: it is safe to repeat it.",
  unknown: "The server may have acted on the call: look before you repeat it.",
};
const ANSWERED = new Set(["jsonrpc", "invalid_response", "denied"]);

/** The result of a tool call, or why there is none. */
export function resultBlocks(result, seconds) {
  const failed = Boolean(result.error) || result.isError === true;
  const head = h("p", { class: "head" }, failed ? badge("failed") : badge("ok"), h("span", { class: "facts" }, duration(seconds)));
  if (result.error) {
    const hint = ANSWERED.has(result.error_type) ? null : DELIVERY[result.delivery];
    return [head, h("div", { class: "trouble" }, h("pre", {}, String(result.error)), hint ? h("p", {}, hint) : null)];
  }
  const blocks = Array.isArray(result.content) ? result.content.map(contentBlock) : [];
  if (result.structuredContent !== undefined) {
    blocks.push(h("details", { open: !blocks.length }, h("summary", {}, "Structured content"), h("pre", { class: "output" }, json(result.structuredContent))));
  }
  return [head, ...(blocks.length ? blocks : [h("p", { class: "hint" }, "The result is empty.")])];
}

/** One block of a tool's result or of a prompt's message. */
export function contentBlock(block) {
  if (block?.type === "text" && typeof block.text === "string") return h("pre", { class: "output" }, block.text);
  if (block?.type === "image") return image(block.mimeType, block.data) || h("pre", { class: "output" }, json(block));
  if (block?.type === "resource" && block.resource && typeof block.resource === "object") return resourceContent(block.resource);
  return h("pre", { class: "output" }, json(block));
}

/** One item of a resource's `contents`. */
export function resourceContent(content) {
  const facts = [content?.uri, content?.mimeType].filter((one) => typeof one === "string").join(" · ");
  const head = facts ? h("p", { class: "facts" }, facts) : null;
  return h("div", { class: "content-of" }, head, body(content));
}

function body(content) {
  if (typeof content?.text === "string") return h("pre", { class: "output" }, content.text);
  if (typeof content?.blob !== "string") return h("pre", { class: "output" }, json(content));
  return image(content.mimeType, content.blob) || h("p", { class: "hint" }, `Binary data, ${Math.floor((content.blob.length * 3) / 4).toLocaleString()} bytes.`);
}

/** null for what is no picture that can be shown. */
function image(type, data) {
  if (!IMAGES.has(type) || typeof data !== "string" || !BASE64.test(data)) return null;
  return h("img", { src: `data:${type};base64,${data}`, alt: "Image in the answer" });
}
