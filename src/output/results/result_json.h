// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "output/names.h"
#include "output/results/json_parts.h"
#include "query/dimensions/frames.h"
#include "query/results.h"
#include "tables/row_of.h"
#include "util/json.h"

namespace vramscope::output {

template <class Type>
inline constexpr bool kIsMap =
    std::is_same_v<Type, query::BytesByName> || std::is_same_v<Type, query::BytesOfNames>;

// Where to look up the names of ids. Empty for an answer without ids.
struct IdNames {
  const tables::Recording* recording = nullptr;
  const query::Report* devices = nullptr;  // instead of the recording's
};

// Writes the answers of results.def as JSON: the fields of each in their order, by their forms.
class ResultJson {
 public:
  explicit ResultJson(const IdNames& names) : names_(names) {
    if (names.recording != nullptr)
      stacks_.emplace(*names.recording);
  }

  // The fields of a row, into an object that is open.
  template <class Row>
  void WriteFields(const Row& row, util::JsonWriter& json) const {
    std::string_view open;  // the object of "object.key"
    const auto enter = [&](std::string_view object) {
      if (object == open)
        return;
      if (!open.empty())
        json.EndObject();
      if (!object.empty()) {
        json.Key(object);
        json.BeginObject();
      }
      open = object;
    };
    query::ResultOf<Row>::VisitFields([&]<class Form, class Get>(
                                          const query::Field<Row, Form, Get>& field) {
      const auto& value = std::invoke(field.get, row);
      if constexpr (std::is_same_v<Form, query::IfAny<query::MemberOf<Form>>>) {
        if (value.empty())
          return;
      }
      const std::string_view name = field.name;
      const size_t dot = name.find('.');
      enter(dot == std::string_view::npos ? "" : name.substr(0, dot));
      WriteField<Form>(dot == std::string_view::npos ? name : name.substr(dot + 1), value, json);
    });
    enter("");
  }

 private:
  template <class Form>
  void WriteField(std::string_view key,
                  const query::MemberOf<Form>& value,
                  util::JsonWriter& json) const {
    if constexpr (std::is_same_v<Form, std::optional<query::PeakFigure>>) {
      const auto write = [&](const char* suffix, auto number) {
        json.Key(std::string(key) + suffix);
        value ? WriteNumber(json, number) : json.Null();
      };
      write("_bytes", value ? value->bytes : uint64_t{0});
      write("_ns", value ? value->time_ns : int64_t{0});
    } else if constexpr (std::is_same_v<Form, query::ByCategory>) {
      json.Key(key);
      json.BeginObject();
      for (const format::Category category : format::kAllCategories)
        json.Field(format::CategoryName(category), query::BytesOf(value, category));
      json.EndObject();
    } else if constexpr (std::is_same_v<Form, query::OrNull<std::string>>) {
      TextOrNull(json, key, value);
    } else if constexpr (std::is_same_v<Form, query::OrNull<tables::StringId>>) {
      TextOrNull(json, key, names_.recording->string(value));
    } else if constexpr (std::is_same_v<Form, query::Spread<query::MemberOf<Form>>>) {
      json.Key(key);
      json.BeginArray();
      for (const auto& row : value)
        WriteValue(row, json);
      json.EndArray();
    } else {
      json.Key(key);
      WriteValue(value, json);
    }
  }

  template <class Value>
  void WriteValue(const Value& value, util::JsonWriter& json) const {
    if constexpr (std::is_same_v<Value, bool>) {
      json.Bool(value);
    } else if constexpr (std::is_same_v<Value, double>) {
      json.Double(value);
    } else if constexpr (std::is_arithmetic_v<Value>) {
      WriteNumber(json, value);
    } else if constexpr (std::is_same_v<Value, std::string>) {
      json.String(value);
    } else if constexpr (std::is_same_v<Value, tables::DeviceKind>) {
      json.String(DeviceKindName(value));
    } else if constexpr (std::is_same_v<Value, tables::DeviceId>) {
      json.Int(names_.devices != nullptr ? DeviceIndex(*names_.devices, value)
                                         : DeviceIndex(*names_.recording, value));
    } else if constexpr (std::is_same_v<Value, tables::AccountId>) {
      WriteValue(RowOf(names_.recording->tables().accounts, value).device, json);
    } else if constexpr (std::is_same_v<Value, tables::ProcessId>) {
      json.Uint(PidOf(*names_.recording, value));
    } else if constexpr (std::is_same_v<Value, tables::StackId>) {
      WriteTexts(json, stacks_->Texts(value));
    } else if constexpr (query::IsResult<Value>) {
      json.BeginObject();
      WriteFields(value, json);
      json.EndObject();
    } else if constexpr (requires { value.value(); }) {
      value ? WriteValue(*value, json) : json.Null();
    } else if constexpr (std::is_same_v<Value, query::Samples>) {
      json.BeginArray();
      for (const auto& [time_ns, bytes] : value)
        WriteTuple(json, time_ns, bytes);
      json.EndArray();
    } else if constexpr (kIsMap<Value>) {
      json.BeginObject();
      for (const auto& [name, bytes] : value)
        json.Field(name, bytes);
      json.EndObject();
    } else if constexpr (query::kIsRows<Value>) {
      WriteItems(json, value,
                 [&](const auto& row, util::JsonWriter& out) { WriteFields(row, out); });
    } else {
      json.BeginArray();
      for (const auto& item : value)
        WriteValue(item, json);
      json.EndArray();
    }
  }

  IdNames names_;
  std::optional<query::ShownStacks> stacks_;
};

// An answer as an object that begins with its schema.
template <class Answer>
void WriteAnswer(const char* schema,
                 const Answer& answer,
                 const IdNames& names,
                 util::JsonWriter& json) {
  json.BeginObject();
  json.Field("schema", schema);
  ResultJson(names).WriteFields(answer, json);
  json.EndObject();
}

// The same as text: indented, one line a row, ended by a newline.
template <class Answer>
std::string AnswerJson(const char* schema, const Answer& answer, const IdNames& names) {
  return JsonText([&](util::JsonWriter& json) { WriteAnswer(schema, answer, names, json); });
}

}  // namespace vramscope::output
