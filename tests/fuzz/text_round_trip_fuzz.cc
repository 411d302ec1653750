// Input: a text.
// Decoding gives back the encoded text with every pre-tokeniser.
#include <memory>
#include <vector>

#include "absl/strings/match.h"

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/unicode_text.h"
#include "tests/fuzz/input.h"

namespace dapd {
namespace {

// Has all bytes, merges of common pairs, and two added tokens.
nlohmann::json TokenizerJson(const nlohmann::json& pre_tokenizer,
                             const nlohmann::json& normalizer) {
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) {
    vocab[ByteAlphabet::Get().Symbol(static_cast<uint8_t>(byte))] = byte;
  }
  nlohmann::json merges = nlohmann::json::array();
  const std::string space = ByteAlphabet::Get().Symbol(' ');
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"t", "h"},
      {"th", "e"},
      {space, "the"},
      {space, space},
      {"1", "2"},
      {"i", "n"},
      {"in", "g"},
      {"\xC3\x83", "\xC2\xA9"}};
  for (const auto& [left, right] : pairs) {
    if (!vocab.contains(left + right)) vocab[left + right] = vocab.size();
    merges.push_back({left, right});
  }
  const size_t next = vocab.size();
  return {{"added_tokens",
           {{{"id", next}, {"content", "<|end|>"}, {"special", true}},
            {{"id", next + 1}, {"content", "<think>"}, {"special", false}}}},
          {"normalizer", normalizer},
          {"pre_tokenizer", pre_tokenizer},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
}

using TokenizerPtr = std::unique_ptr<const Tokenizer>;

std::vector<TokenizerPtr> Load(const nlohmann::json& normalizer) {
  const ScratchFolder folder;
  const nlohmann::json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const nlohmann::json gpt2 = {{"type", "ByteLevel"},
                               {"add_prefix_space", false}};
  const nlohmann::json digits = {{"type", "Digits"},
                                 {"individual_digits", true}};
  std::vector<TokenizerPtr> tokenizers;
  for (const nlohmann::json& pre_tokenizer :
       {bytes,
        gpt2,
        nlohmann::json{{"type", "Sequence"},
                       {"pretokenizers", {digits, gpt2}}}}) {
    folder.Write("tokenizer.json",
                 TokenizerJson(pre_tokenizer, normalizer).dump());
    tokenizers.push_back(Tokenizer::Load(folder.path()).value());
  }
  return tokenizers;
}

void CheckRoundTrip(const std::vector<TokenizerPtr>& tokenizers,
                    absl::string_view text,
                    const std::string& expected) {
  for (const TokenizerPtr& tokenizer : tokenizers) {
    const std::vector<int32_t> ids = tokenizer->Encode(text).value();
    Check(ids.size() <= expected.size(), "a token has at least a byte");
    Check(tokenizer->Decode(ids, false).value() == expected,
          "decoding gives the text back");
  }
}

void Run(absl::string_view text) {
  static const auto& plain = *new std::vector<TokenizerPtr>(Load(nullptr));
  static const auto& composing =
      *new std::vector<TokenizerPtr>(Load({{"type", "NFC"}}));
  if (!DecodeUtf8(text).ok()) {
    Check(!plain[0]->Encode(text).ok(), "ill-formed text is refused");
    return;
  }
  CheckRoundTrip(plain, text, std::string(text));
  // Around an added token the text is composed piece by piece.
  if (!absl::StrContains(text, "<|end|>") &&
      !absl::StrContains(text, "<think>")) {
    CheckRoundTrip(composing, text, ComposeNfc(text));
  }
}

}  // namespace
}  // namespace dapd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dapd::Run(dapd::AsText(data, size));
  return 0;
}
