// SPDX-License-Identifier: Apache-2.0
// The recording, and one line for each device: peak, NVML's figure, residual. The lines choose the device that the rest
// of the page shows.
import { formatBytes, formatCount, formatExact, formatShare, formatSignedBytes, formatTime } from "../base/format.js";
import { h } from "../dom/dom.js";
import { UNFILTERED } from "../model/state.js";

/** @typedef {import("../model/model.js").Model} Model */
/** @typedef {import("../model/state.js").Store} Store */

/** @param {{index: number, kind: string}} device */
export function deviceLabel(device) {
  return device.kind === "gpu" ? `GPU ${device.index}` : device.kind === "cpu" ? "CPU" : "Host";
}

/** @param {string} iso */
function localTime(iso) {
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return iso;
  return date.toLocaleString("en-GB", {
    year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit",
  });
}

/**
 * @param {string} label
 * @param {string} value
 * @param {string|null} title
 * @param {string} note
 */
function figure(label, value, title, note = "") {
  return h("span", { class: "figure", title },
    h("span", { class: "figure-label" }, label),
    h("span", { class: "figure-value" }, value),
    note ? h("span", { class: "figure-note" }, note) : null);
}

/**
 * @param {Model} model
 * @param {number} device
 */
function deviceFigures(model, device) {
  const page = model.page;
  const report = model.reportDevices[device];
  const total = page.devices[device].total_bytes;
  const residual = page.report.residuals.find((other) => other.device === page.devices[device].index);
  const worst = residual && residual.samples > 0 ? `worst ${formatSignedBytes(residual.worst_bytes)}` : "";
  if (!report) return [figure("Peak", "–", null)];
  const when = [
    ...(total ? [`${formatShare(report.ledger_bytes, total)} of the GPU`] : []),
    ...(page.instant ? [] : [`at ${formatTime(model.peakTime(device))}`]),
  ].join(", ");
  const peak = figure("Peak", formatBytes(report.ledger_bytes), formatExact(report.ledger_bytes),
    report.ledger_bytes > 0 ? when : "");
  const count = page.report.rows.reduce((sum, row) => sum + (row.device === report.index ? row.count : 0), 0);
  const live = figure("Live then", formatCount(count), null, count === 1 ? "allocation" : "allocations");
  const most = model.histories[device].asleep.highest();
  const asleep = most.bytes === 0 ? [] : [figure("Asleep", formatBytes(most.bytes),
    `Live tensors without device memory: at most ${formatExact(most.bytes)}`, `at ${formatTime(most.at)}`)];
  if (page.report.devices.every((other) => other.nvml_bytes === null)) return [peak, live, ...asleep];
  return [
    ...asleep,
    peak,
    figure("NVML", report.nvml_bytes === null ? "–" : formatBytes(report.nvml_bytes),
      report.nvml_bytes === null ? "NVML does not report this device" : formatExact(report.nvml_bytes)),
    figure("Residual",
      report.residual_bytes === null ? "–" : formatSignedBytes(report.residual_bytes),
      report.residual_bytes === null ? null
        : "Bytes that the ledger does not explain (NVML minus ledger): " +
          `${formatExact(report.residual_bytes)}${residual ? `; worst of ${residual.samples} readings: ` +
          formatExact(residual.worst_bytes) : ""}`,
      worst),
  ];
}

/**
 * @param {Model} model
 * @param {Store} store
 */
