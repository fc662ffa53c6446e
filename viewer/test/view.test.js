// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";

import { makePage } from "../dev/make_page.js";
import { categoryOf, categoryOfGroup } from "../src/model/category.js";
import { commandOf } from "../src/dom/command.js";
import { Filter } from "../src/model/filter.js";
import { Model } from "../src/model/model.js";
import { isWithin, prefixes, within } from "../src/base/names.js";
import { Search } from "../src/model/search.js";
import { UNFILTERED } from "../src/model/state.js";
import { labelsTo, mainCategory, nodeAt } from "../src/base/trie.js";
import { allocationsOf, heaviest, makeView } from "../src/model/view.js";
import { PathBook } from "../src/model/tree_paths.js";

const ACTIVATION = { stack: 4, category: "activation", module: 2 };
const ALLOCATIONS = [
  [100, 0, -1, { stack: 1, module: 1, name: 3 }], [7, 0, -1, { path: 2 }],
  [50, 10, 40, { stack: 2, category: "activation", module: 1 }], [30, 10, -1, ACTIVATION], [20, 10, -1, ACTIVATION],
];
// A segment that nothing is cut out of.
const CACHED = [60, 0, -1, { path: 3, backing: 1, segment: 1 }];
const OTHERS = [{ account: 2, path: 6 }, 0, 5];
const STATE = { device: 0, at: null, ...UNFILTERED, zoom: null, by: "module", focus: [], mine: false };

const categoriesOf = (model) => model.page.allocations.site.map((site) => model.categories[model.kinds.category[site]]);

/** A view of what `more` chooses. */
function look(model, more = {}) {
  const state = { ...STATE, ...more };
  return makeView(model, state, new Filter(model, state));
}

const folded = (model, view, order, mine = false) => new PathBook(model).of(order, 0, mine).fold(view);
const outline = (node) => node.children.map((child) => [child.level.name, child.bytes]);

const reportPage = (more = {}) => makePage({ allocations: [...ALLOCATIONS, CACHED], segments: 1, steps: [OTHERS], ...more });

test("a path's category is its innermost level that is one", () => {
  assert.equal(categoryOf(["PyTorch", "allocated", "activation", "h.0"]), "activation");
  assert.equal(categoryOf(["driver-owned", "first launches"]), "driver");
  assert.equal(categoryOf(["cuBLAS", "allocated"]), "unknown");
  assert.equal(categoryOf(["PyTorch", "graph memory, cached"]), "cached");
  assert.equal(categoryOf([]), "unknown");
  assert.equal(categoryOfGroup("PyTorch / cached"), "cached");
});

test("at the peak every byte of the report is shown once, in every order", () => {
  const model = new Model(reportPage());
  const view = look(model);
  assert.equal(view.at, 500);
  assert.deepEqual([view.total, view.bytes, view.listed, view.count], [222, 222, 157, 4]);
  for (const order of ["module", "stack", "category", "owner", "layer"]) {
    const root = folded(model, view, order);
    assert.equal(root.bytes, 222, order);
    const own = (node) => node.children.reduce((sum, child) => sum + own(child), node.own);
    assert.equal(own(root), 222, order);
  }
  assert.deepEqual(outline(folded(model, view, "owner")), [["PyTorch", 210], ["driver-owned", 7], ["other processes", 5]]);
});

test("a device without a peak, or with one outside the recording, is shown within it", () => {
  const page = reportPage();
  page.devices[0].peak_at = -5000;
  assert.equal(look(new Model(page)).at, 0);
  page.devices[0].peak_at = 1e9;
  assert.equal(look(new Model(page)).at, 1000);
  page.report.devices[0].ledger_bytes = 0;
  assert.equal(look(new Model(page)).at, 0);
});

