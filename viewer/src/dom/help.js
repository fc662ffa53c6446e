// SPDX-License-Identifier: Apache-2.0
// What the page can do, on one sheet: `?` opens it.
import { h } from "./dom.js";
import { WORDS } from "./words.js";

/** @type {[string, [string, string][]][]} */
const KEYS = [
  ["Anywhere", [["?", "open this help"], ["/", "search lines, functions and layers"], ["Tab", "go to the next part of the page; arrow keys move within it"]]],
  ["Timeline", [["← →", "choose an instant; Shift moves ten times as far"], ["[ ]", "previous or next border of an iteration"], ["Home End", "first or last visible instant"],
    ["+ −", "zoom in or out"], ["Page Up, Page Down", "move by half a window"], ["0", "show the whole recording"], ["Esc", "return to the peak"],
    ["Mouse", "click to inspect an instant; drag to zoom, or drag the line of the instant; Shift-drag to move the window"]]],
  ["Live set", [["← → ↑ ↓", "go to the next box"], ["Enter", "zoom in"], ["Esc", "show all"]]],
  ["Tables", [["↑ ↓", "go to the next row; above the first row: sorting and Copy"], ["← →", "close or open a row"], ["Space", "open or close a row"],
    ["Enter", "filter the whole page by this row"]]],
];

/** @type {HTMLDialogElement|null} */
let sheet = null;

/** @param {string} kind @param {[string, [string, string][]]} part */
function section(kind, [title, entries]) {
  return h("section", {}, h("h3", {}, title),
    h("dl", { class: kind }, ...entries.flatMap(([term, meaning]) => [h("dt", {}, term), h("dd", {}, meaning)])));
}

function makeSheet() {
  const close = h("button", { class: "quiet", type: "button", click: () => sheet?.close() }, "Close");
  const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { class: "help", "aria-label": "Help" },
    h("div", { class: "card-head" }, h("h2", {}, "Keys and words"), h("span", { class: "grow" }), close),
    h("div", { class: "help-parts" },
      ...KEYS.map((part) => section("", part)), ...WORDS.map((part) => section("words", part))),
    h("p", { class: "soft" }, "The address of the page contains device, instant, window and filters. A bookmark or a link shows the same view.")));
  document.body.append(dialog);
  return dialog;
}

export function openHelp() {
  sheet = sheet ?? makeSheet();
  if (!sheet.open) sheet.showModal();
}

export function listenForHelp() {
  window.addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    if (event.key !== "?" || event.ctrlKey || event.metaKey || typing) return;
    event.preventDefault();
    openHelp();
  });
}
