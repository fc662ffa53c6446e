// SPDX-License-Identifier: Apache-2.0
// The page's data as src/output/page/page_data.cc writes it. Times are nanoseconds from the start unless
// a name says otherwise; a `device` here is an index into `devices`, except in `report`, which has
// NVML's numbers.

// What `report` has of the peak: docs/REPORT_SCHEMA.md.
// generated: Report
/**
 * A device at the instant.
 * @typedef {object} DeviceReport
 * @property {number} index
 * @property {string} kind
 * @property {string|null} uuid
 * @property {string} name
 * @property {number|null} total_bytes
 * @property {number|null} nvml_bytes
 * @property {number} ledger_bytes
 * @property {number|null} residual_bytes
 * @property {number} in_transit_bytes
 * @property {number} allocated_bytes
 * @property {number} reserved_bytes
 * @property {number|null} allocated_peak_bytes
 * @property {number|null} allocated_peak_ns
 * @property {number|null} own_peak_bytes
 * @property {number|null} own_peak_ns
 * @property {number} unbacked_bytes
 * @property {{kind: string, time_ns: number, iteration: number|null}} at
 */

/**
 * A recorded process on a device.
 * @typedef {object} ProcessReport
 * @property {number} device
 * @property {number} pid
 * @property {number|null} rank
 * @property {string} command
 * @property {number|null} nvml_bytes
 * @property {number} ledger_bytes
 * @property {number|null} residual_bytes
 */

/**
 * A group of bytes.
 * @typedef {object} ReportRow
 * @property {number} device
 * @property {number|null} pid
 * @property {string[]} path
 * @property {number} bytes
 * @property {number} count
 */

/**
 * A category's bytes at the instant.
 * @typedef {object} CategoryEntry
 * @property {number} device
 * @property {string} category
 * @property {number} bytes
 * @property {number} count
 */

/**
 * A layer's own bytes at the instant, whatever their category.
 * @typedef {object} ModuleEntry
 * @property {number} device
 * @property {string} module
 * @property {string} type
 * @property {number} bytes
 * @property {number} count
 * @property {Record<string, number>} categories
 */

/**
 * A line and its bytes.
 * @typedef {object} TopLine
 * @property {number} device
 * @property {string} line
 * @property {string} source
 * @property {number} bytes
 * @property {number} count
 */

/**
 * A stack and its bytes.
 * @typedef {object} TopStack
 * @property {number} device
 * @property {string} line
 * @property {string[]} stack
 * @property {number} bytes
 * @property {number} count
 */

/**
 * Free memory in PyTorch's segments of a process, and why the newest segment was still made.
 * @typedef {object} CachedMemory
 * @property {number} device
 * @property {number} pid
 * @property {number} free_bytes
 * @property {number} segment_ns
 * @property {number} segment_bytes
 * @property {number} request_bytes
 * @property {string} line
 * @property {number} freed_since_bytes
 * @property {number} too_small_bytes
 * @property {number} largest_piece_bytes
 * @property {number} elsewhere_bytes
 * @property {number} graph_bytes
 */

/**
 * How well the ledger explains NVML over the whole recording.
 * @typedef {object} ResidualSummary
 * @property {number} device
 * @property {number} samples
 * @property {number} samples_in_transit
 * @property {number} worst_bytes
 * @property {number} worst_at_ns
 * @property {number} p99_bytes
 * @property {number} estimated_bytes
 * @property {number} ledger_peak_bytes
 */

/**
 * Memory that appeared or disappeared without a known cause.
 * @typedef {object} Unexplained
 * @property {number} device
 * @property {number} bytes
 * @property {number} since_ns
 * @property {string} near
 */

/**
 * What a large enough GPU would have held in a run with `--overflow`.
 * @typedef {object} Overflow
 * @property {number} device
 * @property {number} time_ns
 * @property {number} used_bytes
 * @property {number} held_bytes
 * @property {number} host_bytes
 * @property {number} most_host_bytes
 * @property {Record<string, number>} categories
 * @property {Record<string, number>} host_categories
 * @property {Record<string, number>} host_layers
 * @property {Record<string, number>} host_lines
 * @property {number} card_gb
 * @property {number|null} batch_percent
 */

/**
 * One way in which the recording is incomplete.
 * @typedef {object} Loss
 * @property {string} name
 * @property {number} count
 * @property {number} bytes
 */

/**
 * A check of the figures.
 * @typedef {object} Invariant
 * @property {string} name
 * @property {boolean} holds
 * @property {string} detail
 */

/**
 * A device's history in buckets of time.
 * @typedef {object} Timeline
 * @property {number} device
 * @property {string[]} groups
 * @property {number[]} time_ns
 * @property {number[][]} peak_bytes
 * @property {[number, number][]} nvml
 * @property {number[]} [unbacked_bytes]
 */

/**
 * Who has the memory at an instant.
 * @typedef {object} Report
 * @property {boolean} sampled
 * @property {DeviceReport[]} devices
 * @property {ProcessReport[]} processes
 * @property {ReportRow[]} rows
 * @property {ReportRow[]} unbacked
 * @property {CategoryEntry[]} categories
 * @property {ModuleEntry[]} modules
 * @property {TopLine[]} top_lines
 * @property {TopStack[]} top_stacks
 * @property {TopLine[]} top_churn
 * @property {TopLine[]} free_lines
 * @property {CachedMemory[]} [cached]
 * @property {ResidualSummary[]} residuals
 * @property {Unexplained[]} [unexplained]
 * @property {Overflow[]} [overflow]
 * @property {Loss[]} losses
 * @property {Invariant[]} invariants
 * @property {Timeline[]} [timelines]
 * @property {{bytes: number, with_category_bytes: number, with_place_bytes: number}} blocks
 */
