// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";

import { makePage } from "../dev/make_page.js";
import { categoryOf, categoryOfGroup } from "../src/category.js";
import { Filter } from "../src/filter.js";
import { Model } from "../src/model.js";
import { isWithin, prefixes, within } from "../src/names.js";
import { Search } from "../src/search.js";
import { UNFILTERED } from "../src/state.js";
import { labelsTo, mainCategory, nodeAt } from "../src/trie.js";
import { heaviest, livesOf, makeView } from "../src/view.js";
import { WayBook } from "../src/ways.js";

// Bytes, alloc, free, stack, path, category, module, name.
const LIVES = [
  [100, 0, -1, 1, 0, "parameter", 1, 3], [50, 10, 40, 2, 0, "activation", 1], [30, 10, -1, 4, 0, "activation", 2],
  [20, 10, -1, 4, 0, "activation", 2], [7, 0, -1, 0, 2],
];
const STATE = { device: 0, at: null, ...UNFILTERED, zoom: null, by: "module", focus: [], mine: false };

const rows = [
  { device: 0, pid: 7, path: ["PyTorch", "allocated"], bytes: 150, count: 4 },
  { device: 0, pid: 7, path: ["PyTorch", "cached"], bytes: 60, count: 0 },
  { device: 0, pid: 7, path: ["driver-owned", "context"], bytes: 7, count: 1 },
  { device: 0, pid: null, path: ["other processes"], bytes: 5, count: 0 },
];

/** A view of what `more` chooses. */
function look(model, more = {}) {
  const state = { ...STATE, ...more };
  return makeView(model, state, new Filter(model, state));
}

const folded = (model, view, order, mine = false) => new WayBook(model).of(order, 0, mine).fold(view);
const outline = (node) => node.children.map((child) => [child.level.name, child.bytes]);

function reportPage(more = {}) {
  const page = makePage({ lives: LIVES, ...more });
  page.report.rows = rows;
  return page;
}

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
  page.report.devices[0].at.time_ns = 0;
  assert.equal(look(new Model(page)).at, 0);
  page.report.devices[0].at.time_ns = 1e9;
  assert.equal(look(new Model(page)).at, 1000);
  page.report.devices[0].ledger_bytes = 0;
  assert.equal(look(new Model(page)).at, 0);
});

test("rows unfold into places as far as lives explain them", () => {
  const page = reportPage({ left_out: { count: 3, peak_bytes: 30 } });
  page.report.rows = [{ device: 0, pid: 7, path: ["PyTorch", "allocated"], bytes: 180, count: 6 }];
  const model = new Model(page);
  const allocated = folded(model, look(model), "owner").children[0].children[0];
  assert.deepEqual(allocated.children.map((node) => [node.level.name, node.bytes, node.count]),
    [["app.py:1 in main", 100, 1], ["app.py:2 in forward", 50, 2], ["not listed", 30, 3]]);
});

test("what no block was cut out of is the row's own, where no life was left out", () => {
  const page = reportPage();
  page.report.rows = [{ device: 0, pid: 7, path: ["PyTorch", "allocated"], bytes: 180, count: 6 }];
  const model = new Model(page);
  const allocated = folded(model, look(model), "owner").children[0].children[0];
  assert.deepEqual([allocated.bytes, allocated.own, allocated.children.length], [180, 30, 2]);
});

test("a row that the page's lives do not reach is not listed, where lives were left out", () => {
  const page = reportPage({ left_out: { count: 9, peak_bytes: 9 } });
  page.report.rows = [{ device: 0, pid: 7, path: ["cuBLAS", "allocated"], bytes: 9, count: 1 }];
  const model = new Model(page);
  assert.deepEqual(look(model).slack.map(({ path, category }) => [path.join("/"), model.categories[category]]),
    [["cuBLAS/allocated/not listed", "not listed"]]);
});

