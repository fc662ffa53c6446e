// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <string_view>

#include "query/dimensions/dimensions.h"
#include "query/oom/out_of_memory.h"
#include "util/size_text.h"

namespace vramscope::query {
namespace {

using util::FormatBytes;

constexpr std::string_view kKey = "xla pool";
// The note is written just before the refusal that it is of.
constexpr int64_t kApartNs = 1'000'000'000;

// "12 34 56 rest": takes numbers off the front.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  template <class Number>
  bool Take(Number* number) {
    const auto [end, failed] = std::from_chars(text_.data(), text_.data() + text_.size(), *number);
    if (failed != std::errc())
      return false;
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    if (!text_.empty() && text_.front() == ' ')
      text_.remove_prefix(1);
    return true;
  }
  std::string_view rest() const { return text_; }

 private:
  std::string_view text_;
};

std::string_view NextLine(std::string_view* text) {
  const size_t end = text->find('\t');
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return line;
}

// "PID TIME LIMIT IN_USE LARGEST_FREE\tBYTES COUNT SHAPE\t...", as the probe's hooks/jax writes it.
bool Parse(std::string_view text, uint32_t* pid, int64_t* time_ns, XlaPool* pool) {
  Words head(NextLine(&text));
  if (!head.Take(pid) || !head.Take(time_ns) || !head.Take(&pool->limit_bytes) ||
      !head.Take(&pool->in_use_bytes) || !head.Take(&pool->largest_free_bytes))
    return false;
  while (!text.empty()) {
    Words words(NextLine(&text));
    XlaArrays arrays;
    // The last one may be cut off.
    if (!words.Take(&arrays.bytes) || !words.Take(&arrays.count) || !words.rest().ends_with(']'))
      break;
    arrays.shape = words.rest();
    pool->arrays.push_back(std::move(arrays));
  }
  return true;
}

}  // namespace

XlaPool FindXlaPool(const tables::Recording& recording, const Refusal& refusal) {
  const tables::Tables& tables = recording.tables();
  XlaPool found;
  if (!refusal.by_allocator || refusal.account.value >= tables.accounts.size())
    return found;
  const uint32_t wanted = PidOf(recording, tables.accounts[refusal.account.value].process);
  int64_t nearest_ns = kApartNs;
  for (const tables::NoteRow& note : tables.notes) {
    if (recording.string(note.key) != kKey)
      continue;
    uint32_t pid = 0;
    int64_t time_ns = 0;
    XlaPool pool;
    if (!Parse(recording.string(note.value), &pid, &time_ns, &pool) || pid != wanted)
      continue;
    if (time_ns <= refusal.time_ns - kApartNs || time_ns >= refusal.time_ns + kApartNs)
      continue;
    const int64_t apart_ns =
        time_ns < refusal.time_ns ? refusal.time_ns - time_ns : time_ns - refusal.time_ns;
    if (apart_ns >= nearest_ns)
      continue;
    nearest_ns = apart_ns;
    found = std::move(pool);
  }
  return found;
}

uint64_t XlaPool::free_bytes() const {
  return limit_bytes > in_use_bytes ? limit_bytes - in_use_bytes : 0;
}

std::string CauseInXlaPool(const XlaPool& pool, uint64_t requested_bytes) {
  if (requested_bytes > pool.limit_bytes)
    return "the request alone is larger than XLA's pool: " + FormatBytes(requested_bytes) + " of " +
           FormatBytes(pool.limit_bytes);
  std::string arrays;
  if (!pool.arrays.empty()) {
    const XlaArrays& largest = pool.arrays.front();
    arrays = "; the most in live arrays, " + FormatBytes(largest.bytes) + ", is in " +
             std::to_string(largest.count) + " of " + largest.shape;
  }
  // An operation gives back what it has before the error is made.
  if (pool.largest_free_bytes >= requested_bytes)
    return "XLA's pool of " + FormatBytes(pool.limit_bytes) +
           " was full while this ran: " + FormatBytes(pool.in_use_bytes) + " of it stay in use" +
           arrays;
  if (pool.free_bytes() >= requested_bytes)
    return "fragmentation of XLA's pool: " + FormatBytes(pool.free_bytes()) + " of " +
           FormatBytes(pool.limit_bytes) + " are free, but no more than " +
           FormatBytes(pool.largest_free_bytes) + " at one place" + arrays;
  return "XLA's pool is full: " + FormatBytes(pool.in_use_bytes) + " of its " +
         FormatBytes(pool.limit_bytes) + " are in use" + arrays;
}

}  // namespace vramscope::query
