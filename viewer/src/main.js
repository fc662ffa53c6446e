// SPDX-License-Identifier: Apache-2.0
// Reads the page's data, makes the views, and renders them again when the reader's choices change.
import { Controls } from "./controls.js";
import { h } from "./dom.js";
import { makeFooter, makeHeader } from "./header.js";
import { Icicle } from "./icicle.js";
import { LedgerBar, LedgerTable } from "./ledger.js";
import { Model } from "./model.js";
import { Palette } from "./palette.js";
import { Search } from "./search.js";
import { Store, formatHash, parseHash } from "./state.js";
import { Timeline } from "./timeline.js";
import { TopTable } from "./top.js";
import { makeView } from "./view.js";

// Tests of the page look here.
window.addEventListener("error", (event) => {
  document.documentElement.dataset.error = event.message;
});

/**
 * The device with the highest peak, graphics first.
 * @param {Model} model
 */
function firstDevice(model) {
  let best = 0;
  const rank = (/** @type {number} */ device) => [
    model.page.devices[device].kind === "gpu" ? 1 : 0, model.reportDevices[device]?.ledger_bytes ?? 0];
  for (let device = 1; device < model.page.devices.length; ++device) {
    const [a, b] = [rank(device), rank(best)];
    if (a[0] > b[0] || (a[0] === b[0] && a[1] > b[1])) best = device;
  }
  return best;
}

/** @param {Palette} palette */
function applyTheme(palette) {
  const query = window.matchMedia("(prefers-color-scheme: dark)");
  palette.dark = query.matches;
  palette.swatches.forEach((_, category) => {
    document.documentElement.style.setProperty(`--c${category}`, palette.colour(category));
  });
  return query;
}

function start() {
  const element = /** @type {HTMLElement} */ (document.getElementById("vramscope-data"));
  const page = /** @type {HTMLElement} */ (document.getElementById("page"));
  const model = new Model(JSON.parse(element.textContent ?? ""));
  element.remove();
  if (model.page.devices.length === 0) {
    page.append(h("h1", {}, model.page.title), h("p", { class: "empty" }, "This recording has no device with memory in it."),
      makeFooter(model));
    return;
  }
  const palette = new Palette(model.categories, model.heaviest);
  applyTheme(palette);
  const device = firstDevice(model);
  const limits = { devices: model.page.devices.length, duration: model.duration, device };
  const store = new Store(parseHash(location.hash, limits));
  const timeline = new Timeline(model, palette, store);
  const controls = new Controls(model, store);
  const bar = new LedgerBar(model, store);
  const table = new LedgerTable(store);
  const icicle = new Icicle(model, palette, store);
  const top = new TopTable(model);
  let view = makeView(model, store.state);
  let search = new Search(model, store.state.search);
  const render = () => {
    controls.render(view);
    bar.render(view);
    table.render(view, search);
    icicle.render(view, search);
    top.render(view, search);
  };
  page.append(
    makeHeader(model, store), timeline.element, controls.element,
    h("section", { class: "card", "aria-label": "Ledger" },
      h("div", { class: "card-head" }, h("h2", {}, "Ledger"),
        h("span", { class: "hint" }, "every byte in one row · click a colour to see only it")),
      bar.element, table.element),
    icicle.element, top.element, makeFooter(model));
  store.subscribe((state, changed) => {
    history.replaceState(null, "", `#${formatHash(state, device)}`);
    if (changed.has("search")) search = new Search(model, state.search);
    if (changed.has("at") || changed.has("device") || changed.has("only")) view = makeView(model, state);
    if (changed.size > 1 || !changed.has("zoom")) render();
  });
  applyTheme(palette).addEventListener("change", () => {
    applyTheme(palette);
    timeline.draw();
    icicle.draw();
  });
  render();
  timeline.paint();
}

start();
document.documentElement.dataset.ready = "1";
