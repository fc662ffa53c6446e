// SPDX-License-Identifier: Apache-2.0
// The page's data as src/report/html_data.cc writes it. Times are nanoseconds from the start unless
// a name says otherwise; a `device` here is an index into `devices`, except in `report`, which has
// NVML's numbers.

/**
 * @typedef {object} ReportDevice
 * @property {number} index
 * @property {string} kind
 * @property {string} uuid
 * @property {string} name
 * @property {number|null} total_bytes
 * @property {number|null} nvml_bytes
 * @property {number} ledger_bytes
 * @property {number|null} residual_bytes
 * @property {{kind: string, time_ns: number, iteration: number|null}} at
 */

/**
 * @typedef {object} ReportRow
 * @property {number} device
 * @property {number|null} pid
 * @property {string[]} path
 * @property {number} bytes
 * @property {number} count
 */

/**
 * @typedef {object} Report
 * @property {ReportDevice[]} devices
 * @property {ReportRow[]} rows
 * @property {{name: string, count: number, bytes: number}[]} losses
 * @property {{name: string, holds: boolean, detail: string}[]} invariants
 */

/**
 * @typedef {object} Residual
 * @property {number} device
 * @property {number} samples
 * @property {number} samples_in_transit
 * @property {number} worst_bytes
 * @property {number} p99_bytes
 * @property {number} bracketed_bytes
 * @property {number} ledger_peak_bytes
 */

/**
 * @typedef {object} TimelineData
 * @property {number} device
 * @property {string[]} groups
 * @property {number[]} t
 * @property {number[][]} peak
 * @property {[number, number][]} nvml
 */

/**
 * @typedef {object} LivesData
 * @property {number[]} device
 * @property {number[]} process
 * @property {number[]} bytes
 * @property {number[]} alloc
 * @property {number[]} free
 * @property {number[]} stack
 * @property {number[]} place The stack that people name it by, where that is another one; else 0.
 * @property {number[]} path
 * @property {number[]} category Of `categories`.
 * @property {number[]} module Of `names`; 0: none.
 * @property {number[]} name Parameter or tag, of `names`; 0: none.
 * @property {string[]} address
 */

/**
 * @typedef {object} PageData
 * @property {string} schema
 * @property {string} title
 * @property {string} command
 * @property {string} recorded_at
 * @property {string} version
 * @property {number} duration_ns
 * @property {number} start_ns
 * @property {boolean} finished It is the whole recording: not one under way, nor cut off.
 * @property {Report} report
 * @property {Residual[]} residuals
 * @property {{index: number, kind: string, name: string, total_bytes: number|null}[]} devices
 * @property {{pid: number, rank: number|null, command: string}[]} processes
 * @property {TimelineData[]} timelines
 * @property {string[]} categories
 * @property {string[]} names Modules, parameters and tags. Index 0: none.
 * @property {Record<string, string>} module_types Classes of modules by name, as far as known.
 * @property {[number, number, number, number][]} iterations Process, number, begin, end.
 * @property {string[]} strings
 * @property {[number, number, number, number][]} frames Function, file, line, kind: 1 native, 2 of a
 *     library. Index 0: none.
 * @property {[number, number][]} stacks Caller's stack, frame. Index 0: none.
 * @property {Record<string, string>} sources
 * @property {string[][]} paths
 * @property {LivesData} lives
 * @property {{count: number, peak_bytes: number}} left_out
 * @property {[number, string][]} marks
 */

export {};
