// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { categoryOf } from "../src/model/category.js";
import { KNOWN, Palette, channels, inOrder, mix } from "../src/model/palette.js";

// Machado, Oliveira, Fernandes 2009, severity 1, on linear light.
const SIGHTS = {
  common: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritanopia: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

// Differences in OKLab below this are hard to see in areas that do not touch.
const APART = 0.05;

function lab(hex, sight) {
  const linear = channels(hex).map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  const [r, g, b] = sight.map((row) => Math.min(1, Math.max(0, row[0] * linear[0] + row[1] * linear[1] + row[2] * linear[2])));
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s];
}

for (const theme of ["light", "dark"]) {
  for (const [name, sight] of Object.entries(SIGHTS)) {
    test(`categories stay apart: ${theme}, ${name}`, () => {
      const points = KNOWN.map((swatch) => lab(swatch[theme], sight));
      for (let i = 0; i < points.length; ++i) {
        for (let j = i + 1; j < points.length; ++j) {
          const distance = Math.hypot(...points[i].map((value, axis) => value - points[j][axis]));
          assert.ok(distance >= APART, `${KNOWN[i].name} and ${KNOWN[j].name}: ${distance.toFixed(3)}`);
        }
      }
    });
  }
}

test("what is nobody's data differs by its hatching too", () => {
  const slack = KNOWN.slice(-4);
  assert.deepEqual(slack.map(({ name }) => name), ["rounding", "fragmentation", "cached", "graph pool"]);
  assert.equal(new Set(slack.map(({ hatch }) => hatch)).size, 4);
  assert.ok(slack.every(({ hatch }) => hatch));
});

test("categories stack in one order, names that are none before slack as given", () => {
  assert.deepEqual(inOrder(["cached", "zeta", "activation", "driver", "alpha", "cached"]),
    ["driver", "activation", "zeta", "alpha", "cached"]);
});

test("names that are no category get hues that the page does not use", () => {
  const palette = new Palette(["driver", "activation", "PyTorch", "cuBLAS"]);
  const colours = [0, 1, 2, 3].map((category) => palette.colour(category));
  assert.equal(new Set(colours).size, 4);
  assert.equal(colours[2], KNOWN.find((swatch) => swatch.name === "parameter").light);
  assert.equal(new Palette(["PyTorch", "cuBLAS"], ["cuBLAS"]).colour(1), new Palette(["PyTorch"]).colour(0));
  palette.dark = true;
  assert.notEqual(palette.colour(1), colours[1]);
});

test("mix", () => {
  assert.equal(mix("#ff0000", "#ffffff", 0.5), "rgb(255,128,128)");
});

const listed = (file, macro) => [...readFileSync(new URL(`../../src/format/${file}`, import.meta.url), "utf8")
  .matchAll(new RegExp(`^${macro}\\(\\d+, (\\w+), "([^"]+)"(?:, (\\w+))?\\)`, "gm"))];

test("every category has a colour of its own", () => {
  const names = listed("categories.def", "VRAMSCOPE_CATEGORY").map(([, , name]) => name);
  assert.ok(names.length >= 14);
  for (const name of names) assert.ok(KNOWN.some((swatch) => swatch.name === name), name);
});

test("every part of the driver and of slack has its category", () => {
  const names = new Map(listed("categories.def", "VRAMSCOPE_CATEGORY").map(([, symbol, name]) => [symbol, name]));
  const parts = listed("parts.def", "VRAMSCOPE_PART");
  assert.ok(parts.length >= 20);
  for (const [, , text, category] of parts) {
    if (category === "Unknown" || text === "other") continue;
    assert.equal(categoryOf(["somebody", text]), names.get(category), text);
  }
});
