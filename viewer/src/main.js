// SPDX-License-Identifier: Apache-2.0
// Reads the page's data, makes the views, and renders them again after each choice of the reader.
import { Controls } from "./views/controls.js";
import { forgetColours, h, perFrame, setAttribute } from "./dom/dom.js";
import { Explore } from "./views/explore.js";
import { makeAdvice, makeRefusals } from "./views/findings.js";
import { Filter } from "./model/filter.js";
import { makeFooter, makeHeader } from "./views/header.js";
import { listenForHelp } from "./dom/help.js";
import { Parts } from "./base/parts.js";
import { Icicle } from "./views/icicle.js";
import { Model } from "./model/model.js";
import { drawPage } from "./model/page_data.js";
import { Palette } from "./model/palette.js";
import { PhaseTable } from "./views/phases.js";
import { Store, formatHash, parseHash } from "./model/state.js";
import { Summary } from "./views/summary.js";
import { haystacksOf } from "./model/search.js";
import { LedgerTable, ModuleTable } from "./views/tables.js";
import { Timeline } from "./timeline/timeline.js";
import { TopTable } from "./views/top.js";
import { makeView } from "./model/view.js";
import { PathBook } from "./model/tree_paths.js";

/**
 * The state that the views draw.
 * @typedef {object} Scene
 * @property {Filter} filter
 * @property {boolean} moving The instant is being dragged, so slow parts wait.
 */

// The slow parts are drawn when a drag rests this long.
const REST_MS = 120;

/** @type {(keyof import("./model/state.js").State)[]} */
const FILTERS = ["device", "search", "categories", "module", "path", "min"];
/** @type {(keyof import("./model/state.js").State)[]} */
const ICICLE_ONLY = ["by", "focus", "mine"];

/**
 * The device with the highest peak; GPUs come first.
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

/**
 * @param {Palette} palette
 * @param {boolean} [dark] Overrides the system's setting.
 */
function applyTheme(palette, dark) {
  const query = window.matchMedia("(prefers-color-scheme: dark)");
  palette.dark = dark ?? query.matches;
  forgetColours();
  palette.swatches.forEach((_, category) => {
    document.documentElement.style.setProperty(`--c${category}`, palette.background(category));
  });
  return query;
}

/** The page of an empty recording: what to do next. */
function makeEmpty() {
  const code = (/** @type {string} */ text) => h("code", {}, text);
  return h("section", { class: "card empty-page", "aria-label": "Nothing recorded" },
    h("p", {}, "This recording contains no device memory: the program allocated nothing on a GPU while it was recorded."),
    h("ul", {},
      h("li", {}, "If the program uses only the CPU: ", code("vramscope run --cpu -- python train.py"), " records CPU tensors."),
      h("li", {}, "If the program should use a GPU: ", code("vramscope doctor"), " checks the driver and NVML."),
      h("li", {}, code("vramscope info FILE"), " shows what was recorded.")));
}

/**
 * @param {import("./model/types.js").PageData} data
 * @param {HTMLElement} page
 */
function start(data, page) {
  const model = new Model(data);
  if (model.page.devices.length === 0) {
    page.append(h("h1", {}, model.page.title), makeEmpty(), makeFooter(model));
    return;
  }
  const palette = new Palette(model.categories, model.heaviest);
  const theme = applyTheme(palette);
  const modules = model.kinds.module.some((module) => module !== 0);
  /** @type {import("./model/state.js").Usual} */
  const usual = { device: firstDevice(model), by: modules ? "module" : "stack", zoom: model.firstWindow(firstDevice(model)) };
  const limits = { devices: model.page.devices.length, duration: model.duration };
  const store = new Store(parseHash(location.hash, limits, usual));
  const treePaths = new PathBook(model);
  /** @type {Scene} */
  const scene = { filter: new Filter(model, store.state), moving: false };
  let view = makeView(model, store.state, scene.filter);
  const timeline = new Timeline(model, palette, store, scene);
  timeline.element.classList.toggle("gone", model.page.instant);
  const icicle = new Icicle(model, palette, store, treePaths);
  const controls = new Controls(model, store);
  const summary = new Summary(model, store);
  const ledger = new LedgerTable(store, treePaths);
  const explore = new Explore(model, palette, store);
  const phases = model.page.phases ? [new PhaseTable(model, store, model.page.phases)] : [];
  const cards = [summary, ...phases, new ModuleTable(model, store, treePaths), ledger, icicle, new TopTable(model), explore];
  const showTotals = () => {
    controls.render(view);
    summary.renderTotals(view);
  };
  const totals = perFrame(showTotals);
  let resting = 0;
  // The parts still to draw. Tests and screen readers wait for their end.
  const parts = new Parts((busy) => setAttribute(page, "aria-busy", busy ? "true" : null));
  const remember = () => {
    try {
      history.replaceState(null, "", `#${formatHash(store.state, usual)}`);
    } catch {
      // A page inside a frame of a mail has no address.
    }
  };
  const render = () => {
    clearTimeout(resting);
    resting = 0;
    showTotals();
    const now = view;
    const drawn = cards.flatMap((each) => ("parts" in each ? each.parts(now) : [() => each.render(now)]));
    parts.begin([timeline.refilter(), explore.preparing(now), ...drawn, remember]);
  };
  const skip = h("button", { class: "skip", type: "button", click: () => ledger.table.focus() }, "Skip to the ledger");
  page.append(skip, makeHeader(model, store), ...makeRefusals(model, store), ...makeAdvice(model), timeline.element, controls.element, ...cards.map((card) => card.element), makeFooter(model));
  store.subscribe((state, changed) => {
    const filtered = FILTERS.some((key) => changed.has(key));
    if (filtered) scene.filter = new Filter(model, state);
    if (filtered || changed.has("at")) view = makeView(model, state, scene.filter);
    if (filtered || (changed.has("at") && !scene.moving)) {
      render();
    } else if (changed.has("at")) {
      parts.cancel();
      totals();
      clearTimeout(resting);
      resting = setTimeout(render, REST_MS);
    } else {
      remember();
      if (ICICLE_ONLY.some((key) => changed.has(key))) icicle.render(view);
      if (changed.has("tab") || changed.has("base")) explore.render(view);
    }
  });
  timeline.rested = () => { if (resting) render(); };
  const repaint = () => {
    timeline.paint();
    icicle.paint();
    explore.paint();
  };
  theme.addEventListener("change", () => {
    applyTheme(palette);
    repaint();
  });
  // Print with the light theme and with complete tables.
  window.addEventListener("beforeprint", () => {
    parts.finish();
    for (const each of document.querySelectorAll("details")) each.open = true;
    applyTheme(palette, false);
    repaint();
  });
  window.addEventListener("afterprint", () => {
    applyTheme(palette);
    repaint();
  });
  listenForHelp();
  window.addEventListener("hashchange", () => store.set(parseHash(location.hash, limits, usual)));
  render();
  parts.finish();
  // Prepare data for the first filter.
  parts.begin([() => void haystacksOf(model), () => void model.endsOf(store.state.device)]);
}

drawPage(start);
