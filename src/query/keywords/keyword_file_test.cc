// SPDX-License-Identifier: Apache-2.0
#include "query/keywords/keyword_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace vramscope::query {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::vector<KeywordDictionary> Parsed(const std::string& text) {
  util::Result<std::vector<KeywordDictionary>> dictionaries = ParseKeywords(text, "my.toml");
  EXPECT_TRUE(dictionaries.ok()) << dictionaries.status().message();
  return dictionaries.ok() ? *dictionaries : std::vector<KeywordDictionary>();
}

std::string ErrorOf(const std::string& text) {
  const util::Result<std::vector<KeywordDictionary>> dictionaries = ParseKeywords(text, "my.toml");
  EXPECT_FALSE(dictionaries.ok());
  const std::string message = dictionaries.status().message();
  EXPECT_EQ(message.find('\n'), std::string::npos);
  return message;
}

TEST(KeywordFile, ReadsDictionariesInTheirOrder) {
  const std::vector<KeywordDictionary> found = Parsed(R"(
    [zebra]
    title = "Layer"
    over = ["line", "owner"]
    [[zebra.category]]
    name = "Attention"
    keywords = ["attn", "attention"]
    [[zebra.category]]
    name = "Exact"
    group = "Total"
    keywords = ["x"]
    over = ["category"]
    match = "glob"
    case = true
    fallback = true
    [apple]
    [[apple.category]]
    name = "A"
    keywords = ["a"]
  )");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "zebra");
  EXPECT_EQ(found[0].title, "Layer");
  ASSERT_EQ(found[0].rules.size(), 2u);
  EXPECT_EQ(found[0].rules[0].category, "Attention");
  EXPECT_THAT(found[0].rules[0].keywords, ElementsAre("attn", "attention"));
  EXPECT_THAT(found[0].rules[0].over, ElementsAre(Dimension::kLine, Dimension::kOwner));
  EXPECT_EQ(found[0].rules[0].match, KeywordMatch::kSubstring);
  EXPECT_FALSE(found[0].rules[0].case_sensitive);
  EXPECT_THAT(found[0].rules[1].over, ElementsAre(Dimension::kCategory));
  EXPECT_EQ(found[0].rules[1].group, "Total");
  EXPECT_EQ(found[0].rules[1].match, KeywordMatch::kGlob);
  EXPECT_TRUE(found[0].rules[1].case_sensitive);
  EXPECT_FALSE(found[0].rules[0].fallback);
  EXPECT_TRUE(found[0].rules[1].fallback);
  EXPECT_EQ(found[1].title, "apple");
  EXPECT_THAT(found[1].rules[0].over, ElementsAre(Dimension::kModule, Dimension::kParameter,
                                                  Dimension::kTag, Dimension::kCategory));
}