export function makeHeader(model, store) {
  const page = model.page;
  const facts = [];
  if (page.recorded_at) facts.push(localTime(page.recorded_at));
  facts.push(page.instant ? "one instant" : formatTime(page.duration_ns));
  if (page.report.sampled) facts.push("sampled: allocations unknown");
  if (!page.finished) facts.push("not finished");
  if (page.folded_layers > 0) facts.push(`${formatCount(page.folded_layers)} layers, folded`);
  if (page.left_out.count > 0) {
    facts.push(`${formatCount(page.left_out.count)} allocations in sums only`);
  }
  if (page.processes.length > 2) facts.push(`${page.processes.length - 1} processes`);
  const rows = page.devices.map((device, index) => h("button", {
    class: "device", type: "button", role: "radio", "data-device": index,
    click: () => store.set({ device: index, at: null, ...UNFILTERED, focus: [] }),
  },
    h("span", { class: "device-name" },
      h("strong", {}, deviceLabel(device)),
      h("span", { title: device.name },
        [device.name.toLowerCase() !== deviceLabel(device).toLowerCase() ? device.name
          : device.kind === "cpu" ? "tensors" : "pinned and registered memory",
          device.total_bytes ? formatBytes(device.total_bytes) : ""].filter(Boolean).join(" · "))),
    ...deviceFigures(model, index)));
  const group = h("div", { class: "devices", role: "radiogroup", "aria-label": "Device" }, ...rows);
  const select = () => rows.forEach((row, index) => {
    const on = index === store.state.device;
    row.setAttribute("aria-checked", String(on));
    // A single device is not a choice, so Tab skips it.
    row.tabIndex = on && rows.length > 1 ? 0 : -1;
  });
  group.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = (store.state.device + step + rows.length) % rows.length;
    store.set({ device: next, at: null, ...UNFILTERED, focus: [] });
    rows[next].focus();
  });
  if (rows.length === 1) group.classList.add("single");
  store.subscribe((_, changed) => {
    if (changed.has("device")) select();
  });
  select();
  return h("header", { class: "head" },
    h("div", { class: "brand" }, h("span", {}, "vramscope"),
      h("span", { class: "facts" }, facts.join("  ·  "))),
    h("h1", {}, page.title),
    page.command ? h("p", { class: "command", title: page.command }, page.command) : null,
    group);
}

/**
  * How reliable the figures are: losses, checks, sources of the bytes.
 * @param {Model} model
 */
export function makeFooter(model) {
  const page = model.page;
  const broken = page.report.invariants.filter((invariant) => !invariant.holds);
  const lost = page.report.losses.filter((loss) => loss.count > 0 || loss.bytes > 0);
  const items = [];
  if (page.report.sampled) {
    items.push(h("li", {}, "All figures are NVML readings; no calls were recorded to compare them with. Memory that came and went between " +
      "two readings is missing. Checks that need allocations were skipped."));
  } else if (page.report.invariants.length > 0) {
    items.push(h("li", {}, broken.length === 0
      ? `Checks of the ledger: ${page.report.invariants.length} of ${page.report.invariants.length} hold.`
      : `Checks of the ledger: ${broken.length} of ${page.report.invariants.length} are broken:`));
  }
  for (const { name, detail } of broken) {
    items.push(h("li", { class: "broken" }, detail ? `${name}: ${detail}` : name));
  }
  for (const loss of lost) {
    const bytes = loss.bytes > 0 ? `, ${formatBytes(loss.bytes)}` : "";
    items.push(h("li", {}, `${loss.name}: ${loss.count.toLocaleString("en-US")}${bytes}`));
  }
  for (const residual of page.report.residuals) {
    const device = page.devices.find((other) => other.index === residual.device);
    if (page.report.sampled || residual.ledger_peak_bytes === 0 || !device) continue;
    const peak = residual.ledger_peak_bytes;
    const estimated = Math.min(residual.estimated_bytes, peak);
    items.push(h("li", {}, `${deviceLabel(device)}, peak: ${formatShare(peak - estimated, peak)} known from the sizes of calls, ` +
      `${formatShare(estimated, peak)} measured as difference of free memory. ` + (residual.samples === 0 ? "NVML was not read."
        : `Unexplained: at most ${formatSignedBytes(residual.worst_bytes)} in ${formatCount(residual.samples)} readings` +
          (residual.samples_in_transit > 0 ? `, ${formatCount(residual.samples_in_transit)} of them during driver calls.` : "."))));
  }
  if (page.folded_layers > 0) {
    items.push(h("li", {}, `${formatCount(page.folded_layers)} layers are grouped: names that differ only in numbers are one row, with * for the number. ` +
      "`vramscope report --by module --json` lists each layer."));
  }
  if (page.left_out.count > 0) {
    items.push(h("li", {}, `${formatCount(page.left_out.count)} small or short-lived allocations have ` +
      "no rows with address and lifetime. All sums include them exactly, at the " +
      `${formatCount(page.left_out.instants.length)} instants that the page can show: the peaks, and the highest instant of each interval.`));
  }
  if (page.savings_left_out) {
    items.push(h("li", {}, "This recording is too large for advice on the page: `vramscope report FILE --advice` prints what would lower the peak."));
  }
  return h("footer", { class: "foot" },
    items.length > 0 ? h("h2", {}, "How far to trust these figures") : null,
    items.length > 0 ? h("ul", {}, ...items) : null,
    page.version ? h("p", {}, `Recorded by vramscope ${page.version}.`) : null);
}
