#include "common/tokenizer/added_tokens.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/json_integer.h"
#include "common/tokenizer/bpe.h"
#include "common/tokenizer/unicode_text.h"

namespace dapd {

absl::StatusOr<AddedTokens> AddedTokens::Parse(const nlohmann::json& json,
                                               bool composes,
                                               bool splits_special) {
  AddedTokens added;
  added.splits_special_ = splits_special;
  if (!json.is_array()) {
    return absl::InvalidArgumentError("added_tokens is not a list");
  }
  for (const nlohmann::json& entry : json) {
    const auto id = JsonInteger(
        entry.is_object() ? entry.value("id", nlohmann::json()) : entry,
        0,
        kMaxTokenId);
    if (!entry.is_object() || !id.ok() || !entry.contains("content") ||
        !entry["content"].is_string() ||
        entry["content"].get<std::string>().empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "added_tokens: ", entry.dump(), " needs an id and a content"));
    }
    AddedToken token;
    token.id = static_cast<int32_t>(*id);
    token.content = entry["content"].get<std::string>();
    token.special = entry.value("special", false);
    token.normalized = entry.value("normalized", false);
    token.sought = composes && token.normalized ? ComposeNfc(token.content)
                                                : token.content;
    for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
      if (entry.value(flag, false)) {
        return absl::InvalidArgumentError(absl::StrCat("added_tokens: ",
                                                       flag,
                                                       " of '",
                                                       token.content,
                                                       "' is not supported"));
      }
    }
    added.tokens_.push_back(std::move(token));
  }
  for (size_t i = 0; i < added.tokens_.size(); ++i) {
    const AddedToken& token = added.tokens_[i];
    added
        .by_first_byte_[token.normalized ? 1 : 0]
                       [static_cast<uint8_t>(token.sought[0])]
        .push_back(i);
  }
  for (auto& table : added.by_first_byte_) {
    for (Sorted& bucket : table) {
      std::stable_sort(bucket.begin(), bucket.end(), [&](size_t a, size_t b) {
        return added.tokens_[a].sought < added.tokens_[b].sought;
      });
    }
  }
  return added;
}

const AddedToken* AddedTokens::FindLongest(absl::string_view text,
                                           const Sorted& candidates) const {
  const AddedToken* longest = nullptr;
  auto begin = candidates.begin();
  auto end = candidates.end();
  // Byte by byte: those that begin as the text does stand together, the ones
  // that go no further first.
  for (size_t depth = 0; begin != end; ++depth) {
    if (end - begin == 1) {
      const AddedToken& last = tokens_[*begin];
      return absl::StartsWith(text, last.sought) ? &last : longest;
    }
    const auto longer = std::partition_point(begin, end, [&](size_t index) {
      return tokens_[index].sought.size() == depth;
    });
    if (longer != begin) longest = &tokens_[*begin];
    if (depth == text.size()) break;
    const auto next = static_cast<uint8_t>(text[depth]);
    const auto byte_of = [&](size_t index) {
      return static_cast<uint8_t>(tokens_[index].sought[depth]);
    };
    begin = std::partition_point(
        longer, end, [&](size_t index) { return byte_of(index) < next; });
    end = std::partition_point(
        begin, end, [&](size_t index) { return byte_of(index) == next; });
  }
  return longest;
}

std::vector<AddedTokens::Piece> AddedTokens::Split(absl::string_view text,
                                                   bool normalized) const {
  std::vector<Piece> pieces;
  const auto& table = by_first_byte_[normalized ? 1 : 0];
  size_t start = 0;
  for (size_t i = 0; i < text.size();) {
    const AddedToken* match =
        FindLongest(text.substr(i), table[static_cast<uint8_t>(text[i])]);
    if (match == nullptr) {
      ++i;
      continue;
    }
    if (splits_special_ && match->special) {
      // As in `tokenizers`: no other token is looked for within it.
      i += match->sought.size();
      continue;
    }
    if (i > start) pieces.push_back({text.substr(start, i - start)});
    pieces.push_back({text.substr(i, match->sought.size()), match->id});
    i += match->sought.size();
    start = i;
  }
  if (start < text.size()) pieces.push_back({text.substr(start)});
  return pieces;
}

}  // namespace dapd