test("rows unfold into the lines that have them", () => {
  const model = new Model(reportPage());
  const allocated = folded(model, look(model), "owner").children[0].children[0];
  assert.deepEqual(allocated.children.map((node) => [node.level.name, node.bytes, node.count]),
    [["app.py:1 in main", 100, 1], ["app.py:2 in forward", 50, 2]]);
});

test("calls under way are a row, and NVML's figure stands beside the ledger", () => {
  const model = new Model(reportPage({ samples: [[490, 240, 222, 0, 30]] }));
  const view = look(model);
  assert.deepEqual([view.nvml, view.total], [240, 240]);
  const driver = folded(model, view, "owner").children.find((node) => node.level.name === "driver-owned");
  assert.deepEqual(outline(driver).find(([name]) => name === "in transit"), ["in transit", 18]);
  assert.equal(look(model, { min: 1 }).bytes, 157);
});

test("what is left out has its category and its row, and no line", () => {
  const leftOut = { count: 9, instants: [500], rows: [[{ category: "activation" }, 0, 40]] };
  const model = new Model(reportPage({ leftOut }));
  const view = look(model);
  assert.deepEqual([view.total, view.bytes], [262, 262]);
  assert.deepEqual(outline(folded(model, view, "category"))[1], ["activation", 90]);
  assert.equal(look(model, { module: "h.0" }).bytes, 150);
});

test("where allocations are left out, instants are those of the page, and what was asked for is known", () => {
  const leftOut = { count: 9, instants: [100, 400, 500], rows: [[{ category: "activation" }, 0, 40]] };
  const model = new Model(reportPage({ leftOut }));
  const { at, asked } = look(model, { at: 430 });
  assert.deepEqual([at, asked], [400, 430]);
  assert.deepEqual([[400, 401], [400, 399], [500, 600], [100, 480]].map(([from, to]) => model.exactTowards(from, to)), [500, 100, 500, 500]);
  const whole = new Model(reportPage());
  assert.deepEqual([look(whole, { at: 430 }).at, whole.exactTowards(400, 401)], [430, 401]);
});

test("where nobody knows purposes, places have the colours", () => {
  const timeline = { device: 0, groups: ["PyTorch / allocated", "PyTorch / cached", "driver-owned / context"],
    t: [0, 300], peak: [[200, 150], [0, 50], [7, 7]], nvml: [] };
  const allocations = ALLOCATIONS.map(([bytes, begin, end, { stack, path }]) =>
    [bytes, begin, end, { stack, path, category: path === 2 ? "driver" : "unknown", segment: path === 2 ? 0 : 1 }]);
  allocations.push([200, 0, -1, { path: 3, backing: 1, segment: 1 }]);
  const page = makePage({ allocations, segments: 1, timelines: [timeline] });
  const model = new Model(page);
  assert.deepEqual(model.categories, ["driver", "app.py:1 in main", "app.py:2 in forward", "other places", "unknown", "fragmentation", "cached"]);
  assert.deepEqual(model.heaviest, ["app.py:1 in main", "app.py:2 in forward"]);
  const every = new Filter(model, STATE);
  const bytes = (at) => Object.fromEntries([...model.histories[0].columns(at, at + 1, 1, every).bytes]
    .map((value, category) => [model.categories[category], value]).filter(([, value]) => value > 0));
  assert.deepEqual(bytes(20), { driver: 7, "app.py:1 in main": 100, "app.py:2 in forward": 100 });
  assert.deepEqual(bytes(400), { driver: 7, "app.py:1 in main": 100, "app.py:2 in forward": 50, fragmentation: 50 });
  assert.equal(look(model, { at: 20, categories: ["app.py:2 in forward"] }).bytes, 100);
  assert.equal(look(model, { at: 20, path: ["PyTorch", "allocated", "app.py:1 in main"] }).bytes, 100);
});

