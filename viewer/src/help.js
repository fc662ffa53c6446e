// SPDX-License-Identifier: Apache-2.0
// What the page can do, on one sheet: `?` opens it.
import { h } from "./dom.js";

/** @type {[string, [string, string][]][]} */
const KEYS = [
  ["Anywhere", [["?", "this sheet"], ["/", "search lines, functions, modules"], ["Tab", "next part of the page; arrow keys move within it"]]],
  ["Timeline", [["← →", "choose an instant; with Shift, ten times as far"], ["[ ]", "border of an iteration"], ["Home End", "first and last instant in sight"],
    ["+ −", "zoom"], ["Page Up, Page Down", "half a window back and on"], ["0", "show all"], ["Esc", "back to the peak"]]],
  ["Live set", [["← → ↑ ↓", "walk the boxes"], ["Enter", "zoom"], ["Esc", "show all"]]],
  ["Tables", [["↑ ↓", "rows; above the first one the heads that sort, and Copy"], ["← →", "close and open"], ["Space", "open or close"], ["Enter", "show only this row, on the whole page"]]],
];
const WORDS = [
  ["ledger", "every byte of a device in exactly one row"],
  ["residual", "NVML's figure less the ledger: what the rows do not explain"],
  ["allocated", "what the program holds: blocks with their rounding; without cache and driver"],
  ["reserved", "what the segments of caching allocators hold, allocated or free"],
  ["peak", "the highest instant of a device, cache and driver included"],
  ["times", "of the host's calls: a GPU's kernels run later"],
  ["cached", "free in segments that nothing lives in: empty_cache() gives it back"],
  ["fragmentation", "free in segments that something still lives in"],
  ["rounding", "what an allocator gave beyond what was asked for"],
  ["in transit", "bytes of driver calls under way while NVML was read"],
];

/** @type {HTMLDialogElement|null} */
let sheet = null;

function makeSheet() {
  const close = h("button", { class: "quiet", type: "button", click: () => sheet?.close() }, "Close");
  const dialog = /** @type {HTMLDialogElement} */ (h("dialog", { class: "help", "aria-label": "Help" },
    h("div", { class: "card-head" }, h("h2", {}, "Keys and words"), h("span", { class: "grow" }), close),
    h("div", { class: "help-parts" },
      ...KEYS.map(([part, keys]) => h("section", {}, h("h3", {}, part),
        h("dl", {}, ...keys.flatMap(([key, what]) => [h("dt", {}, key), h("dd", {}, what)])))),
      h("section", {}, h("h3", {}, "Words"), h("dl", { class: "words" }, ...WORDS.flatMap(([word, what]) => [h("dt", {}, word), h("dd", {}, what)])))),
    h("p", { class: "soft" }, "The address in the browser's bar holds device, instant, window and filters: a bookmark or a link shows the same again.")));
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
