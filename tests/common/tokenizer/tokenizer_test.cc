#include "common/tokenizer/tokenizer.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/tokenizer/byte_alphabet.h"
#include "tests/fakes/temp_path.h"

namespace dapd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Returns all bytes, two merges, one special token: h=104, i=105, "hi"=256, "
// hi"=257.
nlohmann::json SmallTokenizer() {
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) {
    vocab[ByteAlphabet::Get().Symbol(static_cast<uint8_t>(byte))] = byte;
  }
  const std::string space = ByteAlphabet::Get().Symbol(' ');
  vocab["hi"] = 256;
  vocab[space + "hi"] = 257;
  return {
      {"added_tokens",
       {{{"id", 258}, {"content", "<end>"}, {"special", true}}}},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"},
        {"vocab", vocab},
        {"merges", {"h i", space + " hi"}}}}};
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> Load(
    const nlohmann::json& json, const nlohmann::json& config = {}) {
  const std::string folder = TempPath("model");
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* file, const nlohmann::json& content) {
    EXPECT_TRUE(
        WriteFileAtomically(JoinPath(folder, file), content.dump()).ok());
  };
  write("tokenizer.json", json);
  if (!config.is_null()) write("tokenizer_config.json", config);
  return Tokenizer::Load(folder);
}

TEST(TokenizerTest, MergesApplyAndAddedTokensAreRecognised) {
  const auto tokenizer = Load(SmallTokenizer());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*(*tokenizer)->Encode("hi hi<end>h"),
              ElementsAre(256, 257, 258, 'h'));
  EXPECT_EQ((*tokenizer)->size(), 259);
  EXPECT_EQ((*tokenizer)->TokenId("<end>"), 258);
  EXPECT_TRUE((*tokenizer)->IsSpecial(258));
}

TEST(TokenizerTest, SpecialTokensMayBeTextLikeAnyOther) {
  nlohmann::json json = SmallTokenizer();
  json["added_tokens"].push_back({{"id", 259}, {"content", "nd"}});
  json["added_tokens"].push_back({{"id", 260}, {"content", "<end"}});
  const auto split = Load(json, {{"split_special_tokens", true}});
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_THAT(*(*split)->Encode("hi<end>nd"),
              ElementsAre(256, '<', 'e', 'n', 'd', '>', 259));
  EXPECT_THAT(*(*split)->Encode("<end"), ElementsAre(260));
  EXPECT_TRUE((*split)->IsSpecial(258));
  const auto whole = Load(json, {{"split_special_tokens", false}});
  EXPECT_THAT(*(*whole)->Encode("hi<end>nd"), ElementsAre(256, 258, 259));
}

TEST(TokenizerTest, DecodingGivesTheTextBack) {
  const auto tokenizer = Load(SmallTokenizer());
  ASSERT_TRUE(tokenizer.ok());
  const std::string text = "hi, \xC3\xA9 \xE4\xB8\xAD\n\t 12<end>";
  const std::vector<int32_t> ids = *(*tokenizer)->Encode(text);
  EXPECT_EQ(*(*tokenizer)->Decode(ids, false), text);
  EXPECT_EQ(*(*tokenizer)->Decode(ids, true), text.substr(0, text.size() - 5));
}

TEST(TokenizerTest, CombiningMarksAreComposedFirst) {
  const auto tokenizer = Load(SmallTokenizer());
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(*(*tokenizer)->Encode("e\xCC\x81"),
            *(*tokenizer)->Encode("\xC3\xA9"));
}

// `tokenizers` searches for such a token in the normalized text.
TEST(TokenizerTest, ANormalizedTokenIsFoundHoweverItsMarksAreWritten) {
  nlohmann::json json = SmallTokenizer();
  json["added_tokens"].push_back(
      {{"id", 259}, {"content", "<e\xCC\x81>"}, {"normalized", true}});
  const auto tokenizer = Load(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*(*tokenizer)->Encode("<e\xCC\x81>h<\xC3\xA9>"),
              ElementsAre(259, 'h', 259));
  EXPECT_EQ(*(*tokenizer)->Decode({259}, false), "<e\xCC\x81>");
}