test("lives that have another purpose than their row at the instant do not count twice", () => {
  const page = reportPage({ paths: [["PyTorch", "activation"], ["PyTorch", "temporary"], ["driver-owned", "context"]] });
  page.report.rows = [
    { device: 0, pid: 7, path: ["PyTorch", "temporary"], bytes: 140, count: 3 },
    { device: 0, pid: 7, path: ["PyTorch", "activation"], bytes: 20, count: 1 },
    { device: 0, pid: 7, path: ["PyTorch", "cached"], bytes: 60, count: 0 },
    { device: 0, pid: 7, path: ["driver-owned", "context"], bytes: 7, count: 1 },
  ];
  const view = look(new Model(page));
  assert.equal(view.total, 227);
  assert.deepEqual(view.slack.map(({ path, bytes }) => [path[1], bytes]), [["temporary", 10], ["cached", 60]]);
});

test("where nobody knows purposes, places have the colours", () => {
  const timeline = { device: 0, groups: ["PyTorch / allocated", "PyTorch / cached", "driver-owned / context"],
    t: [0, 300], peak: [[200, 150], [0, 50], [7, 7]], nvml: [] };
  const lives = LIVES.map((life) => [...life.slice(0, 5), life[4] === 2 ? "driver" : "unknown"]);
  const page = makePage({ lives, timelines: [timeline] });
  const model = new Model(page);
  assert.deepEqual(model.categories, ["driver", "app.py:1 in main", "app.py:2 in forward", "other places", "unknown", "cached", "not listed"]);
  assert.deepEqual(model.heaviest, ["app.py:1 in main", "app.py:2 in forward"]);
  const every = new Filter(model, STATE);
  const bytes = (at) => Object.fromEntries([...model.histories[0].columns(at, at + 1, 1, every).bytes]
    .map((value, category) => [model.categories[category], value]).filter(([, value]) => value > 0));
  assert.deepEqual(bytes(20), { driver: 7, "app.py:1 in main": 100, "app.py:2 in forward": 100 });
  assert.deepEqual(bytes(400), { driver: 7, "app.py:1 in main": 100, "app.py:2 in forward": 50, cached: 50 });
  // The timeline's buckets know no places, however far it is zoomed out.
  assert.equal(model.histories[0].columns(0, 1000, 1, every).detailed, true);
  assert.equal(look(model, { at: 20, categories: ["app.py:2 in forward"] }).bytes, 100);
  assert.equal(look(model, { at: 20, path: ["PyTorch", "allocated", "app.py:1 in main"] }).bytes, 100);
});

test("layers have the colours before lines, and what has a purpose keeps its own", () => {
  const lives = LIVES.map((life, at) => [...life.slice(0, 5), at === 2 ? "gradient" : "unknown", life[6] ?? 0]);
  const model = new Model(makePage({ lives }));
  assert.deepEqual([...model.lifeCategory].map((category) => model.categories[category]),
    ["h.0.mlp", "h.0.mlp", "gradient", "h.0", "other places"]);
});

test("a few bytes of unknown purpose do not take the colours", () => {
  const lives = LIVES.map((life, at) => (at === 3 ? [...life.slice(0, 5), "unknown", 1] : life));
  const model = new Model(makePage({ lives }));
  assert.equal(model.byPlace, false);
  assert.equal(model.categories[model.lifeCategory[3]], "unknown");
});

test("processes that share a device lead the ledger", () => {
  const page = reportPage({ processes: [{ pid: 7, rank: 0, command: "" }, { pid: 8, rank: 1, command: "" }] });
  page.report.rows = [...rows, { device: 0, pid: 8, path: ["PyTorch", "cached"], bytes: 1, count: 0 }];
  const model = new Model(page);
  assert.deepEqual(outline(folded(model, look(model), "owner")),
    [["rank 0, process 7", 217], ["no recorded process", 5], ["rank 1, process 8", 1]]);
  assert.equal(look(model, { path: ["rank 0, process 7", "PyTorch"] }).bytes, 210);
});

