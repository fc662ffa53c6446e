// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>

// Errors outside the target are values: one line for people that says what, where, and what to do.
namespace vramscope::util {

class [[nodiscard]] Status {
 public:
  Status() = default;
  static Status Error(std::string message) {
    Status status;
    status.message_ = std::move(message);
    return status;
  }
  bool ok() const { return !message_.has_value(); }
  explicit operator bool() const { return ok(); }
  // One line, no trailing newline; empty when ok().
  const std::string& message() const {
    static const std::string kEmpty;
    return message_ ? *message_ : kEmpty;
  }

 private:
  std::optional<std::string> message_;
};

// A value or an error. Dereferencing an error is a programming mistake.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }
  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Status& status() const { return status_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace vramscope::util

#define VRAMSCOPE_RETURN_IF_ERROR(expression)           \
  do {                                                  \
    if (auto vs_status = (expression); !vs_status.ok()) \
      return vs_status;                                 \
  } while (false)

// `target`, a declaration or what is assigned to, takes the value of the Result; returns its error.
#define VRAMSCOPE_ASSIGN_OR_RETURN(target, ...) \
  VRAMSCOPE_ASSIGN_BY_NAME(target, VRAMSCOPE_NAME_AT(__LINE__), __VA_ARGS__)
#define VRAMSCOPE_NAME_AT(line) VRAMSCOPE_NAME_OF(line)
#define VRAMSCOPE_NAME_OF(line) vs_result_##line
#define VRAMSCOPE_ASSIGN_BY_NAME(target, name, ...) \
  auto name = __VA_ARGS__;                          \
  if (!name.ok())                                   \
    return name.status();                           \
  target = std::move(*name)
