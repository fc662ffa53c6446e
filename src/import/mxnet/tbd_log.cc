// SPDX-License-Identifier: Apache-2.0 Reads the output of MXNet 0.12 with TBD's memory profiler,
// mixed with other output of the program:
//
//   [mem] Allocate 1048576 bytes GPU memory (in_arg:embed_weight).
//   [mem] 10000 MB GPU global memory free, total 11000 MB.
//   [mem] Release GPU memory.
//
// Some operators write MB, without [mem]. Tags may have blanks and parentheses.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "import/import.h"
#include "import/log_text.h"
#include "import/mxnet/mxnet_tags.h"

namespace vramscope::imports {
namespace {

constexpr int64_t kTbdStepNs = 1'000'000'000;
constexpr std::string_view kAllocate = "Allocate ";
constexpr std::string_view kMemory = " GPU memory";
constexpr std::string_view kFree = " MB GPU global memory free, total ";
constexpr std::string_view kRelease = "[mem] Release GPU memory.";
constexpr uint64_t kSniffedBytes = uint64_t{64} << 20;

// Takes a number off the begin of `text`.
std::optional<uint64_t> TakeNumber(std::string_view* text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc())
    return std::nullopt;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return value;
}

struct Allocation {
  std::optional<uint64_t> bytes;  // none if the line has an allocation without its size
  std::string_view tag;
};

// The text in the parentheses of "(in_arg:weight).", or the rest of a truncated line.
std::string_view TagOf(std::string_view text) {
  text = Trimmed(text);
  if (!text.starts_with("("))
    return {};
  size_t depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    depth += text[i] == '(' ? 1u : 0u;
    if (text[i] == ')' && --depth == 0)
      return text.substr(1, i - 1);
  }
  const size_t end = text.rfind(").");
  return text.substr(1, end == std::string_view::npos ? end : end - 1);
}

// Removes the next allocation from the begin of `line`. A line can have several, because threads
// write concurrently.
std::optional<Allocation> TakeAllocation(std::string_view* line) {
  for (size_t at = line->find(kAllocate); at != std::string_view::npos;
       at = line->find(kAllocate)) {
    const bool marked = line->substr(0, at).ends_with("[mem] ");
    std::string_view rest = line->substr(at + kAllocate.size());
    *line = rest;
    rest = rest.substr(0, std::min(rest.find("[mem] "), rest.find(kAllocate)));
    Allocation allocation;
    const std::optional<uint64_t> figure = TakeNumber(&rest);
    const int shift = rest.starts_with(" bytes") ? 0 : rest.starts_with(" MB") ? 20 : -1;
    const size_t memory = rest.find(kMemory);
    // Other output, such as "Allocate a buffer".
    if (!marked && (!figure || shift < 0 || memory == std::string_view::npos))
      continue;
    if (figure && shift >= 0 && *figure <= kMostBytes >> shift)
      allocation.bytes = *figure << shift;
    if (memory != std::string_view::npos)
      allocation.tag = TagOf(rest.substr(memory + kMemory.size()));
    return allocation;
  }
  return std::nullopt;
}

// Counts a stream's bytes, because LineReader cuts long lines.
class Begin : public ByteStream {
 public:
  Begin(std::unique_ptr<ByteStream> stream, uint64_t bytes)
      : stream_(std::move(stream)), left_bytes_(bytes) {}
  util::Result<size_t> Read(std::span<char> out) override {
    util::Result<size_t> bytes =
        stream_->Read(out.first(static_cast<size_t>(std::min<uint64_t>(out.size(), left_bytes_))));
    if (bytes)
      left_bytes_ -= *bytes;
    return bytes;
  }

 private:
  std::unique_ptr<ByteStream> stream_;
  uint64_t left_bytes_;
};

class TbdLog {
 public:
  TbdLog(const Input& input, Builder* builder) : builder_(*builder) {
    const tables::ProcessId process = builder_.Process(0);
    builder_.process(process).command = builder_.Text(input.name());
    device_ = builder_.Gpu(0);
    account_ = builder_.Account(process, device_);
  }

  void Add(std::string_view line) {
    AddReading(line);
    releases_ += line.find(kRelease) != std::string_view::npos ? 1u : 0u;
    while (const std::optional<Allocation> allocation = TakeAllocation(&line))
      AddAllocation(*allocation);
  }

  void Finish() {
    builder_.CountSeconds("allocations",
                          "none in the log: a second stands for an allocation, in their order");
    builder_.Lacks("which memory was freed, and when");
    builder_.Lacks("devices (all is shown as GPU 0)");
    builder_.Lose("frees that do not say of what", releases_);
  }

 private:
  void AddAllocation(const Allocation& allocation) {
    builder_.Event();
    if (!allocation.bytes) {
      builder_.Lose("allocations whose size cannot be read", 1);
      return;
    }
    tables::SiteRow site = Builder::SiteOf(account_);
    site.owner = builder_.Text("MXNet");
    site.api = builder_.Text("cudaMalloc");
    NameSite(allocation.tag, &builder_, &site);
    tables::AllocationRow row;
    row.begin_ns = row.alloc_ns = now_ns_ = builder_.Tick(next_ns_);
    row.end_ns = tables::kNever;
    row.bytes = *allocation.bytes;
    row.site = builder_.Site(site);
    builder_.Add(row);
    builder_.Change(device_, now_ns_);
    sum_bytes_ += row.bytes;
    next_ns_ += kTbdStepNs;
  }

  // The result of cudaMemGetInfo() after an allocation.
  void AddReading(std::string_view line) {
    const size_t at = line.find(kFree);
    if (at == std::string_view::npos || sum_bytes_ == 0)
      return;
    const size_t begin = line.find_last_not_of("0123456789", at - 1) + 1;
    std::string_view free_text = line.substr(begin, at - begin);
    std::string_view total_text = line.substr(at + kFree.size());
    const std::optional<uint64_t> free_mib = TakeNumber(&free_text);
    const std::optional<uint64_t> total_mib = TakeNumber(&total_text);
    if (!free_mib || !total_mib || *free_mib > *total_mib || *total_mib > kMostBytes >> 20)
      return;
    builder_.device(device_).total_bytes = *total_mib << 20;
    builder_.Sample(device_, now_ns_, (*total_mib - *free_mib) << 20,
                    static_cast<int64_t>(sum_bytes_));
  }

  Builder& builder_;
  tables::DeviceId device_;
  tables::AccountId account_;
  int64_t now_ns_ = 0, next_ns_ = 0;
  uint64_t sum_bytes_ = 0;
  uint64_t releases_ = 0;
};

}  // namespace

// The first allocation may come after much other output.
bool IsTbdLog(const Input& input) {
  LineReader lines(std::make_unique<Begin>(input.Text(), kSniffedBytes));
  for (std::string_view line; lines.Next(&line);) {
    if (TakeAllocation(&line))
      return true;
  }
  return false;
}

util::Status ReadTbdLog(const Input& input, const Options&, Builder* builder) {
  LineReader lines(input.Text());
  TbdLog log(input, builder);
  for (std::string_view line; lines.Next(&line) && !builder->IsOver();)
    log.Add(line);
  log.Finish();
  return lines.status();
}

}  // namespace vramscope::imports
