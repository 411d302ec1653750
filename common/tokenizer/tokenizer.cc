#include "common/tokenizer/tokenizer.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/json_lines.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/added_tokens.h"
#include "common/tokenizer/bpe.h"
#include "common/tokenizer/byte_alphabet.h"
#include "common/tokenizer/normalizer.h"
#include "common/tokenizer/pre_tokenizer.h"
#include "common/tokenizer/tokenizer_config.h"
#include "common/tokenizer/unicode_text.h"

namespace dapd {
namespace {

constexpr uint64_t kMaxFileBytes = 256 << 20;
constexpr size_t kMaxIdsPerToken = 16;

class ByteLevelTokenizer : public Tokenizer {
 public:
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Parse(
      const nlohmann::json& json, const TokenizerConfig& config);

  absl::StatusOr<std::vector<int32_t>> Encode(
      absl::string_view text) const override;
  absl::StatusOr<std::string> Decode(const std::vector<int32_t>& ids,
                                     bool skip_special_tokens) const override;
  int32_t size() const override { return static_cast<int32_t>(tokens_.size()); }
  int32_t TokenId(absl::string_view token) const override {
    const auto found = ids_.find(std::string(token));
    return found == ids_.end() ? -1 : found->second;
  }
  std::optional<std::string> BytesOf(int32_t id) const override {
    if (id < 0 || id >= size() || !tokens_[id].exists) return std::nullopt;
    return tokens_[id].bytes;
  }
  std::vector<std::pair<int32_t, int32_t>> Merges() const override {
    return bpe_.Merges();
  }
  bool IsSpecial(int32_t id) const override {
    return id >= 0 && id < size() && tokens_[id].special;
  }
  bool IsAdded(int32_t id) const override {
    return id >= 0 && id < size() && tokens_[id].added;
  }
  std::optional<int32_t> pad_id() const override { return pad_id_; }
  std::optional<int32_t> end_id() const override { return end_id_; }

 private:
  struct Token {
    std::string bytes;  // decoded bytes; empty if there is no such id
    bool exists = false;
    bool special = false;
    bool added = false;
  };

  ByteLevelTokenizer(Normalizer normalizer,
                     PreTokenizer pre_tokenizer,
                     Bpe bpe,
                     AddedTokens added)
      : normalizer_(std::move(normalizer)),
        pre_tokenizer_(std::move(pre_tokenizer)),
        bpe_(std::move(bpe)),
        added_(std::move(added)) {}

