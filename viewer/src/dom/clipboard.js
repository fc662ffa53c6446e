// SPDX-License-Identifier: Apache-2.0
// Copies tables for spreadsheets, and the command that prints the view.
import { h } from "./dom.js";

const SHOWN_MS = 1600;

/**
 * Formats cells as tab-separated values. Characters that would end a cell become spaces.
 * @param {(string|number)[][]} rows
 */
export function asTsv(rows) {
  return rows.map((row) => row.map((cell) => String(cell).replace(/[\t\r\n]+/g, " ")).join("\t")).join("\n") + "\n";
}

/**
 * Quotes an argument for a POSIX shell.
 * @param {string} text
 */
export function shellQuoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`;
}

/**
 * Pages opened from files may lack navigator.clipboard; copying a selection always works.
 * @param {string} text
 */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = /** @type {HTMLTextAreaElement} */ (h("textarea", { class: "offscreen", readonly: true, "aria-hidden": "true" }));
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/**
 * A button that copies and confirms it.
 * @param {string} label
 * @param {string} title
 * @param {() => string} make
 */
export function copying(label, title, make) {
  const button = h("button", { class: "quiet copy", type: "button", title, "aria-label": title, click: async () => {
    const done = await copyText(make());
    button.textContent = done ? "Copied" : "Not copied";
    setTimeout(() => { button.textContent = label; }, SHOWN_MS);
  } }, label);
  return button;
}

/**
 * @param {string} name Of a table.
 * @param {() => (string|number)[][]} rows
 */
export function copyButton(name, rows) {
  return copying("Copy", `Copy the table ${name} for a spreadsheet (tab-separated)`, () => asTsv(rows()));
}
