// Writes a byte-level tokenizer with a few merges and a chat template, as a
// model folder's files. Merges across a space and a letter make the tokens of a
// text depend on the text behind it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "gtest/gtest.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/fakes/temp_path.h"

namespace dapd {

inline constexpr int32_t kSmallEndId = 261;  // "<end>"

inline void WriteSmallTokenizer(const std::string& folder) {
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) {
    vocab[ByteAlphabet::Get().Symbol(static_cast<uint8_t>(byte))] = byte;
  }
  const std::string space = ByteAlphabet::Get().Symbol(' ');
  vocab["th"] = 256;
  vocab["the"] = 257;
  vocab[space + "the"] = 258;
  vocab["12"] = 259;
  vocab["123"] = 260;
  const nlohmann::json tokenizer = {
      {"added_tokens",
       {{{"id", kSmallEndId}, {"content", "<end>"}, {"special", true}}}},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"},
        {"vocab", vocab},
        {"merges", {"t h", "th e", space + " the", "1 2", "12 3"}}}}};
  const nlohmann::json chat = {
      {"chat_template",
       "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>"
       "{% endfor %}{% if add_generation_prompt %}<assistant>"
       "{% if not enable_thinking %}<no thoughts>{% endif %}{% endif %}"}};
  std::filesystem::create_directories(folder);
  for (const auto& [name, json] : {std::pair{"tokenizer.json", tokenizer},
                                   std::pair{"tokenizer_config.json", chat}}) {
    ASSERT_TRUE(WriteFileAtomically(JoinPath(folder, name), json.dump()).ok());
  }
}

// Returns the tokenizer, from a folder that the test does not need afterwards.
inline std::unique_ptr<const Tokenizer> LoadSmallTokenizer() {
  const std::string folder = TempPath("tokenizer");
  WriteSmallTokenizer(folder);
  return Tokenizer::Load(folder).value();
}

// Gives the tokenizer in `folder` one more token, with the id behind "<end>".
inline void AddToSmallTokenizer(const std::string& folder,
                                const std::string& content) {
  const std::string path = JoinPath(folder, "tokenizer.json");
  nlohmann::json tokenizer =
      nlohmann::json::parse(ReadFile(path, 1 << 20).value());
  tokenizer["added_tokens"].push_back(
      {{"id", kSmallEndId + 1}, {"content", content}, {"special", false}});
  ASSERT_TRUE(WriteFileAtomically(path, tokenizer.dump()).ok());
}

}  // namespace dapd
