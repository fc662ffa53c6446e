// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "format/memory_words.h"
#include "tables/ids.h"
#include "tables/rows.h"

// The answers of results.def as structs, and their fields as constants. A writer iterates over the
// fields. It has code for each form below, and for no single field.
//
//   form                          JSON                          column of a table
//   number, bool, std::string     itself                        itself
//   std::optional                 null where there is none      no value
//   OrNull<text>                  null where it is empty        the text
//   DeviceId, AccountId           NVML's index                  the same
//   ProcessId, StringId           the pid, the text             the same
//   std::optional<PeakFigure>     NAME_bytes and NAME_ns        two columns
//   ByCategory                    an object of all categories   a column each
//   RowPath                       an array of texts             a column a level
//   tables::StackId               an array of frames            the frames, joined by ;
//   BytesByName, BytesOfNames     an object                     -
//   vectors of the above          an array                      -
//   std::vector<another result>   an array of objects           a table
//   another result                an object                     -
//   IfAny<a vector>               left out where it is empty    the same
//   Spread<a vector>              each object on several lines  the same
namespace vramscope::query {

// Figures of an iteration by category.
inline uint64_t BytesOf(const std::vector<uint64_t>& by_category, format::Category category) {
  const auto at = static_cast<size_t>(category);
  return at < by_category.size() ? by_category[at] : 0;
}

// "optimizer state" -> "optimizer_state_peak": a name that needs no quotes anywhere.
inline std::string CategoryColumn(format::Category category, const char* suffix) {
  std::string name = format::CategoryName(category);
  std::replace(name.begin(), name.end(), ' ', '_');
  return name + suffix;
}

template <class Text>
struct OrNull {};
template <class List>
struct IfAny {};
template <class List>
struct Spread {};
struct RowPath {};
struct ByCategory {};

using BytesByName = std::vector<std::pair<std::string, uint64_t>>;
using BytesOfNames = std::map<std::string, uint64_t>;
using BytesOfLayers = std::map<std::pair<std::string, std::string>, uint64_t>;
using Samples = std::vector<std::pair<int64_t, uint64_t>>;

// What a struct has as a member of that form.
template <class Form>
struct FormOf {
  using Member = Form;
};
template <class Text>
struct FormOf<OrNull<Text>> {
  using Member = Text;
};
template <class List>
struct FormOf<IfAny<List>> {
  using Member = List;
};
template <class List>
struct FormOf<Spread<List>> {
  using Member = List;
};
template <>
struct FormOf<RowPath> {
  using Member = std::vector<std::string>;
};
template <>
struct FormOf<ByCategory> {
  using Member = std::vector<uint64_t>;  // BytesOf() reads it
};
template <class Form>
using MemberOf = typename FormOf<Form>::Member;

// What a list of the report has beyond its limit, of one device.
struct LeftOut {
  enum class List : uint8_t { kLayers, kLines, kStacks, kChurn, kFree } list;
  tables::DeviceId device;
  uint64_t entries = 0;
  uint64_t bytes = 0;
  uint64_t count = 0;
};

// What holds device memory: a category's allocations, unless one of the others applies.
enum class HolderKind : uint8_t {
  kCategory,
  kForwardResults,
  kDriver,      // its context and code: in any program, so no cause unless it is most of the device
  kKept,        // from earlier iterations
  kNeverFreed,  // by a program without iterations
  kOtherProcesses,
  kOtherPools,  // free memory of allocators that the request did not ask
};

// A rank's bytes at the highest instant of its device in a stretch of time, and when that begins,
// by CLOCK_REALTIME of its host.
struct RankStretch {
  int64_t begin_wall_ns = 0;
  uint64_t bytes = 0;
};

#define VRAMSCOPE_RESULT(Row, text) struct Row {
#define VRAMSCOPE_FIELD(Row, Form, field, unit, text) MemberOf<Form> field{};
#define VRAMSCOPE_NAMED(Row, Form, field, name, unit, text) MemberOf<Form> field{};
#define VRAMSCOPE_COMPUTED(Row, Form, Method, name, unit, text) MemberOf<Form> Method() const;
#define VRAMSCOPE_MEMBER(Row, Type, field, value, text) Type field = value;
#define VRAMSCOPE_METHOD(Row, Type, Method, text) Type Method() const;
#define VRAMSCOPE_RESULT_END(Row) \
  }                               \
  ;
