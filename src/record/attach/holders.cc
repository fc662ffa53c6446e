// SPDX-License-Identifier: Apache-2.0
#include "record/attach/holders.h"

#include <fmt/core.h>

#include <memory>
#include <utility>

#include "format/enums.h"
#include "util/file.h"
#include "util/json.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

using util::JsonReader;
using Token = JsonReader::Token;

constexpr uint64_t kMib = uint64_t{1} << 20;
constexpr size_t kFigures = 34;  // columns before the way

int64_t NumberIn(const JsonReader& reader) {
  return util::WholeNumber<int64_t>(reader.text()).value_or(-1);
}

HolderGroup ParseGroup(JsonReader* reader) {
  HolderGroup group;
  for (Token token = reader->Next(); token == Token::kKey; token = reader->Next()) {
    const std::string key(reader->text());
    const Token value = reader->Next();
    if (key == "way")
      group.way = reader->text();
    else if (key == "bytes")
      group.bytes = static_cast<uint64_t>(NumberIn(*reader));
    else if (key == "tensors")
      group.tensors = static_cast<uint64_t>(NumberIn(*reader));
    else if (key == "root_bytes")
      group.root_bytes = NumberIn(*reader);
    else if (key == "device")
      group.device = NumberIn(*reader);
    else
      reader->Skip(value);
  }
  return group;
}

bool IsOnOneDevice(const Holders& holders) {
  bool same = true;
  for (const HolderGroup& group : holders.groups)
    same = same && group.device == holders.groups[0].device;
  return same;
}

std::string DeviceText(int64_t device) {
  return device == format::kCpuDevice ? "CPU: " : fmt::format("cuda:{}: ", device);
}

std::string Figures(uint64_t bytes, uint64_t tensors, const std::string& through) {
  return fmt::format("{:>12} {:>8} {:>10}  ", output::InUnit(bytes, kMib),
                     util::FormatCount(tensors), through);
}

// Ways are never cut: they go on in the next line.
std::string WayLines(const std::string& figures, const std::string& way) {
  const size_t room = output::kPlainColumns - kFigures;
  std::string text = figures, rest = way;
  while (rest.size() > room) {
    size_t end = room;
    while (end > room / 2 && rest[end - 1] != ' ' && rest[end] != '.' && rest[end] != '[')
      --end;
    if (end == room / 2)
      end = room;
    constexpr unsigned kMask = 0xc0, kWithin = 0x80;  // of UTF-8
    while (end > 1 && (static_cast<unsigned char>(rest[end]) & kMask) == kWithin)
      --end;
    output::AppendLine(rest.substr(0, end), &text);
    text += std::string(kFigures, ' ');
    rest.erase(0, end);
  }
  output::AppendLine(rest, &text);
  return text;
}

}  // namespace

util::Result<Holders> ParseHolders(std::string_view json) {
  JsonReader reader(std::make_unique<util::TextStream>(json), "holders");
  Holders holders;
  if (reader.Next() != Token::kObject)
    return util::Status::Error("the process's answer cannot be read");
  for (Token token = reader.Next(); token == Token::kKey; token = reader.Next()) {
    const std::string key(reader.text());
    const Token value = reader.Next();
    const auto number = static_cast<uint64_t>(NumberIn(reader));
    if (key == "groups" && value == Token::kArray) {
      while (reader.Next() == Token::kObject)
        holders.groups.push_back(ParseGroup(&reader));
    } else if (key == "objects") {
      holders.objects = number;
    } else if (key == "objects_seen") {
      holders.objects_seen = number;
    } else if (key == "walk_ns") {
      holders.walk_ns = static_cast<int64_t>(number);
    } else if (key == "tensors") {
      holders.tensors = number;
    } else if (key == "bytes") {
      holders.bytes = number;
    } else if (key == "tensors_left") {
      holders.tensors_left = number;
    } else if (key == "bytes_left") {
      holders.bytes_left = number;
    } else {
      reader.Skip(value);
    }
  }
  if (!reader.status().ok())
    return reader.status();
  return holders;
}

std::string HoldersText(const Holders& holders, const output::Style& style) {
  std::string text = fmt::format(
      "\nHolders of {}, {} ({} walked in {})\n", util::FormatCountOf(holders.tensors, "tensor"),
      util::FormatBytes(holders.bytes), util::FormatCountOf(holders.objects, "object"),
      util::FormatDuration(holders.walk_ns));
  if (!holders.groups.empty()) {
    output::AppendLine(fmt::format("{:>12} {:>8} {:>10}  {}", "MiB", "count", "root alone",
                                   "Shortest way from a root"),
                       &text);
  }
  const bool is_one = IsOnOneDevice(holders);
  uint64_t bytes = holders.bytes - holders.bytes_left;
  uint64_t tensors = holders.tensors - holders.tensors_left;
  for (const HolderGroup& group : holders.groups) {
    const std::string through =
        group.root_bytes < 0 ? "?" : output::InUnit(static_cast<uint64_t>(group.root_bytes), kMib);
    const std::string way =
        output::Printable((is_one ? "" : DeviceText(group.device)) + group.way, style.utf8);
    text += WayLines(Figures(group.bytes, group.tensors, through), way);
    bytes -= group.bytes;
    tensors -= group.tensors;
  }
  if (tensors > 0)
    output::AppendLine(Figures(bytes, tensors, "") + "(other ways)", &text);
  if (holders.tensors_left > 0) {
    output::AppendLine(
        Figures(holders.bytes_left, holders.tensors_left, "") + "(not reached in time)", &text);
  }
  if (holders.tensors == 0)
    text += "No tensor is alive there.\n";
  return text;
}

}  // namespace vramscope::cli
