// SPDX-License-Identifier: Apache-2.0
#include "import/log_text.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <iterator>
#include <string>

#include "util/size_text.h"

namespace vramscope::imports {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr std::string_view kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

// Takes a number of at most `most_digits` digits from the front.
bool TakeNumber(std::string_view* text, size_t most_digits, int* value) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *value);
  const auto digits = static_cast<size_t>(end - text->data());
  if (error != std::errc() || *value < 0 || digits > most_digits)
    return false;
  text->remove_prefix(digits);
  return true;
}

bool TakeChar(std::string_view* text, std::string_view any_of) {
  if (text->empty() || any_of.find(text->front()) == std::string_view::npos)
    return false;
  text->remove_prefix(1);
  return true;
}

// Digits after a point; those beyond nanoseconds are dropped.
int64_t TakeFraction(std::string_view* text) {
  int64_t ns = 0;
  for (int64_t digit_ns = kSecondNs / 10;
       !text->empty() && text->front() >= '0' && text->front() <= '9';
       digit_ns /= 10, text->remove_prefix(1))
    ns += (text->front() - '0') * digit_ns;
  return ns;
}

// "10:00:00.123"
bool TakeTimeOfDay(std::string_view* text, std::string_view points, WallTime* time) {
  int hour = 0, minute = 0, second = 0;
  if (!TakeNumber(text, 2, &hour) || !TakeChar(text, ":") || !TakeNumber(text, 2, &minute) ||
      !TakeChar(text, ":") || !TakeNumber(text, 2, &second) || hour > 23 || minute > 59 ||
      second > 60)
    return false;
  time->ns = ((hour * 60 + minute) * 60 + second) * kSecondNs;
  time->has_fraction = TakeChar(text, points);
  if (time->has_fraction)
    time->ns += TakeFraction(text);
  return true;
}

std::optional<int64_t> DaysOf(int year, int month, int day) {
  const std::chrono::year_month_day date(std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day)));
  if (!date.ok() || year < 1970 || year > 2200)
    return std::nullopt;
  return std::chrono::sys_days(date).time_since_epoch().count() * 86'400 * kSecondNs;
}

// "Z", "+08:00", "-0330", " +08:00" or nothing: nanoseconds to subtract.
std::optional<int64_t> TakeZone(std::string_view text) {
  text = Trimmed(text);
  if (text.empty() || text == "Z" || text == "UTC")
    return 0;
  const int64_t sign = text.front() == '-' ? -1 : 1;
  int hours = 0, minutes = 0;
  if (!TakeChar(&text, "+-"))
    return std::nullopt;
  if (text.size() == 4 && util::WholeNumber<int>(text)) {
    hours = *util::WholeNumber<int>(text) / 100;
    minutes = *util::WholeNumber<int>(text) % 100;
  } else if (!TakeNumber(&text, 2, &hours) ||
             (!text.empty() &&
              (!TakeChar(&text, ":") || !TakeNumber(&text, 2, &minutes) || !text.empty()))) {
    return std::nullopt;
  }
  return hours <= 18 && minutes < 60 ? std::optional(sign * (hours * 60 + minutes) * 60 * kSecondNs)
                                     : std::nullopt;
}

// Seconds, milliseconds or microseconds since 1970, in the years 1973 to 2200.
std::optional<WallTime> ParseEpoch(std::string_view text) {
  int64_t whole = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  std::string_view rest = text.substr(static_cast<size_t>(end - text.data()));
  if (error != std::errc())
    return std::nullopt;
  for (const int64_t unit_ns : {kSecondNs, kSecondNs / 1'000, kSecondNs / 1'000'000}) {
    const int64_t units_per_second = kSecondNs / unit_ns;
    if (whole < 100'000'000 * units_per_second || whole > 7'258'118'400 * units_per_second)
      continue;
    WallTime time{whole * unit_ns, units_per_second > 1};
    if (TakeChar(&rest, ".")) {
      time.has_fraction = true;
      time.ns += TakeFraction(&rest) / units_per_second;
    }
    return rest.empty() ? std::optional(time) : std::nullopt;
  }
  return std::nullopt;
}

// "Wed May  1 10:00:00 2024"
std::optional<WallTime> ParseCTime(std::string_view text) {
  if (text.size() < 8 || text[3] != ' ')
    return std::nullopt;
  const auto* const month = std::find(std::begin(kMonths), std::end(kMonths), text.substr(4, 3));
  text = Trimmed(text.substr(7));
  int day = 0, year = 0;
  WallTime time;
  if (month == std::end(kMonths) || !TakeNumber(&text, 2, &day) || !TakeChar(&text, " ") ||
      !TakeTimeOfDay(&text, "", &time) || !TakeChar(&text, " ") || !TakeNumber(&text, 4, &year) ||
      !text.empty())
    return std::nullopt;
  const auto days_ns = DaysOf(year, static_cast<int>(month - std::begin(kMonths)) + 1, day);
  if (!days_ns)
    return std::nullopt;
  time.ns += *days_ns;
  return time;
}

}  // namespace

std::optional<WallTime> ParseWallTime(std::string_view text) {
  text = Trimmed(text);
  if (const auto epoch = ParseEpoch(text))
    return epoch;
  if (const auto ctime = ParseCTime(text))
    return ctime;
  int year = 0, month = 0, day = 0;
  WallTime time;
  if (!TakeNumber(&text, 4, &year) || !TakeChar(&text, "/-") || !TakeNumber(&text, 2, &month) ||
      !TakeChar(&text, "/-") || !TakeNumber(&text, 2, &day) || !TakeChar(&text, " T") ||
      !TakeTimeOfDay(&text, ".,", &time))
    return std::nullopt;
  const auto days_ns = DaysOf(year, month, day);
  const auto zone_ns = TakeZone(text);
  if (!days_ns || !zone_ns)
    return std::nullopt;
  time.ns += *days_ns - *zone_ns;
  return time;
}

std::optional<int64_t> ParseTimeOfDay(std::string_view text) {
  text = Trimmed(text);
  WallTime time;
  return TakeTimeOfDay(&text, ".:", &time) && text.empty() ? std::optional(time.ns) : std::nullopt;
}

std::vector<std::string> SplitCsv(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    std::string& field = fields.back();
    if (quoted) {
      if (c != '"') {
        field += c;
      } else if (i + 1 < line.size() && line[i + 1] == '"') {
        field += c;
        ++i;
      } else {
        quoted = false;
      }
    } else if (c == '"' && Trimmed(field).empty()) {
      field.clear();
      quoted = true;
    } else if (c == ',') {
      fields.emplace_back();
    } else {
      field += c;
    }
  }
  return fields;
}

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos)
    return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace vramscope::imports
