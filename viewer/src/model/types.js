// SPDX-License-Identifier: Apache-2.0
// The page's data, written by src/output/page/page_data.cc. Times are nanoseconds from the start unless noted otherwise.
// A `device` is an index into `devices`, except in `report`, `phases` and `savings`, which use NVML's numbers.

// The report of the peak: docs/REPORT_SCHEMA.md.
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
 * Memory of a process that another process has open (CUDA IPC, exported handles). Each process that has it open is an entry.
 * @typedef {object} OpenMemory
 * @property {number} device
 * @property {number|null} pid
 * @property {string} command
 * @property {number|null} maker_pid
 * @property {string} maker_command
 * @property {number} bytes
 * @property {number} count
 * @property {string} line
 * @property {string} maker
 * @property {number|null} kept_ns
 */

/**
 * Host memory of the program's processes at a sample.
 * @typedef {object} HostMemory
 * @property {string} at
 * @property {number} time_ns
 * @property {number} processes
 * @property {number} resident_bytes
 * @property {number} shared_bytes
 * @property {number} pinned_bytes
 * @property {number} largest_pid
 * @property {number} largest_bytes
 * @property {number|null} limit_bytes
 * @property {number|null} used_bytes
 * @property {number} kills
 */

/**
 * Bytes that a process publishes as an NVTX counter.
 * @typedef {object} NvtxCounter
 * @property {string} name
 * @property {number|null} pid
 * @property {number|null} device
 * @property {number} samples
 * @property {number} peak_bytes
 * @property {number} peak_ns
 * @property {number} last_bytes
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
 * @property {OpenMemory[]} [open_memory]
 * @property {OpenMemory[]} [kept_memory]
 * @property {HostMemory[]} [host_memory]
 * @property {NvtxCounter[]} [nvtx_counters]
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
 * @property {number[]} unbacked Live bytes without device memory at those instants; empty: never any.
 * @property {[number, number][]} nvml
 */

/**
 * Sites: the attributes of allocations. Row 0: none.
 * @typedef {object} SitesData
 * @property {number[]} account
 * @property {number[]} path Index into `paths`: the ledger's levels below the process.
 * @property {number[]} category Index into `categories`.
 * @property {number[]} backing 1: memory that segments are made of.
 * @property {number[]} unbacked 1: live in its allocator, without device memory.
 * @property {number[]} held 1: held by a line of the program; 0: kept by an allocator.
 * @property {number[]} line Index into `names`.
 * @property {number[]} module Index into `names`; 0: none.
 * @property {number[]} name Parameter or tag, index into `names`; 0: none.
 * @property {number[]} stack The Python stack, or the native one if there is none.
 * @property {number[]} place The stack that names it, if that is another one; otherwise 0.
 */

/**
 * @typedef {object} AllocationsData
 * @property {number[]} site
 * @property {number[]} rounding_site
 * @property {number[]} segment The segment that contains it, or that it backs; 0: none.
 * @property {number[]} begin Differences to the previous element.
 * @property {number[]} duration -1: never freed.
 * @property {number[]} bytes Including rounding.
 * @property {number[]} rounding
 * @property {string[]} address
 */

/**
 * Allocations without rows: the changes at each of the `instants`, by site and segment.
 * @typedef {object} LeftOutData
 * @property {number} count
 * @property {number[]} instants Instants with exact sums, as differences to the previous one.
 * @property {number[]} at Index into `instants`.
 * @property {number[]} site
 * @property {number[]} segment
 * @property {number[]} bytes
 * @property {number[]} counts Numbers of allocations.
 */

/**
 * The figures of `vramscope iterations`: a row for each iteration and device.
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
 * @property {Record<string, number[]>} categories The maximum of each category in the iteration.
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

// The phases and the advice: docs/REPORT_SCHEMA.md.
// generated: EnginePhases
/**
 * A category of what a phase left.
 * @typedef {object} PhaseChange
 * @property {string} category
 * @property {number} bytes
 */

/**
 * A phase of a process on a device; a repeated phase is one.
 * @typedef {object} EnginePhase
 * @property {number} pid
 * @property {number} device
 * @property {string} name
 * @property {number} count
 * @property {number} duration_ns
 * @property {number} peak_bytes
 * @property {number} peak_ns
 * @property {number} left_bytes
 * @property {PhaseChange[]} left
 */

/**
 * The share of a device that a command line gives an engine.
 * @typedef {object} EngineBudget
 * @property {number} pid
 * @property {number} device
 * @property {string} option
 * @property {number} share
 * @property {number} budget_bytes
 * @property {number} peak_bytes
 */

/**
 * What each phase of an inference engine took and left.
 * @typedef {object} EnginePhases
 * @property {EnginePhase[]} phases
 * @property {EngineBudget[]} budgets
 * @property {EnginePhase[]} graphs
 */
