// SPDX-License-Identifier: Apache-2.0
import assert from "node:assert/strict";
import { test } from "node:test";

import { harmless } from "../src/base/harmless.js";

const read = (/** @type {string} */ name) => JSON.parse(harmless(JSON.stringify({ name }))).name;

test("what drives a terminal or turns text around is shown as a sign", () => {
  assert.equal(read("\u001b[2J"), "\ufffd[2J");
  assert.equal(read("a\u202egnp.\u2066exe\u200f"), "a\ufffdgnp.\ufffdexe\ufffd");
  assert.equal(read("\u0007\u009b31m\u007f"), "\ufffd\ufffd31m\ufffd");
});

test("all other text is as it was", () => {
  for (const name of ["naïve \u05d0\u05d1 层 👩", "tab\tline\n\r", 'quote " and \\ and \\\\u001b', "\\u202e", "", "<b>&amp;</b>"]) {
    assert.equal(read(name), name);
  }
  assert.equal(JSON.parse(harmless('["\\u0041\\u000a\\u001B\\/"]'))[0], "A\n\ufffd/");
});
