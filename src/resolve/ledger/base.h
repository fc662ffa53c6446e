// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "resolve/attribute/iteration_table.h"
#include "resolve/attribute/names.h"
#include "resolve/attribute/owners.h"
#include "resolve/attribute/phases.h"
#include "resolve/attribute/progress.h"
#include "resolve/driver/price_inputs.h"
#include "resolve/ledger/accounts.h"
#include "resolve/ledger/counters.h"
#include "resolve/ledger/row_writer.h"
#include "trace/trace.h"

namespace vramscope::resolve {

// State that all parts of the ledger share.
struct LedgerBase {
  LedgerBase(const trace::Trace& recording, tables::AllocationSink& sink)
      : trace(recording),
        progress(recording),
        writer(sink),
        accounts(recording),
        prices(recording),
        counters(accounts, prices, progress),
        owners(recording),
        phases(recording),
        iterations(recording) {}
  LedgerBase(const LedgerBase&) = delete;
  LedgerBase& operator=(const LedgerBase&) = delete;

  // The account changed the device's memory by `bytes`.
  void Move(uint32_t account, int64_t bytes) {
    if (bytes == 0)
      return;
    if (accounts[account].kind == tables::DeviceKind::kHost)
      pinned_bytes += bytes;
    else
      prices.Move(accounts[account].process, accounts[account].device, bytes);
  }

  const trace::Trace& trace;
  Progress progress;
  RowWriter writer;
  Accounts accounts;
  PriceInputs prices;
  Counters counters;
  Owners owners;
  Phases phases;
  IterationTable iterations;
  Names names;
  int64_t pinned_bytes = 0;  // host memory that the driver pinned or registered, of all processes
};

}  // namespace vramscope::resolve
