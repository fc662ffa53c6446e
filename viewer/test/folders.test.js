// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const SRC = join(dirname(fileURLToPath(import.meta.url)), "..", "src");
// What a folder's modules may import when they run; imports of types are free.
const MAY_IMPORT = {
  base: [], dom: ["base"], model: ["base"], timeline: ["base", "dom", "model"],
  views: ["base", "dom", "model", "timeline"], diff: ["base", "dom", "model", "timeline"],
};

test("folders import in one direction", () => {
  for (const [folder, allowed] of Object.entries(MAY_IMPORT)) {
    for (const name of readdirSync(join(SRC, folder)).filter((file) => file.endsWith(".js"))) {
      const text = readFileSync(join(SRC, folder, name), "utf8");
      for (const [, path] of text.matchAll(/^(?:import|export)[^;]*?from "(\.[^"]+)"/gm)) {
        const target = dirname(relative(SRC, join(SRC, folder, path)));
        assert.ok(target === folder || allowed.includes(target), `${folder}/${name} imports ${target || "main"}`);
      }
    }
  }
});
