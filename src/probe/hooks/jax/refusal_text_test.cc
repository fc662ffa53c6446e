// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/jax/refusal_text.h"

#include <gtest/gtest.h>

#include <string_view>

namespace vramscope::probe {
namespace {

uint64_t Requested(std::string_view text) {
  uint64_t bytes = 1;
  EXPECT_TRUE(IsXlaRefusal(text.data(), text.size(), &bytes)) << text;
  return bytes;
}

TEST(XlaRefusal, WhatVersionsSay) {
  EXPECT_EQ(
      Requested("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 5520758552 bytes."),
      5520758552u);
  EXPECT_EQ(Requested("RESOURCE_EXHAUSTED: Out of memory allocating 70368744177664 bytes."),
            70368744177664u);
  EXPECT_EQ(Requested("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 16.50GiB."),
            (uint64_t{33} << 30) / 2);
  EXPECT_EQ(Requested("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 48.5KiB [x]"),
            48u * 1024 + 512);
  EXPECT_EQ(Requested("RESOURCE_EXHAUSTED: Failed to allocate request for 6.27GiB (6727663616B) on "
                      "device ordinal 0"),
            6727663616u);
  EXPECT_EQ(Requested("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
                      "120 bytes (2 retries)"),
            120u);
}

TEST(XlaRefusal, WithoutANumberOrCutOff) {
  EXPECT_EQ(Requested("RESOURCE_EXHAUSTED"), 0u);
  EXPECT_EQ(Requested("RESOURCE_EXHAUSTED: no"), 0u);
  EXPECT_EQ(Requested("RESOURCE_EXHAUSTED: to allocate"), 0u);
  EXPECT_EQ(Requested("RESOURCE_EXHAUSTED: to allocate 7"), 7u);
  EXPECT_EQ(Requested("RESOURCE_EXHAUSTED: to allocate 7."), 7u);
  EXPECT_EQ(Requested("RESOURCE_EXHAUSTED: to allocate 7G"), 7u);
  EXPECT_EQ(Requested("RESOURCE_EXHAUSTED: to allocate 7Gi"), uint64_t{7} << 30);
  EXPECT_EQ(Requested("RESOURCE_EXHAUSTED: to allocate 7 ("), 7u);
  EXPECT_EQ(Requested("RESOURCE_EXHAUSTED: to allocate 99999999999999999999999TiB"),
            uint64_t{1} << 60);
}

TEST(XlaRefusal, OtherErrorsAreNone) {
  uint64_t bytes = 1;
  for (const std::string_view text :
       {"", "INTERNAL: failed to allocate 7 bytes", "RESOURCE_EXHAUSTE"})
    EXPECT_FALSE(IsXlaRefusal(text.data(), text.size(), &bytes)) << text;
}

}  // namespace
}  // namespace vramscope::probe