  absl::Status BuildTables();
  // `tokenizers` numbers the added tokens itself, whatever the file says: by
  // the vocabulary or, for tokens outside of it, from its size on.
  absl::Status CheckNumbering() const;
  absl::Status EncodePlain(absl::string_view text,
                           std::vector<int32_t>* ids) const;

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  Bpe bpe_;
  AddedTokens added_;
  std::vector<Token> tokens_;  // by id
  std::unordered_map<std::string, int32_t> ids_;
  std::optional<int32_t> pad_id_;
  std::optional<int32_t> end_id_;
};

// Joins the added tokens as transformers does. First come the tokens of
// tokenizer.json with the properties that tokenizer_config.json adds, then the
// tokens that only tokenizer_config.json has, and last its special tokens. A
// token is special if one of these sources says so; a list without names only
// adds tokens.
nlohmann::json JoinAddedTokens(const nlohmann::json& listed,
                               const TokenizerConfig& config,
                               const Bpe& bpe) {
  if (!listed.is_array()) return listed;
  nlohmann::json joined = nlohmann::json::array();
  std::unordered_map<std::string, size_t> places;
  auto next = static_cast<int32_t>(bpe.vocabulary().size());
  // Returns the existing token with the same content; otherwise null.
  const auto add = [&](const nlohmann::json& token) -> nlohmann::json* {
    const bool has_content = token.is_object() && token.contains("content") &&
                             token["content"].is_string();
    const auto content =
        has_content ? token["content"].get<std::string>() : std::string();
    const auto [place, is_new] = places.emplace(content, joined.size());
    if (!is_new) return &joined[place->second];
    joined.push_back(token);
    if (!bpe.vocabulary().contains(content)) ++next;
    return nullptr;
  };
  const auto say = [](const nlohmann::json& token, nlohmann::json& known) {
    const bool special =
        known.value("special", false) || token.value("special", false);
    const nlohmann::json id = known.value("id", nlohmann::json());
    known.update(token);
    known["id"] = id;
    known["special"] = special;
  };
  for (const nlohmann::json& token : listed) {
    nlohmann::json* known = add(token);
    if (known == nullptr) continue;
    if (token.value("id", nlohmann::json()) ==
        known->value("id", nlohmann::json())) {
      say(token, *known);
    } else {
      joined.push_back(token);  // its id will be refused
    }
  }
  for (const nlohmann::json& token : config.added_tokens) {
    nlohmann::json* known = add(token);
    if (known != nullptr) say(token, *known);
  }
  const auto add_special = [&](nlohmann::json token) {
    const auto in_vocabulary =
        bpe.vocabulary().find(token["content"].get<std::string>());
    token["id"] =
        in_vocabulary == bpe.vocabulary().end() ? next : in_vocabulary->second;
    token["special"] = true;
    return add(token);
  };
  for (const nlohmann::json& token : config.named_tokens) {
    nlohmann::json* known = add_special(token);
    if (known != nullptr) (*known)["special"] = true;
  }
  for (const nlohmann::json& token : config.unnamed_tokens) add_special(token);
  return joined;
}

absl::Status CheckDecoder(const nlohmann::json& json) {
  if (json.is_object() && json.value("type", std::string()) == "ByteLevel") {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "decoder: only ByteLevel is supported, got ",
      json.is_object() ? json.value("type", std::string()) : json.dump()));
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> ByteLevelTokenizer::Parse(
    const nlohmann::json& json, const TokenizerConfig& config) {
  if (!json.is_object() || !json.contains("model")) {
    return absl::InvalidArgumentError("there is no model");
  }
  const auto field = [&](const char* key) {
    return json.contains(key) ? json[key] : nlohmann::json();
  };
  ASSIGN_OR_RETURN(Normalizer normalizer,
                   Normalizer::Parse(field("normalizer")));
  RETURN_IF_ERROR(CheckDecoder(field("decoder")));
  ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer,
                   PreTokenizer::Parse(field("pre_tokenizer")));
  ASSIGN_OR_RETURN(Bpe bpe, Bpe::Parse(json["model"]));
  ASSIGN_OR_RETURN(
      AddedTokens added,
      AddedTokens::Parse(
          JoinAddedTokens(
              json.value("added_tokens", nlohmann::json::array()), config, bpe),
          normalizer,
          config.split_special_tokens));
  auto tokenizer = std::unique_ptr<ByteLevelTokenizer>(
      new ByteLevelTokenizer(std::move(normalizer),
                             std::move(pre_tokenizer),
                             std::move(bpe),
                             std::move(added)));
  RETURN_IF_ERROR(tokenizer->BuildTables());
  for (const char* key : {"eos_token", "pad_token"}) {
    const auto named = config.special_tokens.find(key);
    if (named == config.special_tokens.end()) continue;
    const int32_t id = tokenizer->TokenId(named->second);
    tokenizer->pad_id_ = id;
    if (absl::string_view(key) == "eos_token") tokenizer->end_id_ = id;
  }
  return std::unique_ptr<const Tokenizer>(std::move(tokenizer));
}

absl::Status ByteLevelTokenizer::BuildTables() {
  // The tables are as long as the largest id, so no file may name an id far
  // beyond its number of tokens.
  const size_t max_ids =
      kMaxIdsPerToken * (bpe_.vocabulary().size() + added_.tokens().size());
  const auto place = [&](int32_t id,
                         const std::string& text,
                         bool special,
                         bool added) -> absl::Status {
    if (static_cast<size_t>(id) >= max_ids) {
      return absl::InvalidArgumentError(
          absl::StrCat("id ", id, " of '", text, "' is far above all others"));
    }
    if (static_cast<size_t>(id) >= tokens_.size()) {
      tokens_.resize(static_cast<size_t>(id) + 1);
    }
    Token& token = tokens_[static_cast<size_t>(id)];
    // An added token may name an entry of the vocabulary again.
    if (token.exists && !(added && TokenId(text) == id)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "id ", id, " belongs to two tokens, one of them is '", text, "'"));
    }
    token = {ByteAlphabet::Get().ToBytes(text), true, special, added};
    ids_[text] = id;
    return absl::OkStatus();
  };
  for (const auto& [text, id] : bpe_.vocabulary()) {
    RETURN_IF_ERROR(place(id, text, false, false));
  }
  for (const AddedToken& token : added_.tokens()) {
    RETURN_IF_ERROR(place(token.id, token.content, token.special, true));
  }
  return CheckNumbering();
}

