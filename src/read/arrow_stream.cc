// SPDX-License-Identifier: Apache-2.0
// Every struct owns what it points to by its private data, so that a consumer may move a column out
// of its batch and keep it alone, as the interface allows.
#include "read/arrow_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace vramscope::read {
namespace {

// Codes of texts are uint32 in memory and fewer than 2^31: declared as signed, which more readers
// support.
constexpr char kCodes[] = "i";
constexpr char kUtf8[] = "u";
constexpr char kStruct[] = "+s";

const char* FormatOf(const vramscope_column& column) {
  return column.type == VRAMSCOPE_TEXT ? kCodes : column.type == VRAMSCOPE_INT64 ? "l" : "L";
}

void Append(std::string_view text, std::string* to) {
  const auto size = static_cast<int32_t>(text.size());
  to->append(reinterpret_cast<const char*>(&size), sizeof size);
  *to += text;
}

// The unit as metadata of the field: {"unit": "bytes"}.
std::string MetadataOf(const vramscope_column& column) {
  std::string metadata;
  if (column.unit[0] != 0) {
    const int32_t pairs = 1;
    metadata.append(reinterpret_cast<const char*>(&pairs), sizeof pairs);
    Append("unit", &metadata);
    Append(column.unit, &metadata);
  }
  return metadata;
}

// ---- schemas

struct SchemaData {
  std::string name;
  std::string metadata;
  std::vector<ArrowSchema> owned;  // children, or the dictionary
  std::vector<ArrowSchema*> children;
};

void ReleaseSchema(ArrowSchema* schema) {
  const std::unique_ptr<SchemaData> data(static_cast<SchemaData*>(schema->private_data));
  for (ArrowSchema& owned : data->owned) {
    if (owned.release != nullptr)
      owned.release(&owned);
  }
  schema->release = nullptr;
}

// `schema` is valid from the start: if an exception follows, its owner releases it and nothing
// leaks.
SchemaData& BeginSchema(const char* format, ArrowSchema* schema) {
  auto data = std::make_unique<SchemaData>();
  *schema = {};
  schema->format = format;
  schema->name = data->name.c_str();
  schema->release = ReleaseSchema;
  SchemaData& made = *data;
  schema->private_data = data.release();
  return made;
}

void MakeColumnSchema(const vramscope_column& column, ArrowSchema* schema) {
  SchemaData& data = BeginSchema(FormatOf(column), schema);
  data.name = column.name;
  data.metadata = MetadataOf(column);
  schema->name = data.name.c_str();
  schema->metadata = data.metadata.empty() ? nullptr : data.metadata.c_str();
  schema->flags = ARROW_FLAG_NULLABLE;
  if (column.type == VRAMSCOPE_TEXT) {
    data.owned.resize(1);
    BeginSchema(kUtf8, data.owned.data());
    schema->dictionary = data.owned.data();
  }
}

void MakeTableSchema(const vramscope_table& table, ArrowSchema* schema) {
  SchemaData& data = BeginSchema(kStruct, schema);
  data.owned.resize(table.column_count);
  for (size_t i = 0; i < table.column_count; ++i) {
    MakeColumnSchema(*table.columns[i], &data.owned[i]);
    data.children.push_back(&data.owned[i]);
  }
  schema->n_children = static_cast<int64_t>(data.children.size());
  schema->children = data.children.data();
}

// ---- arrays

struct ArrayData {
  std::shared_ptr<const Answer> answer;
  std::vector<uint8_t> validity;
  std::vector<int32_t> offsets;
  std::string text;
  std::vector<const void*> buffers;
  std::vector<ArrowArray> owned;  // children, or the dictionary
  std::vector<ArrowArray*> children;
};

void ReleaseArray(ArrowArray* array) {
  const std::unique_ptr<ArrayData> data(static_cast<ArrayData*>(array->private_data));
  for (ArrowArray& owned : data->owned) {
    if (owned.release != nullptr)
      owned.release(&owned);
  }
  array->release = nullptr;
}

ArrayData& BeginArray(size_t rows, ArrowArray* array) {
  auto data = std::make_unique<ArrayData>();
  *array = {};
  array->length = static_cast<int64_t>(rows);
  array->release = ReleaseArray;
  ArrayData& made = *data;
  array->private_data = data.release();
  return made;
}

void SetBuffers(std::vector<const void*> buffers, ArrayData* data, ArrowArray* array) {
  data->buffers = std::move(buffers);
  array->n_buffers = static_cast<int64_t>(data->buffers.size());
  array->buffers = data->buffers.data();
}

void MakeTexts(const vramscope_column& column, ArrowArray* array) {
  ArrayData& data = BeginArray(column.text_count, array);
  size_t size = 0;
  for (uint32_t i = 0; i < column.text_count; ++i)
    size += column.texts[i].bytes;
  if (size > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    throw std::length_error(std::string("the texts of '") + column.name + "' are 2 GiB or more");
  data.text.reserve(size);
  data.offsets.reserve(size_t{column.text_count} + 1);
  data.offsets.push_back(0);
  for (uint32_t i = 0; i < column.text_count; ++i) {
    data.text.append(column.texts[i].data, column.texts[i].bytes);
    data.offsets.push_back(static_cast<int32_t>(data.text.size()));
  }
  SetBuffers({nullptr, data.offsets.data(), data.text.data()}, &data, array);
}

// A bit of 1 for each of at most eight rows that is not null. `nulls` are 0 or 1.
uint8_t ValidBits(const uint8_t* nulls, size_t rows, int64_t* null_count) {
  uint64_t bytes = 0;
  std::memcpy(&bytes, nulls, rows);
  // The top byte of a product has the sum of all bytes, or the lowest bit of each.
  *null_count += static_cast<int64_t>((bytes * 0x0101010101010101u) >> 56);
  const auto null_bits = static_cast<unsigned>((bytes * 0x0102040810204080u) >> 56);
  return static_cast<uint8_t>(~null_bits & ((1U << rows) - 1));
}

void MakeColumn(const std::shared_ptr<const Answer>& answer,
                const vramscope_column& column,
                size_t rows,
                ArrowArray* array) {
  ArrayData& data = BeginArray(rows, array);
  data.answer = answer;
  if (column.null != nullptr) {
    data.validity.resize((rows + 7) / 8);
    int64_t nulls = 0;
    for (size_t row = 0; row < rows; row += 8)
      data.validity[row / 8] =
          ValidBits(column.null + row, std::min<size_t>(8, rows - row), &nulls);
    array->null_count = nulls;
  }
  SetBuffers({data.validity.empty() ? nullptr : data.validity.data(), column.values}, &data, array);
  if (column.type == VRAMSCOPE_TEXT) {
    data.owned.resize(1);
    MakeTexts(column, data.owned.data());
    array->dictionary = data.owned.data();
  }
}

void MakeTable(const std::shared_ptr<const Answer>& answer, size_t at, ArrowArray* array) {
  const vramscope_table& table = *answer->tables[at];
  ArrayData& data = BeginArray(table.row_count, array);
  data.owned.resize(table.column_count);
  for (size_t i = 0; i < table.column_count; ++i) {
    MakeColumn(answer, *table.columns[i], table.row_count, &data.owned[i]);
    data.children.push_back(&data.owned[i]);
  }
  SetBuffers({nullptr}, &data, array);
  array->n_children = static_cast<int64_t>(data.children.size());
  array->children = data.children.data();
}

// ---- streams

struct StreamData {
  ArrowSource source;
  std::string error;
};

StreamData& DataOf(ArrowArrayStream* stream) {
  return *static_cast<StreamData*>(stream->private_data);
}

// 0, or the errno of what `work` throws; then `out` is none. `work` has made `out` releasable
// before it throws, or left it alone.
template <class Out, class Work>
int Guarded(ArrowArrayStream* stream, Out* out, const Work& work) noexcept {
  const Uncancelled uncancelled;
  out->release = nullptr;
  int code = 0;
  try {
    DataOf(stream).error.clear();
    work();
  } catch (const std::bad_alloc&) {
    code = ENOMEM;
  } catch (const std::exception& error) {
    code = EIO;
    try {
      DataOf(stream).error = error.what();
    } catch (...) {
      code = ENOMEM;
    }
  }
  if (code != 0 && out->release != nullptr)
    out->release(out);
  return code;
}

int GetSchema(ArrowArrayStream* stream, ArrowSchema* out) {
  return Guarded(stream, out, [&] {
    const ArrowSource& source = DataOf(stream).source;
    MakeTableSchema(*source.schema->tables[source.table], out);
  });
}

int GetNext(ArrowArrayStream* stream, ArrowArray* out) {
  return Guarded(stream, out, [&] {
    const ArrowSource& source = DataOf(stream).source;
    const util::Result<std::shared_ptr<const Answer>> answer = source.next();
    if (!answer)
      throw std::runtime_error(answer.status().message());
    if (*answer != nullptr)
      MakeTable(*answer, source.table, out);
  });
}

const char* GetLastError(ArrowArrayStream* stream) {
  const std::string& error = DataOf(stream).error;
  return error.empty() ? nullptr : error.c_str();
}

void ReleaseStream(ArrowArrayStream* stream) {
  delete static_cast<StreamData*>(stream->private_data);
  stream->release = nullptr;
}

}  // namespace

void MakeArrowStream(ArrowSource source, ArrowArrayStream* stream) {
  auto data = std::make_unique<StreamData>();
  data->source = std::move(source);
  *stream = {GetSchema, GetNext, GetLastError, ReleaseStream, data.release()};
}

}  // namespace vramscope::read
