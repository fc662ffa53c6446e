// SPDX-License-Identifier: Apache-2.0
#include "metrics/textfile.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "util/owned_file.h"

namespace vramscope::cli {
namespace {

constexpr std::string_view kEnding = ".prom";
constexpr std::string_view kStart = "# HELP vramscope_";

constexpr util::Content kMetricsContent = {
    "a file of vramscope's metrics", [](std::span<const uint8_t> start, uint64_t size_bytes) {
      return size_bytes == 0 || (start.size() >= kStart.size() &&
                                 std::equal(kStart.begin(), kStart.end(), start.begin()));
    }};

}  // namespace

util::Result<Textfile> Textfile::Make(const std::string& path) {
  if (!path.ends_with(kEnding)) {
    return util::Status::Error(
        fmt::format("--textfile {}: node_exporter reads only *{}: use such a name", path, kEnding));
  }
  // Dropped again: nothing is left if it can be written.
  VRAMSCOPE_RETURN_IF_ERROR(util::AtomicFile::Create(path, &kMetricsContent).status());
  return Textfile(path);
}

util::Status Textfile::Write(std::string_view metrics) const {
  VRAMSCOPE_ASSIGN_OR_RETURN(util::AtomicFile file,
                             util::AtomicFile::Create(path_, &kMetricsContent));
  // node_exporter runs as a user of its own.
  VRAMSCOPE_RETURN_IF_ERROR(file.ShareForReading());
  VRAMSCOPE_RETURN_IF_ERROR(file.Write(metrics));
  return file.Commit();
}

void Textfile::Remove() const {
  if (const std::optional<util::FileIdentity> file = util::FindFile(path_, kMetricsContent))
    (void)util::RemoveFile(path_, *file);
}

}  // namespace vramscope::cli