test("at an instant the live set is that of the lives", () => {
  const model = new Model(reportPage());
  assert.deepEqual([look(model, { at: 20 }).total, look(model, { at: 20 }).count, look(model, { at: 40 }).total], [207, 5, 157]);
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
  assert.equal(bytes({ module: "" }), 7);
  assert.equal(bytes({ path: ["PyTorch"] }), 200);
  assert.equal(bytes({ min: 30 }), 180);
  assert.equal(bytes({ search: "app.py:1 in main" }), 100);
  assert.equal(bytes({ search: "mlp", categories: ["activation"] }), 100);
  assert.equal(bytes({ search: "mlp", module: "h.0.mlp", min: 60 }), 100);
});

test("slack passes a category, or a branch of the ledger, and nothing narrower", () => {
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
  assert.deepEqual(outline(root), [["h", 200], ["(no module)", 7]]);
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
  assert.deepEqual(outline(root), [["main", 200], ["(no stack)", 7]]);
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
    return LIVES.map((_, life) => (search.matches(model.kinds.ofLife[life]) ? 1 : 0)).join("");
  };
  assert.equal(found("FORWARD"), "01110");
  assert.equal(found("app.py:1"), "11110");
  assert.equal(found("self.mlp"), "01110");
  assert.equal(found("weight"), "10000");
  assert.equal(found("h.0.mlp"), "11000");
  assert.equal(found("context"), "00001");
  assert.equal(found("nothing like it"), "00000");
  assert.equal(new Search(model, "  ").on, false);
});

test("lives that differ in bytes and time only are of one kind", () => {
  const model = new Model(reportPage());
  const view = look(model, { at: 20 });
  assert.deepEqual(view.shown.map((kind) => [view.kindBytes[kind], view.kindCount[kind]]), [[100, 1], [50, 1], [50, 2], [7, 1]]);
  assert.deepEqual(livesOf(model, view, view.shown[2]), [2, 3]);
  assert.deepEqual(livesOf(model, look(model, { at: 20, min: 25 }), view.shown[2]), [2]);
});

test("the same line has a kind for each module and parameter", () => {
  const model = new Model(makePage({ lives: [[1, 0, -1, 1, 0, "gradient", 1, 3], [2, 0, -1, 1, 0, "gradient", 2, 3],
    [4, 0, -1, 1, 0, "gradient", 1, 0], [8, 0, -1, 1, 0, "gradient", 1, 3]] }));
  assert.deepEqual([...model.kinds.ofLife], [0, 1, 2, 0]);
});

test("what a backward made is named by its forward, and folds where it was made", () => {
  const model = new Model(makePage({ lives: [[8, 0, -1, 1, 0, "temporary", 1, 0, 2], [4, 0, -1, 1, 0, "temporary", 1]] }));
  assert.equal(model.kinds.count, 2);
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
  assert.deepEqual(heaviest(model, view, (kind) => model.stackPlace[model.kinds.placeStack[kind]]).map(({ id, bytes }) =>
    [model.places[id], bytes]), [["app.py:1 in main", 100], ["app.py:2 in forward", 100]]);
});

test("iterations are those of one process, and their marks are not shown twice", () => {
  const model = new Model(makePage({
    iterations: [[0, 0, 10, 50], [0, 1, 50, 90], [1, 0, 10, 90]],
    marks: [[10, "iteration 0"], [20, "iterations done"], [50, "iteration"]],
  }));
  assert.equal(model.iterations.length, 2);
  assert.deepEqual(model.marks, [[20, "iterations done"]]);
  assert.deepEqual([5, 10, 60, 95].map((at) => model.iterationAt(at)), [null, 0, 1, null]);
  assert.equal(new Model(makePage({ marks: [[10, "iteration 0"]] })).marks.length, 1);
});

test("a stack table that leads in a circle is cut", () => {
  const page = makePage({ lives: [[1, 0, -1, 2, 0]], stacks: [[0, 0], [2, 1], [1, 2], [99, 1]] });
  const model = new Model(page);
  assert.ok(model.framesOf(2).length <= 3);
  assert.equal(model.stackOrder.length, 3);
  assert.equal(folded(model, look(model, { at: 10 }), "stack").bytes, 1);
});