test("layers have the colours before lines, and what has a purpose keeps its own", () => {
  const allocations = ALLOCATIONS.map(([bytes, begin, end, { stack, module, path }], i) =>
    [bytes, begin, end, { stack, module, path, category: i === 3 ? "gradient" : "unknown" }]);
  assert.deepEqual(categoriesOf(new Model(makePage({ allocations }))), ["h.0.mlp", "other places", "h.0.mlp", "gradient", "h.0"]);
});

test("a few bytes of unknown purpose do not take the colours", () => {
  const allocations = ALLOCATIONS.map(([bytes, begin, end, more], i) => [bytes, begin, end, i === 4 ? { ...more, category: "unknown" } : more]);
  const model = new Model(makePage({ allocations }));
  assert.equal(model.byPlace, false);
  assert.equal(categoriesOf(model)[4], "unknown");
});

test("processes that share a device lead the ledger", () => {
  const processes = [{ pid: 0, rank: null, command: "" }, { pid: 7, rank: 0, command: "" }, { pid: 8, rank: 1, command: "" }];
  const model = new Model(reportPage({ processes, accounts: { device: [-1, 0, 0, 0], process: [0, 1, 0, 2] }, allocations: [...ALLOCATIONS, CACHED, [1, 0, -1, { account: 3 }]] }));
  assert.deepEqual(outline(folded(model, look(model), "owner")),
    [["(pid 7, rank 0)", 217], ["no recorded process", 5], ["(pid 8, rank 1)", 1]]);
  assert.equal(look(model, { path: ["(pid 7, rank 0)", "PyTorch"] }).bytes, 210);
});

test("at an instant the live set is what had begun and not ended", () => {
  const model = new Model(reportPage());
  assert.deepEqual([look(model, { at: 20 }).total, look(model, { at: 20 }).count, look(model, { at: 40 }).total], [272, 5, 222]);
  assert.equal(look(model, { at: 20 }).nvml, null);
});

test("filters by category, module, branch, text and size narrow what is shown", () => {
  const model = new Model(reportPage());
  const bytes = (more) => look(model, { at: 20, ...more }).bytes;
  assert.equal(bytes({ categories: ["activation"] }), 100);
  assert.equal(bytes({ categories: ["activation", "driver"] }), 107);
  assert.equal(bytes({ categories: ["no such"] }), 0);
  assert.equal(bytes({ module: "h.0" }), 200);
  assert.equal(bytes({ module: "h.0.mlp" }), 150);
  assert.equal(bytes({ module: "" }), 72);
  assert.equal(bytes({ path: ["PyTorch"] }), 260);
  assert.equal(bytes({ min: 30 }), 180);
  assert.equal(bytes({ search: "app.py:1 in main" }), 100);
  assert.equal(bytes({ search: "mlp", categories: ["activation"] }), 100);
  assert.equal(bytes({ search: "mlp", module: "h.0.mlp", min: 60 }), 100);
});

test("what no allocation has passes what it matches, and no smallest size", () => {
  const model = new Model(reportPage());
  const bytes = (more) => look(model, more).bytes;
  assert.equal(bytes({ categories: ["cached"] }), 60);
  assert.equal(bytes({ path: ["PyTorch"] }), 210);
  assert.equal(bytes({ path: ["PyTorch", "cached"] }), 60);
  assert.equal(bytes({ path: ["PyTorch"], min: 1 }), 150);
  assert.equal(bytes({ min: 1 }), 157);
});

test("the categories beside a chosen one keep their bytes", () => {
  const model = new Model(reportPage());
  const view = look(model, { categories: ["activation"] });
  const byName = Object.fromEntries([...view.byCategory].map((bytes, at) => [model.categories[at], bytes]).filter(([, bytes]) => bytes > 0));
  assert.deepEqual(byName, { driver: 7, parameter: 100, activation: 50, unknown: 5, cached: 60 });
  assert.deepEqual([view.bytes, view.total], [50, 222]);
});

