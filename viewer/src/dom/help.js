// SPDX-License-Identifier: Apache-2.0
// What the page can do, on one sheet: `?` opens it.
import { h } from "./dom.js";

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
const WORDS = [
  ["ledger", "a table with every byte of a device in exactly one row"],
  ["residual", "NVML's figure minus the ledger: bytes that no row explains"],
  ["allocated", "blocks that the program holds, including rounding; without cache and driver (PyTorch: memory_allocated)"],
  ["reserved", "segments of caching allocators, allocated or free (PyTorch: memory_reserved)"],
  ["peak", "the instant with the most memory on a device, including cache and driver"],
  ["own bytes", "bytes of a layer without its sublayers"],
  ["temporary", "a short-lived block of no other category"],
  ["cached", "free bytes in segments without a live block; empty_cache() returns them"],
  ["fragmentation", "free bytes in segments with live blocks; they cannot be returned"],
  ["rounding", "bytes that an allocator adds to a request"],
  ["driver", "memory of the CUDA driver: contexts, code, local memory"],
  ["RM-internal", "memory of NVIDIA's kernel driver; NVML counts it for no process"],
  ["several calls at once", "driver memory of overlapping calls, which cannot be split"],
  ["slab slack", "the unused rest of 2 MiB driver pages"],
  ["in transit", "bytes of driver calls that were running during an NVML reading"],
  ["times", "times of the host's calls; GPU kernels run later"],
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
