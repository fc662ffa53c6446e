// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";

import { makePage } from "../dev/make_page.js";
import { groupLives } from "../src/groups.js";
import { categoryOf, categoryOfGroup } from "../src/category.js";
import { Model } from "../src/model.js";
import { Search } from "../src/search.js";
import { foldStacks, mainCategory } from "../src/tree.js";
import { makeView } from "../src/view.js";

const LIVES = [
  [100, 0, -1, 1, 0], [50, 10, 40, 2, 1], [30, 10, -1, 4, 1], [20, 10, -1, 4, 1], [7, 0, -1, 0, 2],
];
const STATE = { device: 0, at: null, search: "", only: null, zoom: null, mine: false };
const NO_SEARCH = (model) => new Search(model, "");

const rows = [
  { device: 0, pid: 7, path: ["PyTorch", "allocated", "parameter"], bytes: 100, count: 1 },
  { device: 0, pid: 7, path: ["PyTorch", "cached"], bytes: 60, count: 0 },
  { device: 0, pid: null, path: ["other processes"], bytes: 5, count: 0 },
];

function reportPage(more = {}) {
  const page = makePage({ lives: LIVES, ...more });
  page.report.rows = rows;
  return page;
}

test("a path's category is its innermost level that is one, else its owner", () => {
  assert.equal(categoryOf(["PyTorch", "allocated", "activation", "h.0"]), "activation");
  assert.equal(categoryOf(["driver-owned", "first launches"]), "driver");
  assert.equal(categoryOf(["cuBLAS", "allocated"]), "cuBLAS");
  assert.equal(categoryOf(["PyTorch", "graph memory, cached"]), "cached");
  assert.equal(categoryOf([]), "unknown");
  assert.equal(categoryOfGroup("PyTorch / cached"), "cached");
});

test("at the peak the ledger is the report's", () => {
  const model = new Model(reportPage());
  const view = makeView(model, STATE);
  assert.equal(view.at, 500);
  assert.equal(view.total, 165);
  assert.deepEqual(view.ledger.children.map((node) => [node.name, node.bytes]), [["PyTorch", 160], ["other processes", 5]]);
  assert.deepEqual(view.ledger.children[0].children.map((node) => node.name), ["allocated", "cached"]);
});

test("a device without a peak, or with one outside the recording, is shown within it", () => {
  const page = reportPage();
  page.report.devices[0].at.time_ns = 0;
  assert.equal(makeView(new Model(page), STATE).at, 0);
  page.report.devices[0].at.time_ns = 1e9;
  assert.equal(makeView(new Model(page), STATE).at, 1000);
  page.report.devices[0].ledger_bytes = 0;
  assert.equal(makeView(new Model(page), STATE).at, 0);
});

test("rows unfold into places as far as lives explain them", () => {
  const page = reportPage();
  page.report.rows = [
    { device: 0, pid: 7, path: ["PyTorch", "allocated", "parameter"], bytes: 130, count: 3 },
    { device: 0, pid: 7, path: ["PyTorch", "allocated", "activation"], bytes: 20, count: 1 },
  ];
  const [parameter, activation] = makeView(new Model(page), STATE).ledger.children[0].children[0].children;
  assert.deepEqual(parameter.children.map((node) => [node.name, node.bytes, node.count]),
    [["app.py:1 in main", 100, 1], ["not listed", 30, 2]]);
  // More lives than the row has: they cannot be its parts.
  assert.deepEqual([activation.bytes, activation.children.length], [20, 0]);
});

test("where the ledger knows no purposes, places have the colours", () => {
  const timeline = { device: 0, groups: ["PyTorch / allocated", "PyTorch / cached", "driver-owned / context"],
    t: [0, 300], peak: [[200, 150], [0, 50], [7, 7]], nvml: [] };
  const page = reportPage({ paths: [["PyTorch", "allocated"], ["PyTorch", "allocated"], ["driver-owned", "context"]],
    timelines: [timeline] });
  page.report.rows = [];
  const model = new Model(page);
  assert.deepEqual(model.categories,
    ["driver", "PyTorch", "app.py:1 in main", "app.py:2 in forward", "other places", "cached"]);
  assert.deepEqual(model.heaviest, ["app.py:1 in main", "app.py:2 in forward"]);
  const bytes = (at) => Object.fromEntries([...model.histories[0].columns(at, at + 1, 1).bytes]
    .map((value, category) => [model.categories[category], value]).filter(([, value]) => value > 0));
  assert.deepEqual(bytes(20), { driver: 7, "app.py:1 in main": 100, "app.py:2 in forward": 100 });
  assert.deepEqual(bytes(400), { driver: 7, "app.py:1 in main": 100, "app.py:2 in forward": 50, cached: 50 });
  // The timeline's buckets know no places, however far it is zoomed out.
  assert.equal(model.histories[0].columns(0, 1000, 1).detailed, true);
  const view = makeView(model, { ...STATE, at: 20, only: { category: "app.py:2 in forward" } });
  assert.equal(view.liveBytes, 100);
  assert.equal(makeView(model, { ...STATE, at: 20, only: { path: ["PyTorch", "allocated", "app.py:1 in main"] } }).liveBytes, 100);
});