test("modules fold by the parts of their names, parameters and lines within", () => {
  const model = new Model(reportPage());
  const root = folded(model, look(model, { at: 20 }), "module");
  assert.deepEqual(outline(root), [["h", 200], ["(no module)", 72]]);
  const block = root.children[0].children[0];
  assert.deepEqual([block.level.name, block.level.module, block.own], ["0", "h.0", 0]);
  assert.deepEqual(outline(block), [["mlp", 150], ["app.py:2 in forward", 50]]);
  assert.deepEqual([block.children[0].level.place, outline(block.children[0])],
    ["MLP", [["weight", 100], ["app.py:2 in forward", 50]]]);
  const layers = folded(model, look(model, { at: 20 }), "layer").children[0].children[0];
  assert.deepEqual([layers.bytes, layers.own, layers.children[0].own], [200, 50, 150]);
  assert.deepEqual(labelsTo(block.children[0]), ["h", "0", "mlp MLP"]);
  assert.equal(nodeAt(root, ["h", "0", "mlp MLP"]), block.children[0]);
  assert.equal(nodeAt(root, ["h", "9"]), null);
});

test("names nest at dots and slashes", () => {
  assert.deepEqual(prefixes("h.3.mlp"), ["h", "h.3", "h.3.mlp"]);
  assert.deepEqual(prefixes("solve/jacobi"), ["solve", "solve/jacobi"]);
  assert.deepEqual(prefixes(""), []);
  assert.deepEqual(prefixes("odd."), ["odd."]);
  assert.equal(isWithin("h.3.mlp", "h.3"), true);
  assert.equal(isWithin("h.30", "h.3"), false);
  assert.equal(within("h.3.mlp.weight", "h.3.mlp"), "weight");
  assert.equal(within("head.weight", "tokens"), "head.weight");
});

test("stacks fold with every byte once", () => {
  const model = new Model(reportPage());
  const root = folded(model, look(model, { at: 20 }), "stack");
  assert.deepEqual(outline(root), [["main", 200], ["(no stack)", 72]]);
  const main = root.children[0];
  assert.deepEqual([main.bytes, main.own, main.count], [200, 100, 4]);
  assert.deepEqual(main.children.map((node) => [node.level.place, node.bytes, node.own]), [["app.py:2", 50, 50], ["torch.py:3", 50, 0]]);
  assert.equal(model.categories[mainCategory(main.children[1])], "activation");
});

test("without frames of libraries their callees move up and merge", () => {
  const model = new Model(reportPage());
  const main = folded(model, look(model, { at: 20 }), "stack", true).children[0];
  assert.deepEqual(main.children.map((node) => [node.level.frame, node.bytes, node.own]), [[2, 100, 100]]);
});

test("categories fold into modules, then lines", () => {
  const model = new Model(reportPage());
  const root = folded(model, look(model), "category");
  assert.deepEqual(outline(root), [["parameter", 100], ["cached", 60], ["activation", 50], ["driver", 7], ["unknown", 5]]);
  assert.deepEqual(outline(root.children[2]), [["h", 50]]);
  assert.deepEqual(outline(root.children[1]), [["PyTorch › cached", 60]]);
});

test("search finds functions, files, source, modules, parameters and levels, and what they call", () => {
  const model = new Model(reportPage());
  const found = (text) => {
    const search = new Search(model, text);
    return model.page.allocations.site.filter((site) => model.page.sites.backing[site] === 0).map((site) => (search.matches(site) ? 1 : 0)).join("");
  };
  assert.equal(found("FORWARD"), "00111");
  assert.equal(found("app.py:1"), "10111");
  assert.equal(found("self.mlp"), "00111");
  assert.equal(found("weight"), "10000");
  assert.equal(found("h.0.mlp"), "10100");
  assert.equal(found("context"), "01000");
  assert.equal(found("nothing like it"), "00000");
  assert.equal(new Search(model, "  ").on, false);
});

