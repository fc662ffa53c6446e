// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace vramscope::trace {

// Lines of source files, read from disk when first asked for. Thread-safe.
class SourceLines {
 public:
  // Without its line end; "" when there is no such file or line. Valid as long as this object.
  std::string_view Line(const std::string& path, uint32_t line) const;
  // The text of what no file has.
  void Add(const std::string& path, std::string text);
  // From now on no file is read.
  void Close() { is_open_ = false; }

 private:
  struct File {
    std::string text;
    std::vector<size_t> line_starts;
    void Fill(std::string with);
  };
  bool is_open_ = true;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string, File> files_;
};

}  // namespace vramscope::trace