TEST(KeywordFile, EveryErrorSaysWhere) {
  const std::string good = "[a]\n[[a.category]]\nname = \"x\"\nkeywords = [\"y\"]\n";
  EXPECT_EQ(Parsed(good).size(), 1u);
  EXPECT_THAT(ErrorOf("[a\n"), StartsWith("my.toml:1:3: "));
  EXPECT_THAT(ErrorOf("[a]\n[a]\n"), StartsWith("my.toml:2:"));
  EXPECT_THAT(ErrorOf(good + "keyword = [\"z\"]\n"),
              StartsWith("my.toml:5:1: unknown key 'keyword': did you mean keywords?"));
  EXPECT_THAT(ErrorOf("[a]\ncolour = \"red\"\n"),
              StartsWith("my.toml:2:1: unknown key 'colour'; "));
  EXPECT_THAT(ErrorOf("[a]\nover = [\"module\", \"modul\"]\n"),
              StartsWith("my.toml:2:19: unknown dimension 'modul'; did you mean 'module'?"));
  EXPECT_THAT(ErrorOf("[a]\nover = [\"x\\ny\"]\n"),
              StartsWith("my.toml:2:9: unknown dimension 'x y'"));
  EXPECT_THAT(ErrorOf("[a]\nover = [\"tag\", \"tag\"]\n"), HasSubstr("my.toml:2:16: over names"));
  EXPECT_THAT(ErrorOf("[a]\nover = \"tag\"\n"), StartsWith("my.toml:2:8: over must be a list"));
  EXPECT_THAT(ErrorOf("[a]\nover = []\n"), StartsWith("my.toml:2:8: over is empty"));
  EXPECT_THAT(ErrorOf("[a]\ncase = \"no\"\n"), StartsWith("my.toml:2:8: case must be"));
  EXPECT_THAT(ErrorOf("[a]\nmatch = \"regex\"\n"),
              StartsWith("my.toml:2:9: unknown match 'regex'"));
  EXPECT_THAT(ErrorOf("[a]\n"), StartsWith("my.toml:1:1: the dictionary 'a' has no categories"));
  EXPECT_THAT(ErrorOf("[a]\ncategory = 3\n"),
              StartsWith("my.toml:2:12: the dictionary 'a' has no"));
  EXPECT_THAT(ErrorOf("[a]\n[[a.category]]\nkeywords = [\"y\"]\n"),
              StartsWith("my.toml:2:1: this category has no name"));
  EXPECT_THAT(ErrorOf("[a]\n[[a.category]]\nname = \"x\"\n"),
              StartsWith("my.toml:2:1: the category 'x' has no keywords"));
  EXPECT_THAT(ErrorOf("[a]\n[[a.category]]\nname = \"x\"\nkeywords = []\n"),
              StartsWith("my.toml:4:12: keywords is empty"));
  EXPECT_THAT(ErrorOf("[a]\n[[a.category]]\nname = \"x\"\nkeywords = [\"a\", \"\"]\n"),
              StartsWith("my.toml:4:18: keywords has an empty text"));
  EXPECT_THAT(ErrorOf("[a]\n[[a.category]]\nname = \"x\"\nkeywords = [1]\n"),
              StartsWith("my.toml:4:13: keywords must be a list of texts"));
  EXPECT_THAT(ErrorOf("[a]\n[[a.category]]\nname = 7\n"), StartsWith("my.toml:3:8: name must be"));
  EXPECT_THAT(ErrorOf("[a]\n[[a.category]]\nname = \"Others\"\nkeywords = [\"y\"]\n"),
              StartsWith("my.toml:3:8: 'Others' is what no keyword matches"));
  EXPECT_THAT(ErrorOf("name = \"x\"\n"), StartsWith("my.toml:1:8: 'name' stands outside"));
  EXPECT_THAT(ErrorOf("[a]\n[[\u0492.category]]\n"), StartsWith("my.toml:2:3: "));
  EXPECT_EQ(ErrorOf("# nothing\n"),
            "my.toml: has no dictionary: begin one with [NAME] and [[NAME.category]]");
}

TEST(KeywordFile, TheReadyDictionariesAreGood) {
  const util::Result<std::vector<KeywordDictionary>> all =
      LoadKeywords({"layers", "data-structures", "tbd"});
  ASSERT_TRUE(all.ok()) << all.status().message();
  ASSERT_EQ(all->size(), 3u);
  EXPECT_EQ((*all)[0].name, "layers");
  EXPECT_EQ((*all)[1].name, "data-structures");
  EXPECT_EQ((*all)[2].name, "tbd");
  EXPECT_EQ(BuiltInKeywordNames(), "layers, data-structures, tbd");
}

TEST(KeywordFile, WhatIsNoFileAndNoDictionary) {
  EXPECT_EQ(
      LoadKeywords({"layer"}).status().message(),
      "--keywords: no file and no dictionary is named 'layer': use layers, data-structures, tbd, "
      "or a FILE.toml");
  EXPECT_THAT(LoadKeywords({"/nowhere/my.toml"}).status().message(), HasSubstr("/nowhere/my.toml"));
  EXPECT_THAT(LoadKeywords({"tbd", "tbd"}).status().message(),
              HasSubstr("another dictionary has the name 'tbd'"));
}

TEST(KeywordFile, AFileOnDisk) {
  const std::string path = testing::TempDir() + "keyword_file_test.toml";
  std::ofstream(path) << "[a]\n[[a.category]]\nname = \"x\"\nkeywords = [\"y\"]\n";
  const util::Result<std::vector<KeywordDictionary>> found = LoadKeywords({"tbd", path});
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ((*found)[1].name, "a");
}

}  // namespace
}  // namespace vramscope::query
