// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";

import { bytesStep, formatBytes, formatShare, formatSignedBytes, formatTick, formatTime, inUnit, tableUnit,
  timeStep, fixed } from "../src/base/format.js";

test("bytes", () => {
  assert.deepEqual([0, 512, 1024, 1536, 1 << 20, 4233.4 * 2 ** 20, 3 * 2 ** 40].map(formatBytes),
    ["0 B", "512 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "4.13 GiB", "3.00 TiB"]);
  assert.deepEqual([2 ** 20, -(2 ** 20), 0].map(formatSignedBytes), ["+1.0 MiB", "-1.0 MiB", "0 B"]);
  assert.deepEqual([2 ** 40, 4 * 2 ** 20, 2 ** 22 - 1, 1023, 4].map((bytes) => [tableUnit(bytes).name, inUnit(bytes, tableUnit(bytes))]),
    [["MiB", "1,048,576.00"], ["MiB", "4.00"], ["KiB", "4,096.00"], ["Bytes", "1,023"], ["Bytes", "4"]]);
});

test("shares", () => {
  assert.deepEqual([formatShare(1, 3), formatShare(1, 1e6), formatShare(0, 5), formatShare(5, 0)],
    ["33.3 %", "<0.1 %", "–", "–"]);
});

test("times", () => {
  assert.deepEqual([0, 1500, 2_500_000, 420e6, 3.2141e9, 75e9].map(formatTime),
    ["0 s", "1.500 µs", "2.500 ms", "420.0 ms", "3.214 s", "1 min 15.00 s"]);
});

test("axis labels have the digits that tell them apart", () => {
  assert.deepEqual([[0, 5e8], [5e8, 5e8], [1.35e9, 5e7], [2e6, 1e6], [1500, 500]].map(([at, step]) => formatTick(at, step)),
    ["0", "0.5 s", "1.35 s", "2 ms", "1.5 µs"]);
});

test("steps cut a span into few parts", () => {
  assert.equal(timeStep(3.4e9, 10), 5e8);
  assert.equal(timeStep(100, 10), 10);
  assert.equal(bytesStep(4.8 * 2 ** 30, 6), 2 ** 30);
});

test("figures are as toLocaleString has them", () => {
  for (const value of [0, 1, -1, 999, 1000, 999.95, -1234.5, 1234567.891, 0.04, 2 ** 53, -1e9, 123456]) {
    for (const digits of [0, 1, 2, 3]) {
      assert.equal(fixed(value, digits), value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
    }
  }
});
