// SPDX-License-Identifier: Apache-2.0
// Reads the page's data, makes the views, and renders them again when the reader's choices change.
import { Controls } from "./controls.js";
import { h } from "./dom.js";
import { Filter } from "./filter.js";
import { makeFooter, makeHeader } from "./header.js";
import { Icicle } from "./icicle.js";
import { Model } from "./model.js";
import { Palette } from "./palette.js";
import { Store, formatHash, parseHash } from "./state.js";
import { Summary } from "./summary.js";
import { LedgerTable, ModuleTable } from "./tables.js";
import { Timeline } from "./timeline.js";
import { TopTable } from "./top.js";
import { makeView } from "./view.js";
import { PathBook } from "./tree_paths.js";

/**
 * What the views draw at the moment.
 * @typedef {{filter: Filter}} Scene
 */

/** @type {(keyof import("./state.js").State)[]} */
const FILTERS = ["device", "search", "categories", "module", "path", "min"];
/** @type {(keyof import("./state.js").State)[]} */
const ICICLE_ONLY = ["by", "focus", "mine"];

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
  const theme = applyTheme(palette);
  const modules = model.kinds.module.some((module) => module !== 0);
  /** @type {import("./state.js").Usual} */
  const usual = { device: firstDevice(model), by: modules ? "module" : "stack" };
  const limits = { devices: model.page.devices.length, duration: model.duration };
  const store = new Store(parseHash(location.hash, limits, usual));
  const treePaths = new PathBook(model);
  const scene = { filter: new Filter(model, store.state) };
  let view = makeView(model, store.state, scene.filter);
  const timeline = new Timeline(model, palette, store, scene);
  const icicle = new Icicle(model, palette, store, treePaths);
  const views = [new Controls(model, store), new Summary(model, store), icicle, new ModuleTable(model, store, treePaths),
    new LedgerTable(store, treePaths), new TopTable(model)];
  const render = () => views.forEach((each) => each.render(view));
  const header = makeHeader(model, store);
  const [controls, ...cards] = views;
  page.append(header, timeline.element, controls.element, ...cards.map((card) => card.element), makeFooter(model));
  store.subscribe((state, changed) => {
    history.replaceState(null, "", `#${formatHash(state, usual)}`);
    const filtered = FILTERS.some((key) => changed.has(key));
    if (filtered) scene.filter = new Filter(model, state);
    if (filtered || changed.has("at")) {
      view = makeView(model, state, scene.filter);
      render();
    } else if (ICICLE_ONLY.some((key) => changed.has(key))) {
      icicle.render(view);
    }
  });
  theme.addEventListener("change", () => {
    applyTheme(palette);
    timeline.draw();
    icicle.draw();
  });
  window.addEventListener("hashchange", () => store.set(parseHash(location.hash, limits, usual)));
  render();
  timeline.paint();
}

start();
document.documentElement.dataset.ready = "1";
