#include "common/tokenizer/added_tokens.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/json_integer.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/tokenizer/bpe.h"
#include "common/tokenizer/unicode_text.h"

namespace dapd {
namespace {

// Returns the last character of a text that is well-formed and not empty.
CodePoint LastCharacter(absl::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && !BeginsCharacter(text[begin])) --begin;
  const auto points = DecodeUtf8(text.substr(begin));
  return {points.ok() ? (*points)[0].value : -1, begin, text.size()};
}

CodePoint FirstCharacter(absl::string_view text) {
  size_t end = 1;
  while (end < text.size() && !BeginsCharacter(text[end])) ++end;
  const auto points = DecodeUtf8(text.substr(0, end));
  return {points.ok() ? (*points)[0].value : -1, 0, end};
}

bool EndsWithWord(absl::string_view text) {
  return !text.empty() && IsWordCharacter(LastCharacter(text).value);
}

bool StartsWithWord(absl::string_view text) {
  return !text.empty() && IsWordCharacter(FirstCharacter(text).value);
}

// Returns where the white space in front of `end` begins.
size_t BeforeSpace(absl::string_view text, size_t end) {
  while (end > 0) {
    const CodePoint last = LastCharacter(text.substr(0, end));
    if (!IsWhitespace(last.value)) break;
    end = last.begin;
  }
  return end;
}

// Returns where the white space that begins at `begin` ends.
size_t BehindSpace(absl::string_view text, size_t begin) {
  while (begin < text.size()) {
    const CodePoint first = FirstCharacter(text.substr(begin));
    if (!IsWhitespace(first.value)) break;
    begin += first.end;
  }
  return begin;
}

}  // namespace

absl::StatusOr<AddedTokens> AddedTokens::Parse(const nlohmann::json& json,
                                               const Normalizer& normalizer,
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
    token.sought = token.content;
    if (token.normalized) {
      RETURN_IF_ERROR(DecodeUtf8(token.content).status());
      ASSIGN_OR_RETURN(token.sought, normalizer.Apply(token.content));
      if (token.sought.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("added_tokens: the normalizer leaves nothing of '",
                         token.content,
                         "', which is marked as normalized"));
      }
    }
    token.lstrip = entry.value("lstrip", false);
    token.rstrip = entry.value("rstrip", false);
    token.single_word = entry.value("single_word", false);
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
  // Compares byte by byte: candidates with the same beginning stand together,
  // and the candidates that end here come first.
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
      // As in `tokenizers`, no other token is searched within this match.
      i += match->sought.size();
      continue;
    }
    size_t begin = i;
    size_t end = i + match->sought.size();
    i = end;
    if (match->single_word && (EndsWithWord(text.substr(0, begin)) ||
                               StartsWithWord(text.substr(end)))) {
      continue;
    }
    // The token before may have taken the white space already.
    if (match->lstrip) begin = std::max(BeforeSpace(text, begin), start);
    if (match->rstrip) end = BehindSpace(text, end);
    if (begin > start) pieces.push_back({text.substr(start, begin - start)});
    // As in `tokenizers`, a token of white space is found again although the
    // token before took that white space, unless nothing is left of it.
    if (begin < end) {
      pieces.push_back({text.substr(begin, end - begin), match->id});
    }
    start = end;
  }
  if (start < text.size()) pieces.push_back({text.substr(start)});
  return pieces;
}

}  // namespace dapd
