// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/finished/columns.h"
#include "trace/trace.h"

// Rows of the tables as columns, one function pair a table. Encoders write rows [first, first +
// Rows of the tables as columns, one pair of functions a table. Decoders check what the rows say:
// ids that lead nowhere become 0.
namespace vramscope::trace::finished {

struct SourceLineRow {
  StringId file;
  uint32_t line = 0;
  std::string text;
};

// Rows that EncodeSession() writes.
size_t SessionRows(const SessionInfo& session);
void EncodeSession(const SessionInfo& session, ColumnSetWriter* out);
void EncodeDevices(std::span<const Device> rows, ColumnSetWriter* out);
void EncodeProcesses(std::span<const Process> rows, ColumnSetWriter* out);
void EncodeThreads(std::span<const Thread> rows, ColumnSetWriter* out);
void EncodeStrings(std::span<const std::string_view> rows, ColumnSetWriter* out);
void EncodeFrames(std::span<const Frame> rows, ColumnSetWriter* out);
void EncodeStacks(std::span<const Stack> rows, uint32_t first, ColumnSetWriter* out);
void EncodeLosses(std::span<const Loss> rows, ColumnSetWriter* out);
void EncodeSourceLines(std::span<const SourceLineRow> rows, ColumnSetWriter* out);

// Each appends `rows` rows; false when the columns are damaged.
[[nodiscard]] bool DecodeSession(const ColumnSetReader& in, uint32_t rows, SessionInfo* session);
[[nodiscard]] bool DecodeDevices(const ColumnSetReader& in,
                                 uint32_t rows,
                                 std::vector<Device>* out);
[[nodiscard]] bool DecodeProcesses(const ColumnSetReader& in,
                                   uint32_t rows,
                                   std::vector<Process>* out);
[[nodiscard]] bool DecodeThreads(const ColumnSetReader& in,
                                 uint32_t rows,
                                 std::vector<Thread>* out);
[[nodiscard]] bool DecodeStrings(const ColumnSetReader& in,
                                 uint32_t rows,
                                 std::vector<std::string>* out);
[[nodiscard]] bool DecodeFrames(const ColumnSetReader& in, uint32_t rows, std::vector<Frame>* out);
[[nodiscard]] bool DecodeStacks(const ColumnSetReader& in, uint32_t rows, std::vector<Stack>* out);
[[nodiscard]] bool DecodeLosses(const ColumnSetReader& in, uint32_t rows, std::vector<Loss>* out);
[[nodiscard]] bool DecodeSourceLines(const ColumnSetReader& in,
                                     uint32_t rows,
                                     std::vector<SourceLineRow>* out);

}  // namespace vramscope::trace::finished