// Searching all tokens at each place of the text would take minutes.
TEST(TokenizerTest, OfManyAddedTokensTheLongestIsFound) {
  nlohmann::json json = SmallTokenizer();
  int id = 259;
  const auto add = [&](const std::string& content) {
    json["added_tokens"].push_back({{"id", id++}, {"content", content}});
  };
  // The vocabulary already has this token.
  json["added_tokens"].push_back({{"id", '<'}, {"content", "<"}});
  for (const char* content : {"<e", "<ends>", "<end>>"}) add(content);
  for (int i = 0; i < 50000; ++i) add(absl::StrCat("<", 1000000 + i));
  const auto tokenizer = Load(json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*(*tokenizer)->Encode("<<e<end><ends<end>>h"),
              ElementsAre('<', 259, 258, 259, 'n', 'd', 's', 261, 'h'));
  EXPECT_THAT(*(*tokenizer)->Encode("<1000007<100000"),
              ElementsAre(269, '<', '1', '0', '0', '0', '0', '0'));
  EXPECT_EQ((*tokenizer)->Encode(std::string(100000, '<'))->size(), 100000U);
}

TEST(TokenizerTest, HalfACharacterBecomesTheReplacementCharacter) {
  const auto tokenizer = Load(SmallTokenizer());
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(*(*tokenizer)->Decode({'a', 0xE4, 0xB8, 'b'}, false),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_FALSE((*tokenizer)->Decode({999}, false).ok());
  EXPECT_FALSE((*tokenizer)->Encode("\xFF").ok());
}

TEST(TokenizerTest, WhatIsBrokenOrUnsupportedIsNamed) {
  for (const auto& [change, expected] :
       std::vector<std::pair<nlohmann::json, std::string>>{
           {{{"normalizer", {{"type", "Precompiled"}}}}, "Precompiled"},
           {{{"decoder", {{"type", "WordPiece"}}}}, "WordPiece"},
           {{{"pre_tokenizer", {{"type", "Metaspace"}}}}, "Metaspace"},
           {{{"pre_tokenizer",
              {{"type", "Split"}, {"behavior", "Isolated"}, {"invert", true}}}},
            "the pattern null is not supported"},
           {{{"model", {{"type", "Unigram"}}}}, "BPE"},
           {{{"model", nullptr}}, "tokenizer.json"}}) {
    nlohmann::json json = SmallTokenizer();
    json.update(change);
    const absl::Status status = Load(json).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << change;
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected));
  }
}

// `tokenizers` would give them other ids than the file.
TEST(TokenizerTest, AddedTokensFollowTheVocabularyInTheirOrder) {
  const auto load = [](std::vector<std::pair<int, std::string>> added) {
    nlohmann::json json = SmallTokenizer();
    json["added_tokens"] = nlohmann::json::array();
    for (const auto& [id, content] : added) {
      json["added_tokens"].push_back({{"id", id}, {"content", content}});
    }
    return Load(json).status();
  };
  EXPECT_TRUE(load({}).ok());
  EXPECT_TRUE(load({{258, "<a>"}, {259, "<b>"}}).ok());
  // "hi" has its id in the vocabulary, wherever it is listed.
  EXPECT_TRUE(load({{256, "hi"}, {258, "<a>"}, {259, "<b>"}}).ok());
  EXPECT_TRUE(load({{258, "<a>"}, {256, "hi"}, {259, "<b>"}}).ok());
  EXPECT_TRUE(load({{258, "<a>"}, {258, "<a>"}, {259, "<b>"}}).ok());
  for (const auto& [added, expected] : std::vector<
           std::pair<std::vector<std::pair<int, std::string>>, std::string>>{
           {{{300, "<a>"}}, "'<a>' has id 300"},
           {{{258, "<a>"}, {260, "<b>"}}, "'<b>' has id 260"},
           {{{259, "<b>"}, {258, "<a>"}}, "'<b>' has id 259"}}) {
    const absl::Status status = load(added);
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kData);
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected));
  }
}

// transformers gives the tokens these ids.
TEST(TokenizerTest, TokensOfTheConfigurationAreAddedToThoseOfTheTokenizer) {
  const auto load = [](const nlohmann::json& by_id) {
    return Load(SmallTokenizer(), {{"added_tokens_decoder", by_id}});
  };
  // The last token of the vocabulary and the added token keep their ids.
  const auto tokenizer = load({{"1000", {{"content", "<b>"}}},
                               {"259", {{"content", "<a>"}}},
                               {"7", {{"content", "<end>"}}}});
  EXPECT_THAT(std::string(tokenizer.status().message()),
              HasSubstr("'<b>' has id 1000"));
  const auto two = load({{"260", {{"content", "<b>"}, {"special", true}}},
                         {"259", {{"content", "<a>"}}},
                         {"258", {{"content", "<end>"}, {"special", false}}}});
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_THAT(*(*two)->Encode("<b>h<a><end>"), ElementsAre(260, 'h', 259, 258));
  EXPECT_EQ(*(*two)->Decode({260, 259, 258}, true), "<a>")
      << "what one of the files says is special is special";
  EXPECT_EQ((*two)->size(), 261);
  for (const auto& [by_id, expected] :
       std::vector<std::pair<nlohmann::json, std::string>>{
           {{{"259", nlohmann::json::object()}}, "content"},
           {{{"259", "<a>"}}, "added_tokens_decoder"},
           {{{"a", {{"content", "<a>"}}}}, "added_tokens_decoder"},
           {nlohmann::json::array({1}), "added_tokens_decoder"}}) {
    const absl::Status status = load(by_id).status();
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << by_id;
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected));
  }
}

