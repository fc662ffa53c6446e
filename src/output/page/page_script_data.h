// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace vramscope::output {

// What large data begin with, before raw DEFLATE in base64: viewer/src/page_data.js unpacks it.
inline constexpr std::string_view kPackedMark = "deflate:";

// A page's JSON on its way into a <script>: as it is, or packed where there is much of it. Columns
// of numbers are a tenth as large then, and a page that is mailed should be small.
class PageScriptData {
 public:
  static constexpr size_t kMostPlainBytes = size_t{8} << 20;

  explicit PageScriptData(std::function<void(std::string_view)> write,
                          size_t most_plain_bytes = kMostPlainBytes);
  ~PageScriptData();
  PageScriptData(const PageScriptData&) = delete;
  PageScriptData& operator=(const PageScriptData&) = delete;

  void Write(std::string_view json);
  void Finish();

 private:
  class Packer;

  std::function<void(std::string_view)> write_;
  size_t most_plain_bytes_;
  std::string plain_;  // as long as it may be written as it is
  std::unique_ptr<Packer> packer_;
};

}  // namespace vramscope::output
