// SPDX-License-Identifier: Apache-2.0
// What a page shows at instants, for tests: `node sums.js PAGE.html NS...` prints a JSON list with, for
// each instant (CLOCK_MONOTONIC), the bytes of each device by process and category, module, line and
// ledger row: "PID TAB TEXT".
import { readFileSync } from "node:fs";
import { inflateRawSync } from "node:zlib";

import { Filter } from "../src/model/filter.js";
import { Model } from "../src/model/model.js";
import { UNFILTERED } from "../src/model/state.js";
import { makeView } from "../src/model/view.js";

const [, , file, ...instants] = process.argv;
const data = readFileSync(file, "utf8").match(/id="vramscope-data">(.*?)<\/script>/s)[1];
const PACKED = "deflate:";
const model = new Model(JSON.parse(data.startsWith(PACKED) ? inflateRawSync(Buffer.from(data.slice(PACKED.length), "base64")).toString() : data));
const { page, kinds } = model;

/**
 * @param {number} device
 * @param {number} at
 */
function sumsOf(device, at) {
  const state = { device, at, ...UNFILTERED };
  const view = makeView(model, state, new Filter(model, state));
  const sums = { index: page.devices[device].index, nvml: view.nvml, total: view.total, category: {}, module: {}, line: {}, top_line: {}, row: {}, unbacked: {} };
  for (const [kind, bytes] of view.asleep.kindBytes.entries()) {
    if (bytes === 0) continue;
    const key = `${page.processes[kinds.process[kind]].pid}\t${page.categories[page.sites.category[kind]]}`;
    sums.unbacked[key] = (sums.unbacked[key] ?? 0) + bytes;
  }
  for (const kind of view.shown) {
    const process = page.processes[kinds.process[kind]].pid;
    const line = page.names[page.sites.line[kind]] || "(no stack)";
    const keys = {
      category: page.categories[page.sites.category[kind]], module: page.names[kinds.module[kind]] || "(none)",
      line, row: page.paths[kinds.path[kind]].join("\t"),
    };
    if (page.sites.held[kind] === 1) sums.top_line[line] = (sums.top_line[line] ?? 0) + view.kindBytes[kind];
    for (const [dimension, text] of Object.entries(keys)) {
      const key = `${process}\t${text}`;
      sums[dimension][key] = (sums[dimension][key] ?? 0) + view.kindBytes[kind];
    }
  }
  return sums;
}

console.log(JSON.stringify(instants.map((at) => page.devices.map((_, device) => sumsOf(device, Number(BigInt(at) - BigInt(page.start_ns)))))));
