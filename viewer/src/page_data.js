// SPDX-License-Identifier: Apache-2.0
// The page's data out of the page: as JSON, or packed where there is much of it (src/output/page/page_data.h).
import { harmless } from "./harmless.js";

const PACKED = "deflate:";

/** @param {string} text */
async function unpack(text) {
  const { DecompressionStream } = /** @type {any} */ (window);
  if (!DecompressionStream) {
    throw new Error("This page is a large one, and its data are packed in a way that this browser cannot read. Browsers since 2023 can.");
  }
  const letters = atob(text.slice(PACKED.length));
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; ++i) bytes[i] = letters.charCodeAt(i);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"))).text();
}

/**
 * What the page was made of; its element is gone afterwards.
 * @returns {Promise<any>}
 */
export async function takePageData() {
  const element = /** @type {HTMLElement} */ (document.getElementById("vramscope-data"));
  const text = element.textContent ?? "";
  element.remove();
  return JSON.parse(harmless(text.startsWith(PACKED) ? await unpack(text) : text));
}

/**
 * Draws the page, and says so: tests wait for it. What goes wrong stands where the page should.
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