// end

// generated: Savings
/**
 * Bytes by name.
 * @typedef {object} NamedBytes
 * @property {string} name
 * @property {number} bytes
 * @property {number} count
 */

/**
 * A change of the program that lowers the peak.
 * @typedef {object} Saving
 * @property {string} rule
 * @property {string} change
 * @property {string} why
 * @property {string|null} condition
 * @property {string|null} place
 * @property {string} lowers
 * @property {string} confidence
 * @property {number} saves_bytes
 * @property {number} peak_bytes
 */

/**
 * What would lower the peak of the process with most bytes.
 * @typedef {object} Savings
 * @property {number} device
 * @property {number} pid
 * @property {number} allocated_peak_bytes
 * @property {number} allocated_peak_ns
 * @property {NamedBytes[]} categories
 * @property {Saving[]} savings
 * @property {number} together_bytes
 * @property {number} device_peak_bytes
 * @property {number|null} budget_bytes
 * @property {number|null} over_bytes
 */
// end

/**
 * A failed request for memory.
 * @typedef {object} Explained
 * @property {number} device
 * @property {number} t
 * @property {string} head
 * @property {string} cause
 * @property {string} try The best advice if it saves enough; otherwise "".
 * @property {{bytes: number, text: string, how: string}[]} advice
 */

/**
 * @typedef {object} PageData
 * @property {string} schema
 * @property {string} title
 * @property {string} file The path of the recording when the page was made.
 * @property {string} command
 * @property {string} recorded_at
 * @property {string} version
 * @property {number} duration_ns
 * @property {string} start_ns The start on CLOCK_MONOTONIC.
 * @property {number} folded_layers The number of layers if they are grouped, with * for numbers in names; otherwise 0.
 * @property {string} counted The meaning of a second, as in "events", if the data has no times; otherwise "".
 * @property {boolean} instant The data is of a single instant, without any time.
 * @property {boolean} finished The recording is complete: not running, not cut off.
 * @property {Report} report
 * @property {{index: number, kind: string, name: string, total_bytes: number|null, peak_at: number, allocated_peak_at: number|null}[]} devices
 * @property {{pid: number, rank: number|null, command: string}[]} processes Row 0: none.
 * @property {TimelineData[]} timelines
 * @property {string[]} categories
 * @property {string[]} names Modules, parameters and tags. Index 0: none.
 * @property {Record<string, string>} module_types Known classes of modules by name.
 * @property {[number, number, number, number][]} iterations Process, number, begin, end.
 * @property {string[]} strings
 * @property {[number, number, number, number][]} frames Function, file, line, kind: 1 native, 2 of a
 *     library. Index 0: none.
 * @property {[number, number][]} stacks Caller's stack, frame. Index 0: none.
 * @property {Record<string, string>} sources
 * @property {string[][]} paths
 * @property {{device: number[], process: number[]}} accounts Processes on devices; row 0: none.
 * @property {{account: number[], begin: number[], end: number[]}} checkpointed Times without
  *     memory on their devices; an end of -1: until the end.
 * @property {SitesData} sites
 * @property {AllocationsData} allocations
 * @property {LeftOutData} left_out
 * @property {{address: string[], size: number[], free_site: number[], free_site_in_use: number[]}} segments The sites of
  *     their free bytes, without and with blocks in use; row 0: none.
 * @property {{site: number[], segment: number[]}} counters Row 0: none.
 * @property {{counter: number[], t: number[], bytes: number[]}} steps Deltas of counters.
  *     `t` are differences to the previous one.
 * @property {{device: number[], t: number[], lasted: number[], used: number[], ledger: number[],
 *     low: number[], high: number[]}} samples NVML's figures; `t` like in steps.
 * @property {{device: number[], t: number[]}} changes Times of driver changes; `t` like in steps.
 * @property {number} in_transit_site
 * @property {[number, string][]} marks
 * @property {{name: string, process: number, devices: number[], samples: [number, number][]}[]} lines Counters of bytes that
 *     processes publish, the ones with the highest peaks first, and the memory of the host (process -1).
 * @property {IterationTable} iteration_table
 * @property {{answer: EnginePhases, notes: string[], windows: [number, number, number][]}|null} phases `windows`: begin,
  *     end and peak of each phase, where it is highest. null: no phases.
 * @property {Savings|null} savings null: no advice.
 * @property {boolean} savings_left_out The recording is too large for advice.
 * @property {{verdict: string, unused: string, expected: string, growing: Leak[], never_freed: Leak[]}} leaks
 * @property {{device: number, t: number, bytes: number, api: string, stack: number}[]} out_of_memory Failed requests.
 * @property {Explained[]} explained The explanation of the last failure of each device.
 */

export {};