// transformers adds them, too; split into pieces, they would not end an answer.
TEST(TokenizerTest, TheSpecialTokensOfTheConfigurationAreAddedTokens) {
  nlohmann::json json = SmallTokenizer();
  json["added_tokens"].push_back({{"id", 259}, {"content", "<think>"}});
  json["added_tokens"].push_back({{"id", 260}, {"content", "<tool>"}});
  const auto tokenizer =
      Load(json,
           {{"eos_token", "hi"},
            {"pad_token", {{"content", "<pad>"}}},
            {"bos_token", "<bos>"},
            {"unk_token", "<think>"},
            {"sep_token", ""},
            {"extra_special_tokens", {"<extra>", "<tool>", "", "<pad>"}}});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  EXPECT_THAT(*(*tokenizer)->Encode("<bos>hi hi<pad><extra>"),
              ElementsAre(261, 256, ' ', 256, 262, 263));
  EXPECT_EQ((*tokenizer)->size(), 264);
  EXPECT_EQ(*(*tokenizer)->Decode({256, 257, 258, 259, 260, 261, 263}, true),
            " hi<tool>");
}

// The tokenizer of Phi-4 has such tokens.
TEST(TokenizerTest, AnAddedTokenMayTakeTheWhiteSpaceAroundIt) {
  const auto encode = [](const nlohmann::json& flags, const char* text) {
    nlohmann::json json = SmallTokenizer();
    json["added_tokens"][0].update(flags);
    return Load(json).value()->Encode(text).value();
  };
  EXPECT_THAT(encode({{"lstrip", true}}, "x \n<end> x"),
              ElementsAre('x', 258, ' ', 'x'));
  EXPECT_THAT(encode({{"rstrip", true}}, "x <end> \u00a0x"),
              ElementsAre('x', ' ', 258, 'x'));
  EXPECT_THAT(encode({{"rstrip", true}, {"lstrip", true}}, "<end> <end>"),
              ElementsAre(258, 258));
  const nlohmann::json word = {{"single_word", true}};
  EXPECT_THAT(encode(word, "-<end>-"), ElementsAre('-', 258, '-'));
  EXPECT_THAT(encode(word, "x<end>"), testing::Not(testing::Contains(258)));
  EXPECT_THAT(encode(word, "<end>_"), testing::Not(testing::Contains(258)));
}

TEST(TokenizerTest, OfAMergeThatIsListedTwiceTheLastCounts) {
  nlohmann::json json = SmallTokenizer();
  json["model"]["vocab"]["ih"] = 258;
  json["added_tokens"][0]["id"] = 259;
  json["model"]["merges"] = {"h i", "i h"};
  EXPECT_THAT(*Load(json).value()->Encode("hih"), ElementsAre(256, 'h'));
  json["model"]["merges"] = {"h i", "i h", "h i"};
  EXPECT_THAT(*Load(json).value()->Encode("hih"), ElementsAre('h', 258));
}

TEST(TokenizerTest, ATokenThatIsListedTwiceIsSpecialIfOneOfThemIs) {
  nlohmann::json json = SmallTokenizer();
  json["added_tokens"].push_back({{"id", 258}, {"content", "<end>"}});
  EXPECT_TRUE(Load(json).value()->IsSpecial(258));
}

TEST(TokenizerTest, ThePadTokenIsTheNamedOneOrTheEndToken) {
  const std::string folder = TempPath("model");
  std::filesystem::create_directories(folder);
  const auto pad = [&](const std::string& config) {
    EXPECT_TRUE(
        WriteFileAtomically(JoinPath(folder, "tokenizer_config.json"), config)
            .ok());
    return Load(SmallTokenizer()).value()->pad_id();
  };
  EXPECT_EQ(pad(R"({})"), std::nullopt);
  EXPECT_EQ(pad(R"({"eos_token": "<end>"})"), 258);
  EXPECT_EQ(pad(R"({"eos_token": {"content": "<end>"}, "pad_token": null})"),
            258);
  EXPECT_EQ(pad(R"({"eos_token": "<end>", "pad_token": "hi"})"), 256);
  EXPECT_EQ(pad(R"({"eos_token": "<end>", "pad_token": "<pad>"})"), 259)
      << "transformers adds a token that it does not know";
}

}  // namespace
}  // namespace dapd