absl::Status ByteLevelTokenizer::CheckNumbering() const {
  auto next = static_cast<int32_t>(bpe_.vocabulary().size());
  std::unordered_map<std::string, int32_t> given;
  for (const AddedToken& token : added_.tokens()) {
    const auto known = bpe_.vocabulary().find(token.content);
    if (known != bpe_.vocabulary().end()) {
      given.emplace(token.content, known->second);
    } else if (given.emplace(token.content, next).second) {
      ++next;
    }
    const int32_t id = given.at(token.content);
    if (id == token.id) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("added_tokens: '",
                     token.content,
                     "' has id ",
                     token.id,
                     ", but Hugging Face's tokenizers give it the id ",
                     id,
                     ": added tokens follow the vocabulary, in the order of "
                     "the list; change the id, or the order"));
  }
  return absl::OkStatus();
}

absl::Status ByteLevelTokenizer::EncodePlain(absl::string_view text,
                                             std::vector<int32_t>* ids) const {
  ASSIGN_OR_RETURN(const CutText cut, pre_tokenizer_.Split(text));
  for (const Span word : cut.words) bpe_.Encode(cut.Bytes(word), ids);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> ByteLevelTokenizer::Encode(
    absl::string_view text) const {
  RETURN_IF_ERROR(DecodeUtf8(text).status());
  std::vector<int32_t> ids;
  for (const AddedTokens::Piece& raw : added_.Split(text, false)) {
    if (raw.id >= 0) {
      ids.push_back(raw.id);
      continue;
    }
    ASSIGN_OR_RETURN(const std::string normalized, normalizer_.Apply(raw.text));
    for (const AddedTokens::Piece& piece : added_.Split(normalized, true)) {
      if (piece.id >= 0) {
        ids.push_back(piece.id);
      } else {
        RETURN_IF_ERROR(EncodePlain(piece.text, &ids));
      }
    }
  }
  return ids;
}

absl::StatusOr<std::string> ByteLevelTokenizer::Decode(
    const std::vector<int32_t>& ids, bool skip_special_tokens) const {
  std::string bytes;
  for (const int32_t id : ids) {
    if (id < 0 || id >= size() || !tokens_[id].exists) {
      return absl::OutOfRangeError(
          absl::StrCat("id ", id, " is not in the vocabulary of ", size()));
    }
    if (skip_special_tokens && tokens_[id].special) continue;
    bytes += tokens_[id].bytes;
  }
  return RepairUtf8(bytes);
}

}  // namespace

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::Load(
    const std::string& folder) {
  const std::string path = JoinPath(folder, "tokenizer.json");
  auto bytes = ReadFile(path, kMaxFileBytes);
  if (!bytes.ok()) return WithExitCode(bytes.status(), ExitCode::kData);
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(*bytes, path));
  ASSIGN_OR_RETURN(const TokenizerConfig config, ReadTokenizerConfig(folder));
  try {
    auto tokenizer = ByteLevelTokenizer::Parse(json, config);
    if (tokenizer.ok()) return tokenizer;
    return DataError(
        absl::StrCat(path, ": ", std::string(tokenizer.status().message())));
  } catch (const nlohmann::json::exception& error) {
    // A field has an unexpected type that no check above reports.
    return DataError(absl::StrCat(path, ": ", error.what()));
  }
}

}  // namespace dapd