// end

/**
 * @typedef {object} TimelineData
 * @property {number} device
 * @property {string[]} groups
 * @property {number[]} t
 * @property {number[][]} peak
 * @property {number[]} unbacked Without device memory at those instants; empty: never.
 * @property {[number, number][]} nvml
 */

/**
 * What bytes stand under; row 0: nothing.
 * @typedef {object} SitesData
 * @property {number[]} account
 * @property {number[]} path Of `paths`: the ledger's levels below process.
 * @property {number[]} category Of `categories`.
 * @property {number[]} backing 1: what segments are made of.
 * @property {number[]} unbacked 1: live for its allocator, without device memory below it.
 * @property {number[]} held 1: somebody has it, at a line of the program; 0: what allocators keep.
 * @property {number[]} line Of `names`.
 * @property {number[]} module Of `names`; 0: none.
 * @property {number[]} name Parameter or tag, of `names`; 0: none.
 * @property {number[]} stack Python, else native.
 * @property {number[]} place The stack that people name it by, where that is another one; else 0.
 */

/**
 * @typedef {object} AllocationsData
 * @property {number[]} site
 * @property {number[]} rounding_site
 * @property {number[]} segment That it was cut out of, or that it backs; 0: none.
 * @property {number[]} begin Each less the one before it.
 * @property {number[]} duration -1: never freed.
 * @property {number[]} bytes With rounding.
 * @property {number[]} rounding
 * @property {string[]} address
 */

/**
 * Allocations that are not listed: what changed at each of the `instants`, by site and segment.
 * @typedef {object} LeftOutData
 * @property {number} count
 * @property {number[]} instants Each less the one before it; where all sums are exact.
 * @property {number[]} at Of `instants`.
 * @property {number[]} site
 * @property {number[]} segment
 * @property {number[]} bytes
 * @property {number[]} counts Of allocations.
 */

/**
 * `vramscope iterations`: a row an iteration and device.
 * @typedef {object} IterationTable
 * @property {string} source What said where they begin; empty: there are none.
 * @property {number[]} device
 * @property {number[]} process
 * @property {number[]} number
 * @property {number[]} begin
 * @property {number[]} end
 * @property {number[]} peak
 * @property {number[]} peak_at
 * @property {number[]} end_allocated
 * @property {number[]} allocated
 * @property {number[]} reserved
 * @property {Record<string, number[]>} categories The highest of each within it.
 */

/**
 * @typedef {object} Leak
 * @property {number} device
 * @property {string} place
 * @property {string} module
 * @property {string} category
 * @property {number} per_iteration
 * @property {number} first
 * @property {number} bytes
 * @property {number} count
 * @property {boolean} steady
 * @property {number} stack
 */

/**
 * A request for memory that failed for good.
 * @typedef {object} Explained
 * @property {number} device
 * @property {number} t
 * @property {string} head
 * @property {string} cause
 * @property {{bytes: number, text: string, how: string}[]} advice
 */

/**
 * @typedef {object} PageData
 * @property {string} schema
 * @property {string} title
 * @property {string} file The recording, as it was named when the page was made.
 * @property {string} command
 * @property {string} recorded_at
 * @property {string} version
 * @property {number} duration_ns
 * @property {string} start_ns Of CLOCK_MONOTONIC.
 * @property {number} folded_layers How many there are, where those whose names differ in numbers alone are one, with * for the numbers; else 0.
 * @property {string} counted What a second stands for, as in "events", where the data has no times; "" elsewhere.
 * @property {boolean} instant The data is of a single instant, without any time.
 * @property {boolean} finished It is the whole recording: not one under way, nor cut off.
 * @property {Report} report
 * @property {{index: number, kind: string, name: string, total_bytes: number|null, peak_at: number, allocated_peak_at: number|null}[]} devices
 * @property {{pid: number, rank: number|null, command: string}[]} processes Row 0: none.
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
 * @property {{device: number[], process: number[]}} accounts Processes on devices; row 0: none.
 * @property {{account: number[], begin: number[], end: number[]}} checkpointed When they had no
 *     memory on their devices; an end of -1: to the last.
 * @property {SitesData} sites
 * @property {AllocationsData} allocations
 * @property {LeftOutData} left_out
 * @property {{address: string[], size: number[], free_site: number[], free_site_in_use: number[]}} segments What their free bytes stand
 *     under, while nothing and while something of them is in use; row 0: none.
 * @property {{site: number[], segment: number[]}} counters Row 0: none.
 * @property {{counter: number[], t: number[], bytes: number[]}} steps By how much counters changed.
 *     `t` is each less the one before it.
 * @property {{device: number[], t: number[], lasted: number[], used: number[], ledger: number[],
 *     low: number[], high: number[]}} samples NVML's figures; `t` as of steps.
 * @property {{device: number[], t: number[]}} changes When the driver changed what is in use; `t` as of steps.
 * @property {number} in_transit_site
 * @property {[number, string][]} marks
 * @property {IterationTable} iteration_table
 * @property {{verdict: string, unused: string, expected: string, growing: Leak[], never_freed: Leak[]}} leaks
 * @property {{device: number, t: number, bytes: number, api: string, stack: number}[]} out_of_memory Requests that were refused.
 * @property {Explained[]} explained Why the last of each device failed.
 */

export {};
