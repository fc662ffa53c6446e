// SPDX-License-Identifier: Apache-2.0
#include "cli/launcher/worker.h"

#include <exception>
#include <utility>

namespace vramscope::cli {
namespace {

// A short text needs no memory, of which there may be none.
void Set(std::string* failure, const char* text) noexcept {
  try {
    *failure = text;
  } catch (...) {
    *failure = "no memory";
  }
}

}  // namespace

void Worker::Start(std::function<void()> work) noexcept {
  try {
    thread_ = std::thread([this, work = std::move(work)]() noexcept {
      try {
        work();
      } catch (const std::exception& error) {
        Set(&failure_, error.what());
      } catch (...) {
        Set(&failure_, "unknown");
      }
    });
  } catch (const std::exception& error) {
    Set(&failure_, error.what());
  }
}

void Worker::Join() noexcept {
  if (thread_.joinable())
    thread_.join();
}

}  // namespace vramscope::cli