#include "query/results.def"

template <class Row, class Form_, class Get>
struct Field {
  using Form = Form_;
  const char* name;    // in JSON; "a.b": the field b of an object a
  const char* member;  // in the program
  const char* unit;
  Get get;  // of a row, for std::invoke()
};

// ResultOf<Row>::VisitFields() calls visit(Field) for each in the order of results.def.
template <class Row>
struct ResultOf;

#define VRAMSCOPE_RESULT(Row, text) \
  template <>                       \
  struct ResultOf<Row> {            \
    using Result = Row;             \
    template <class Visitor>        \
    static constexpr void VisitFields(Visitor&& visit) {
#define VRAMSCOPE_FIELD(Row, Form, field, unit, text) \
  visit(Field<Row, Form, decltype(&Row::field)>{#field, #field, unit, &Row::field});
#define VRAMSCOPE_NAMED(Row, Form, field, name, unit, text) \
  visit(Field<Row, Form, decltype(&Row::field)>{name, #field, unit, &Row::field});
#define VRAMSCOPE_COMPUTED(Row, Form, Method, name, unit, text) \
  visit(Field<Row, Form, decltype(&Row::Method)>{name, #Method, unit, &Row::Method});
#define VRAMSCOPE_RESULT_END(Row) \
  }                               \
  }                               \
  ;
#include "query/results.def"

template <class Type>
concept IsResult = requires {
  typename ResultOf<Type>::Result;
};
template <class Type>
inline constexpr bool kIsRows = false;
template <IsResult Row>
inline constexpr bool kIsRows<std::vector<Row>> = true;

template <class Type>
inline constexpr bool kIsNumber = std::is_arithmetic_v<Type>;
template <class Type>
inline constexpr bool kIsNumber<std::optional<Type>> = std::is_arithmetic_v<Type>;
template <class Form>
inline constexpr bool kIsColumn =
    kIsNumber<Form> || std::is_same_v<MemberOf<Form>, std::string> ||
    std::is_same_v<Form, RowPath> || std::is_enum_v<Form> ||
    std::is_same_v<Form, tables::DeviceId> || std::is_same_v<Form, tables::ProcessId> ||
    std::is_same_v<Form, tables::StackId> || std::is_same_v<MemberOf<Form>, tables::StringId> ||
    std::is_same_v<Form, tables::AccountId>;

// Calls visit(name, unit, form, get) for each column that rows have in a table, in their order;
// `get` gives a row's value, and `form` is a std::type_identity of its form.
template <class Row, class Visitor>
void VisitColumns(Visitor&& visit) {
  ResultOf<Row>::VisitFields([&]<class Form, class Get>(const Field<Row, Form, Get>& field) {
    const std::string name = std::strchr(field.name, '.') == nullptr ? field.name : field.member;
    const auto get = field.get;
    if constexpr (std::is_same_v<Form, std::optional<PeakFigure>>) {
      using Bytes = std::optional<uint64_t>;
      using Time = std::optional<int64_t>;
      visit(name + "_bytes", "bytes", std::type_identity<Bytes>(), [get](const Row& row) {
        const auto& peak = std::invoke(get, row);
        return peak ? Bytes(peak->bytes) : Bytes();
      });
      visit(name + "_ns", "ns", std::type_identity<Time>(), [get](const Row& row) {
        const auto& peak = std::invoke(get, row);
        return peak ? Time(peak->time_ns) : Time();
      });
    } else if constexpr (std::is_same_v<Form, ByCategory>) {
      // "categories_peak" -> "activation_peak".
      const std::string suffix = name.substr(name.find('_'));
      for (const format::Category category : format::kAllCategories) {
        visit(CategoryColumn(category, suffix.c_str()), field.unit, std::type_identity<uint64_t>(),
              [get, category](const Row& row) { return BytesOf(std::invoke(get, row), category); });
      }
    } else if constexpr (kIsColumn<Form>) {
      visit(name, field.unit, std::type_identity<Form>(),
            [get](const Row& row) -> MemberOf<Form> { return std::invoke(get, row); });
    }
  });
}

}  // namespace vramscope::query
