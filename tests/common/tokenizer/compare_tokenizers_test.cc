#include "common/tokenizer/compare_tokenizers.h"

#include <filesystem>
#include <memory>
#include <string>

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

using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns all bytes, "hi" = 256 and "he" = 257 with their merges, and <end> =
// 258.
nlohmann::json BaseTokenizer() {
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) {
    vocab[ByteAlphabet::Get().Symbol(static_cast<uint8_t>(byte))] = byte;
  }
  vocab["hi"] = 256;
  vocab["he"] = 257;
  return {
      {"added_tokens",
       {{{"id", 258}, {"content", "<end>"}, {"special", true}}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"h i", "h e"}}}}};
}

struct LoadedFolder {
  std::string folder;
  std::unique_ptr<const Tokenizer> tokenizer;

  NamedTokenizer named() const { return {*tokenizer, folder}; }
};

LoadedFolder LoadFolder(const nlohmann::json& json) {
  LoadedFolder loaded{.folder = TempPath("model")};
  std::filesystem::create_directories(loaded.folder);
  EXPECT_TRUE(WriteFileAtomically(JoinPath(loaded.folder, "tokenizer.json"),
                                  json.dump())
                  .ok());
  auto tokenizer = Tokenizer::Load(loaded.folder);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  loaded.tokenizer = *std::move(tokenizer);
  return loaded;
}

std::string Difference(const nlohmann::json& changed) {
  const LoadedFolder first = LoadFolder(BaseTokenizer());
  const LoadedFolder second = LoadFolder(changed);
  const absl::Status status = CompareTokenizers(first.named(), second.named());
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kData) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(absl::StrCat(first.folder, "/tokenizer.json")),
                    HasSubstr(absl::StrCat(second.folder, "/tokenizer.json"))));
  return std::string(status.message());
}

TEST(CompareTokenizersTest, EqualTokensAgreeWhateverTheRulesThatCutText) {
  nlohmann::json other = BaseTokenizer();
  other["normalizer"] = {{"type", "NFC"}};
  other["added_tokens"][0]["special"] = false;
  const LoadedFolder first = LoadFolder(BaseTokenizer());
  const LoadedFolder second = LoadFolder(other);
  EXPECT_EQ(CompareTokenizers(first.named(), second.named()), absl::OkStatus());
}

TEST(CompareTokenizersTest, TheFirstIdThatDiffersIsNamed) {
  nlohmann::json swapped = BaseTokenizer();
  swapped["model"]["vocab"]["hi"] = 257;
  swapped["model"]["vocab"]["he"] = 256;
  EXPECT_THAT(Difference(swapped), HasSubstr("token 256 is 'hi' in "));
}

TEST(CompareTokenizersTest, AnAddedTokenThatOneLacksIsNamed) {
  nlohmann::json more = BaseTokenizer();
  more["added_tokens"].push_back({{"id", 259}, {"content", "<think>"}});
  EXPECT_THAT(
      Difference(more),
      AllOf(HasSubstr("token 259 is missing in "), HasSubstr("'<think>' in ")));
  nlohmann::json as_word = BaseTokenizer();
  as_word["added_tokens"] = nlohmann::json::array();
  as_word["model"]["vocab"]["<end>"] = 258;
  EXPECT_THAT(Difference(as_word),
              HasSubstr("token 258 ('<end>') is an added token in "));
}

TEST(CompareTokenizersTest, AnotherOrderOfMergesIsNamed) {
  nlohmann::json turned = BaseTokenizer();
  turned["model"]["merges"] = {"h e", "h i"};
  EXPECT_THAT(Difference(turned), HasSubstr("merge 1 is 'h' with 'i' in "));
  nlohmann::json fewer = BaseTokenizer();
  fewer["model"]["merges"] = {"h i"};
  EXPECT_THAT(Difference(fewer),
              AllOf(HasSubstr("merge 2 is 'h' with 'e' in "),
                    HasSubstr("missing in ")));
}

}  // namespace
}  // namespace dapd
