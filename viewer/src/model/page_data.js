// SPDX-License-Identifier: Apache-2.0
// Reads the data embedded in the page: JSON, compressed if large (src/output/page/page_data.h).
import { harmless } from "../base/harmless.js";

const PACKED = "deflate:";

/** @param {string} text */
async function unpack(text) {
  const { DecompressionStream } = /** @type {any} */ (window);
  if (!DecompressionStream) {
    throw new Error("This page contains compressed data that this browser cannot read. Use a browser from 2023 or later.");
  }
  const letters = atob(text.slice(PACKED.length));
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; ++i) bytes[i] = letters.charCodeAt(i);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).text();
}

/**
 * Takes the data and removes its element.
 * @returns {Promise<any>}
 */
export async function takePageData() {
  const element = /** @type {HTMLElement} */ (document.getElementById("vramscope-data"));
  const text = element.textContent ?? "";
  element.remove();
  return JSON.parse(harmless(text.startsWith(PACKED) ? await unpack(text) : text));
}

/**
 * Draws the page and sets data-ready, which tests wait for. An error is shown in place of the page.
 * @param {(data: any, main: HTMLElement) => void} draw
 */
export async function drawPage(draw) {
  const root = document.documentElement;
  const main = /** @type {HTMLElement} */ (document.getElementById("page"));
  window.addEventListener("error", (event) => { root.dataset.error = event.message; });
  try {
    draw(await takePageData(), main);
    root.dataset.ready = "1";
  } catch (error) {
    root.dataset.error = String(error);
    const line = document.createElement("p");
    line.textContent = error instanceof Error ? error.message : String(error);
    main.append(line);
    throw error;
  }
}
