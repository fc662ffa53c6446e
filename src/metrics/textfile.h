// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "util/status.h"

namespace vramscope::cli {

// A file for the textfile collector of node_exporter, which reads every *.prom of a folder at any
// moment. So it is replaced as a whole, and written below a name with another ending.
class Textfile {
 public:
  // An error if `path` cannot be written, or is a file of another kind.
  static util::Result<Textfile> Make(const std::string& path);

  util::Status Write(std::string_view metrics) const;
  // Figures of an exporter that has ended would stay on every graph.
  void Remove() const;

 private:
  explicit Textfile(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

}  // namespace vramscope::cli