test("processes that share a device lead the ledger", () => {
  const page = reportPage({ processes: [{ pid: 7, rank: 0, command: "" }, { pid: 8, rank: 1, command: "" }] });
  page.report.rows = [...rows, { device: 0, pid: 8, path: ["PyTorch", "cached"], bytes: 1, count: 0 }];
  const view = makeView(new Model(page), STATE);
  assert.deepEqual(view.ledger.children.map((node) => node.name),
    ["rank 0, process 7", "no recorded process", "rank 1, process 8"]);
});

test("at an instant the ledger is that of the lives", () => {
  const model = new Model(reportPage());
  const view = makeView(model, { ...STATE, at: 20 });
  assert.equal(view.total, 207);
  assert.equal(view.live.length, 5);
  assert.equal(makeView(model, { ...STATE, at: 40 }).total, 157);
  assert.equal(view.nvml, null);
});

test("a category or a branch narrows what is live", () => {
  const model = new Model(reportPage());
  const bytes = (only) => makeView(model, { ...STATE, at: 20, only }).liveBytes;
  assert.equal(bytes({ category: "activation" }), 100);
  assert.equal(bytes({ path: ["PyTorch"] }), 200);
  assert.equal(bytes({ path: ["PyTorch", "allocated", "parameter"] }), 100);
  assert.equal(bytes({ category: "no such" }), 0);
});

test("stacks fold with every byte once", () => {
  const model = new Model(reportPage());
  const { live } = makeView(model, { ...STATE, at: 20 });
  const root = foldStacks(model, live, false, NO_SEARCH(model));
  assert.equal(root.bytes, 207);
  assert.equal(root.own, 7);
  const main = root.children[0];
  assert.deepEqual([main.bytes, main.own, main.count], [200, 100, 4]);
  // Two callees of 50 bytes each: by stack 2, and by stack 3 with all of its own callee.
  assert.deepEqual(main.children.map((node) => [node.stack, node.bytes, node.own]), [[2, 50, 50], [3, 50, 0]]);
  assert.equal(model.categories[mainCategory(main)], "parameter");
});

test("without frames of libraries their callees move up and merge", () => {
  const model = new Model(reportPage());
  const { live } = makeView(model, { ...STATE, at: 20 });
  const main = foldStacks(model, live, true, NO_SEARCH(model)).children[0];
  assert.deepEqual(main.children.map((node) => [node.frame, node.bytes, node.own]), [[2, 100, 100]]);
});

test("search finds functions, files, source and levels, and what they call", () => {
  const model = new Model(reportPage());
  const found = (text) => {
    const search = new Search(model, text);
    return LIVES.map((_, life) => (search.matches(life) ? 1 : 0)).join("");
  };
  assert.equal(found("FORWARD"), "01110");
  assert.equal(found("app.py:1"), "11110");
  assert.equal(found("self.mlp"), "01110");
  assert.equal(found("parameter"), "10000");
  assert.equal(found("nothing like it"), "00000");
  assert.equal(new Search(model, "  ").on, false);
});

test("the search's matches are counted up the stacks", () => {
  const model = new Model(reportPage());
  const { live } = makeView(model, { ...STATE, at: 20 });
  const root = foldStacks(model, live, false, new Search(model, "torch.py"));
  assert.deepEqual(root.children[0].children.map((node) => node.found), [0, 2]);
});

test("top rows are one a stack and level, largest first", () => {
  const model = new Model(reportPage());
  const { live } = makeView(model, { ...STATE, at: 20 });
  const groups = groupLives(model, live, NO_SEARCH(model));
  assert.deepEqual(groups.map((group) => [group.stack, group.bytes, group.count]),
    [[1, 100, 1], [2, 50, 1], [4, 50, 2], [0, 7, 1]]);
  assert.equal(model.placeOf(4), 2);
  assert.equal(model.placeOf(3), 1);
});

test("a stack table that leads in a circle is cut", () => {
  const page = makePage({ lives: [[1, 0, -1, 2, 0]], stacks: [[0, 0], [2, 1], [1, 2], [99, 1]] });
  const model = new Model(page);
  assert.ok(model.framesOf(2).length <= 3);
  assert.equal(model.stackOrder.length, 3);
  assert.equal(foldStacks(model, [0], false, NO_SEARCH(model)).bytes, 1);
});