test("allocations of one site are one row", () => {
  const model = new Model(reportPage());
  const view = look(model, { at: 20 });
  assert.deepEqual(view.shown.map((kind) => [view.kindBytes[kind], view.kindCount[kind]]).filter(([, count]) => count > 0),
    [[100, 1], [7, 1], [50, 1], [50, 2]]);
  const [kind] = view.shown.filter((site) => view.kindCount[site] === 2);
  const sizes = (more) => allocationsOf(model, look(model, { at: 20, ...more }), kind).map((i) => model.bytes[i]);
  assert.deepEqual([sizes({}), sizes({ min: 25 })], [[30, 20], [30]]);
});

test("what a backward made is named by its forward, and folds where it was made", () => {
  const model = new Model(makePage({ allocations: [
    [8, 0, -1, { stack: 1, category: "temporary", module: 1, place: 2 }], [4, 0, -1, { stack: 1, category: "temporary", module: 1 }]] }));
  const view = look(model, { at: 10 });
  assert.deepEqual(outline(folded(model, view, "owner").children[0].children[0]), [["app.py:2 in forward", 8], ["app.py:1 in main", 4]]);
  assert.deepEqual(outline(folded(model, view, "stack")), [["main", 12]]);
  assert.equal(look(model, { at: 10, search: "self.mlp" }).bytes, 8);
});

test("the heaviest layers and lines have what is their own", () => {
  const model = new Model(reportPage());
  const view = look(model, { at: 20 });
  assert.deepEqual(heaviest(model, view, (kind) => model.kinds.module[kind]).map(({ id, bytes, count }) =>
    [model.page.names[id], bytes, count]), [["h.0.mlp", 150, 2], ["h.0", 50, 2]]);
  assert.deepEqual(heaviest(model, view, (kind) => model.kinds.line[kind]).map(({ id, bytes }) =>
    [model.page.names[id], bytes]), [["app.py:1 in main", 100], ["app.py:2 in forward", 100]]);
});

test("the command names the device of several, and the instant where it is not the device's peak", () => {
  const command = (page, more) => {
    const model = new Model(page);
    return commandOf(model, { ...STATE, ...more }, look(model, more));
  };
  assert.equal(command(reportPage()), "vramscope report t.vram --by module");
  assert.equal(command(reportPage(), { at: 20 }), "vramscope report t.vram --at @5020 --by module");
  assert.equal(command(reportPage(), { categories: ["activation"], module: "h.0" }),
    "vramscope report t.vram --by module --where category=activation --where module=h.0");
  const several = reportPage();
  several.devices.push({ index: -2, kind: "host", name: "host", total_bytes: null, peak_at: 10, allocated_peak_at: null });
  assert.equal(command(several), "vramscope report t.vram --by module --where device=0");
  assert.equal(command(several, { device: 1, at: 10 }), "vramscope report t.vram --at @5010 --by module --where device=host");
});

test("iterations are those of one process, and their marks are not shown twice", () => {
  const model = new Model(makePage({
    iterations: [[1, 0, 10, 50], [1, 1, 50, 90], [2, 0, 10, 90]],
    marks: [[10, "iteration 0"], [20, "iterations done"], [50, "iteration"]],
  }));
  assert.equal(model.iterations.length, 2);
  assert.deepEqual(model.marks, [[20, "iterations done"]]);
  assert.deepEqual([5, 10, 60, 95].map((at) => model.iterationAt(at)), [null, 0, 1, null]);
  assert.equal(new Model(makePage({ marks: [[10, "iteration 0"]] })).marks.length, 1);
});

test("a stack table that leads in a circle is cut", () => {
  const page = makePage({ allocations: [[1, 0, -1, { stack: 2 }]], stacks: [[0, 0], [2, 1], [1, 2], [99, 1]] });
  const model = new Model(page);
  assert.ok(model.framesOf(2).length <= 3);
  assert.equal(model.stackOrder.length, 3);
  assert.equal(folded(model, look(model, { at: 10 }), "stack").bytes, 1);
});
