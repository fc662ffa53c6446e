// SPDX-License-Identifier: Apache-2.0
// Formats numbers for display. Titles show exact bytes.

const KIB = 1024;
const MIB = KIB * 1024;
const GIB = MIB * 1024;
const TIB = GIB * 1024;
const PIB = TIB * 1024;

/**
 * Like toLocaleString("en-US"), but a hundred times as fast: a page has thousands of figures.
 * @param {number} value
 * @param {number} digits
 */
export function fixed(value, digits) {
  const text = value.toFixed(digits);
  const point = digits > 0 ? text.length - digits - 1 : text.length;
  const first = text[0] === "-" ? 1 : 0;
  let grouped = text.slice(point);
  let end = point;
  for (; end - first > 3; end -= 3) grouped = `,${text.slice(end - 3, end)}${grouped}`;
  return text.slice(0, end) + grouped;
}

/**
 * Formats bytes in the largest unit with a digit before the point.
 * @param {number} bytes
 */
export function formatBytes(bytes) {
  const size = Math.abs(bytes);
  if (size >= PIB) return `${fixed(bytes / PIB, 2)} PiB`;
  if (size >= TIB) return `${fixed(bytes / TIB, 2)} TiB`;
  if (size >= GIB) return `${fixed(bytes / GIB, 2)} GiB`;
  if (size >= MIB) return `${fixed(bytes / MIB, 1)} MiB`;
  if (size >= KIB) return `${fixed(bytes / KIB, 1)} KiB`;
  return `${fixed(bytes, 0)} B`;
}

/**
 * The common unit of a column, so that figures align (TableUnit() of src/output/terminal.cc).
 * @typedef {{name: string, bytes: number, digits: number}} Unit
 */

/**
 * @param {number} largest Bytes of the largest figure.
 * @returns {Unit}
 */
export function tableUnit(largest) {
  if (largest >= 4 * MIB) return { name: "MiB", bytes: MIB, digits: 2 };
  if (largest >= KIB) return { name: "KiB", bytes: KIB, digits: 2 };
  return { name: "Bytes", bytes: 1, digits: 0 };
}

/**
 * @param {number} bytes
 * @param {Unit} unit
 */
export function inUnit(bytes, unit) {
  return fixed(bytes / unit.bytes, unit.digits);
}

/** @param {number} bytes */
export function formatExact(bytes) {
  return `${fixed(bytes, 0)} bytes`;
}

/** @param {number} bytes */
export function formatSignedBytes(bytes) {
  return bytes > 0 ? `+${formatBytes(bytes)}` : formatBytes(bytes);
}

/** @param {number} count */
export function formatCount(count) {
  return fixed(count, 0);
}

/** @param {number} count */
export function formatAllocations(count) {
  return `${formatCount(count)} allocation${count === 1 ? "" : "s"}`;
}

/**
 * @param {number} part
 * @param {number} whole
 */
export function formatShare(part, whole) {
  if (whole <= 0 || part <= 0) return "–";
  const percent = (100 * part) / whole;
  return percent < 0.05 ? "<0.1 %" : `${fixed(percent, 1)} %`;
}

/**
 * Formats a duration, or an instant from the start.
 * @param {number} ns
 */
export function formatTime(ns) {
  if (ns === 0) return "0 s";
  const size = Math.abs(ns);
  if (size >= 60e9) {
    const minutes = Math.floor(ns / 60e9);
    return `${minutes} min ${fixed((ns - minutes * 60e9) / 1e9, 2)} s`;
  }
  if (size >= 1e9) return `${fixed(ns / 1e9, 3)} s`;
  if (size >= 1e6) return `${fixed(ns / 1e6, size >= 1e8 ? 1 : 3)} ms`;
  return `${fixed(ns / 1e3, 3)} µs`;
}

/**
 * Formats an instant from the start in nanoseconds.
 * @param {number} ns
 */
export function formatInstant(ns) {
  return `${fixed(ns / 1e9, 9)} s`;
}

/**
 * A label of a time axis with ticks every `step`: only the digits that differ.
 * @param {number} ns
 * @param {number} step
 */
export function formatTick(ns, step) {
  if (ns === 0) return "0";
  const unit = step >= 1e8 || (step >= 1e6 && ns >= 1e9) ? 1e9 : step >= 1e4 || ns >= 1e8 ? 1e6 : 1e3;
  const name = unit === 1e9 ? "s" : unit === 1e6 ? "ms" : "µs";
  const digits = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
  return `${fixed(ns / unit, Math.min(digits, 6))} ${name}`;
}

/**
 * The smallest step of 1, 2 or 5 times a power of ten that divides `span` into at most `most` parts.
 * @param {number} span
 * @param {number} most
 */
export function timeStep(span, most) {
  const rough = span / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  for (const factor of [1, 2, 5, 10]) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

/**
 * A step for a byte axis: a power of two (64 MiB, not 67.1 MB).
 * @param {number} top
 * @param {number} most
 */
export function bytesStep(top, most) {
  let step = 1;
  while (top / step > most) step *= 2;
  return step;
}

/**
 * The last part of a file's path. Titles show the whole path.
 * @param {string} file
 */
export function baseName(file) {
  const slash = file.lastIndexOf("/");
  return slash < 0 ? file : file.slice(slash + 1);
}
