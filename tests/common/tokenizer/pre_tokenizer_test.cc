#include "common/tokenizer/pre_tokenizer.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/json.h"

namespace dapd {
namespace {

using Words = std::vector<std::string>;

// This expression is from the tokenizer.json of Mistral Nemo.
constexpr char kTekken[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const nlohmann::json kByteLevel = {
    {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
const nlohmann::json kDigits = {{"type", "Digits"},
                                {"individual_digits", true}};

absl::StatusOr<PreTokenizer> ParseParts(
    const std::vector<nlohmann::json>& parts) {
  return PreTokenizer::Parse({{"type", "Sequence"}, {"pretokenizers", parts}});
}

absl::StatusOr<PreTokenizer> ParseSplit(const std::string& regex) {
  return ParseParts({{{"type", "Split"},
                      {"pattern", {{"Regex", regex}}},
                      {"behavior", "Isolated"}},
                     kByteLevel});
}

Words Split(const PreTokenizer& splitter, const std::string& text) {
  const CutText cut = splitter.Split(text).value();
  Words words;
  for (const Span word : cut.words) words.emplace_back(cut.Bytes(word));
  return words;
}

// The expected words are from `tokenizers`.
TEST(PreTokenizerTest, TekkenCutsWhereCapitalsBegin) {
  const auto tekken = ParseSplit(kTekken);
  ASSERT_TRUE(tekken.ok()) << tekken.status();
  for (const auto& [text, words] : std::vector<std::pair<std::string, Words>>{
           {"camelCase HTTPServer", {"camel", "Case", " HTTPServer"}},
           {"don't I'LL", {"don", "'t", " I", "'LL"}},
           {"a!/\n//b 12/x", {"a", "!/\n//", "b", " ", "1", "2", "/x"}},
           {"  aB  \n x ", {" ", " a", "B", "  \n", " x", " "}},
           // Capitals are given back up to a letter without case.
           {"AB\u4e2dCD", {"AB\u4e2d", "CD"}},
           {"\u4e2dAB", {"\u4e2d", "AB"}},
           {"\u01c5a \u02b0Ab", {"\u01c5a", " \u02b0Ab"}},
           // A mark is the prefix of a word, or a word.
           {"-\u0301 A\u0301B", {"-\u0301", " A\u0301", "B"}},
           {"\u0301ABC", {"\u0301", "ABC"}},
           {"\u0301", {"\u0301"}}}) {
    EXPECT_EQ(Split(*tekken, text), words) << text;
  }
}

TEST(PreTokenizerTest, WhatOfAnExpressionIsNotKnownIsShown) {
  for (const auto& [regex, part] :
       std::vector<std::pair<std::string, std::string>>{
           {"\\w+", "'\\w'"},
           {"(a)\\1", "'\\1'"},
           {"\\p{Greek}", "'\\p{Greek}'"},
           {"a{1,2}+", "'}+'"},
           {"(?<name>a)", "'(?<n'"},
           {"[[:alpha:]]", "'[:'"},
           {"a(", "is not valid"}}) {
    EXPECT_THAT(std::string(ParseSplit(regex).status().message()),
                ::testing::AllOf(::testing::HasSubstr("the expression"),
                                 ::testing::HasSubstr(part)))
        << regex;
  }
}

// Some letters that ByteLevel writes for bytes are digits: \u00b2, \u00bd. They
// are parts of characters.
TEST(PreTokenizerTest, WhatComesAfterByteLevelCutsBytes) {
  const auto digits = ParseParts({kByteLevel, kDigits});
  ASSERT_TRUE(digits.ok()) << digits.status();
  EXPECT_EQ(Split(*digits, "a12\u0432"),
            (Words{"a", "1", "2", "\xD0", "\xB2"}));
  EXPECT_THAT(
      std::string(ParseParts({kByteLevel, kByteLevel}).status().message()),
      ::testing::HasSubstr("a second ByteLevel"));
  EXPECT_THAT(std::string(ParseParts({kDigits}).status().message()),
              ::testing::HasSubstr("one without ByteLevel"));
  EXPECT_THAT(
      std::string(
          PreTokenizer::Parse({{"type", "Metaspace"}}).status().message()),
      ::testing::HasSubstr("type 'Metaspace' is not supported; Split"));
}

}  // namespace
}  // namespace dapd
