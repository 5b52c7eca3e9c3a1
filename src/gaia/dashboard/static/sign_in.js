// Asking for the token.

import { hasToken, setToken } from "./api.js";
import { h } from "./elements.js";
import { show } from "./page.js";

/** `start` is called with a new token. */
export function askForToken(start) {
  const problem = hasToken() ? "This token is not the right one any more." : "";
  const input = h("input", { type: "password", id: "token", autocomplete: "off" });
  const submit = (event) => {
    event.preventDefault();
    setToken(input.value.trim());
    start();
  };
  const text = "The address that the dashboard printed when it was started has the token at its end. Open that address, or paste the token here.";
  show({ title: "Sign in", kind: "signed-out", elements: [h("section", { class: "panel sign-in" }, h("header", {}, h("h2", {}, "Which token?")),
    h("div", { class: "body" }, h("form", { onsubmit: submit }, h("p", { class: "about" }, text),
      h("div", { class: "field" }, h("label", { for: "token" }, "Token"), input),
      problem ? h("p", { class: "wrong", role: "alert" }, problem) : null,
      h("div", { class: "actions" }, h("button", { class: "main" }, "Open"))))) ] });
  input.focus();
}
