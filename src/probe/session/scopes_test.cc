// SPDX-License-Identifier: Apache-2.0
#include "probe/session/scopes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>

namespace vramscope::probe {
namespace {

class ScopeStackTest : public testing::Test {
 protected:
  void Push(std::string_view name, uint64_t domain = kAnnotateDomain) {
    scopes_->Push(domain, name.data(), name.size());
  }
  std::string Path() const {
    std::string path;
    for (uint32_t i = 0; i < scopes_->size(); ++i) {
      path += i != 0 ? "/" : "";
      path.append(scopes_->text(i), scopes_->level(i).size_bytes);
    }
    return path;
  }

  std::unique_ptr<ScopeStack> scopes_{new ScopeStack()};
};

TEST_F(ScopeStackTest, OnePathHasOneHash) {
  EXPECT_EQ(scopes_->path(), 0u);
  Push("a");
  const uint64_t a = scopes_->path();
  Push("b");
  const uint64_t ab = scopes_->path();
  scopes_->Pop(kAnnotateDomain);
  EXPECT_EQ(scopes_->path(), a);
  Push("c");
  EXPECT_NE(scopes_->path(), ab);
  scopes_->Pop(kAnnotateDomain);
  Push("b");
  EXPECT_EQ(scopes_->path(), ab);
  scopes_->Pop(kAnnotateDomain);
  scopes_->Pop(kAnnotateDomain);
  EXPECT_EQ(scopes_->path(), 0u);
  Push("b");
  Push("a");
  EXPECT_NE(scopes_->path(), ab);
}

TEST_F(ScopeStackTest, NamesOfEightBytesAndTheirTailsCount) {
  Push("12345678");
  const uint64_t eight = scopes_->path();
  scopes_->Pop(kAnnotateDomain);
  Push(std::string_view("12345678\0", 9));
  EXPECT_NE(scopes_->path(), eight);
  scopes_->Pop(kAnnotateDomain);
  Push("12345679");
  EXPECT_NE(scopes_->path(), eight);
}

TEST_F(ScopeStackTest, PopsWithoutAPushDoNothing) {
  scopes_->Pop(kAnnotateDomain);
  Push("a");
  scopes_->Pop(kNvtxDomain);
  EXPECT_EQ(Path(), "a");
  scopes_->Pop(kAnnotateDomain);
  scopes_->Pop(kAnnotateDomain);
  EXPECT_EQ(scopes_->size(), 0u);
}

TEST_F(ScopeStackTest, DomainsMayCross) {
  Push("step", 10);
  const uint64_t step = scopes_->path();
  Push("kernel", 20);
  Push("inner", 10);
  Push("copy", 20);
  EXPECT_EQ(Path(), "step/kernel/inner/copy");
  scopes_->Pop(10);
  EXPECT_EQ(Path(), "step/kernel/copy");
  scopes_->Pop(10);
  EXPECT_EQ(Path(), "kernel/copy");
  Push("more", 10);
  Push("and more", 10);
  EXPECT_EQ(Path(), "kernel/copy/more/and more");
  scopes_->Pop(20);
  scopes_->Pop(20);
  EXPECT_EQ(Path(), "more/and more");
  scopes_->Pop(10);
  scopes_->Pop(10);
  EXPECT_EQ(scopes_->path(), 0u);
  Push("step", 30);
  EXPECT_EQ(scopes_->path(), step) << "the domain is no part of the path";
}

TEST_F(ScopeStackTest, DeeperScopesCountAsTheOneAroundThem) {
  for (uint32_t i = 0; i < kMaxScopeDepth; ++i)
    Push("level");
  EXPECT_EQ(scopes_->TakeLost(), 0u);
  const uint64_t deepest = scopes_->path();
  for (int i = 0; i < 100; ++i)
    Push("too deep");
  Push("of another domain", 10);
  EXPECT_EQ(scopes_->TakeLost(), 101u);
  EXPECT_EQ(scopes_->TakeLost(), 0u);
  EXPECT_EQ(scopes_->path(), deepest);
  for (int i = 0; i < 100; ++i)
    scopes_->Pop(kAnnotateDomain);
  EXPECT_EQ(scopes_->path(), deepest);
  scopes_->Pop(10);
  scopes_->Pop(kAnnotateDomain);
  EXPECT_EQ(scopes_->size(), kMaxScopeDepth - 1);
  Push("level");
  EXPECT_EQ(scopes_->path(), deepest);
}

TEST(CutText, KeepsCharactersWhole) {
  EXPECT_EQ(CutText("", 4), 0u);
  EXPECT_EQ(CutText("abcd", 4), 4u);
  EXPECT_EQ(CutText("abcde", 4), 4u);
  EXPECT_EQ(CutText("abc\xc3\xa4", 4), 3u);
  EXPECT_EQ(CutText("ab\xc3\xa4", 4), 4u);
  EXPECT_EQ(CutText("\x80\x80\x80\x80\x80", 4), 0u);
}

}  // namespace
}  // namespace vramscope::probe
