#include "common/tokenizer/bpe.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/json_integer.h"
#include "common/base/status_macros.h"
#include "common/tokenizer/byte_alphabet.h"

namespace dapd {
namespace {

// Byte-level vocabularies lack a few bytes that their training text did not
// contain.
constexpr int kMaxMissingBytes = 64;

// Describes a candidate merge of the symbol at `position` with its right
// neighbour.
struct Candidate {
  int32_t rank = 0;
  int32_t position = 0;
  int32_t id = 0;
  bool operator>(const Candidate& other) const {
    return std::pair(rank, position) > std::pair(other.rank, other.position);
  }
};

struct Symbol {
  int32_t id = 0;
  int32_t previous = -1;
  int32_t next = -1;
  bool alive = true;
};

absl::Status RefuseModel(const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat("model: ", problem));
}

// Splits a merge, which is "a b" or ["a", "b"].
bool SplitMerge(const nlohmann::json& merge,
                std::string* left,
                std::string* right) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
      merge[1].is_string()) {
    *left = merge[0].get<std::string>();
    *right = merge[1].get<std::string>();
    return true;
  }
  if (!merge.is_string()) return false;
  const std::string text = merge.get<std::string>();
  const size_t space = text.find(' ');
  if (space == std::string::npos) return false;
  *left = text.substr(0, space);
  *right = text.substr(space + 1);
  return true;
}

}  // namespace

absl::StatusOr<Bpe> Bpe::Parse(const nlohmann::json& json) {
  if (!json.is_object() || json.value("type", "BPE") != "BPE") {
    return RefuseModel("type is not BPE");
  }
  for (const char* key : {"dropout",
                          "continuing_subword_prefix",
                          "end_of_word_suffix",
                          "byte_fallback",
                          "fuse_unk"}) {
    if (!json.contains(key)) continue;
    const nlohmann::json& value = json[key];
    if (!value.is_null() && value != "" && value != false && value != 0) {
      return RefuseModel(
          absl::StrCat(key, " = ", value.dump(), " is not supported"));
    }
  }
  Bpe bpe;
  bpe.ignore_merges_ = json.value("ignore_merges", false);
  if (!json.contains("vocab") || !json["vocab"].is_object() ||
      !json.contains("merges") || !json["merges"].is_array()) {
    return RefuseModel("vocab must be an object and merges a list");
  }
  for (const auto& [token, id] : json["vocab"].items()) {
    const auto number = JsonInteger(id, 0, kMaxTokenId);
    if (!number.ok()) {
      return RefuseModel(absl::StrCat("vocab: the id of '",
                                      token,
                                      "': ",
                                      std::string(number.status().message())));
    }
    bpe.vocabulary_[token] = static_cast<int32_t>(*number);
  }
  int32_t unknown = -1;
  if (json.contains("unk_token") && json["unk_token"].is_string()) {
    const auto found =
        bpe.vocabulary_.find(json["unk_token"].get<std::string>());
    if (found == bpe.vocabulary_.end()) {
      return RefuseModel(absl::StrCat(
          "unk_token ", json["unk_token"].dump(), " is not in vocab"));
    }
    unknown = found->second;
  }
  int missing = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = bpe.vocabulary_.find(
        ByteAlphabet::Get().Symbol(static_cast<uint8_t>(byte)));
    const bool known = found != bpe.vocabulary_.end();
    bpe.byte_ids_[byte] = known ? found->second : unknown;
    missing += known ? 0 : 1;
  }
  if (missing > kMaxMissingBytes) {
    return RefuseModel(absl::StrCat("vocab has no token for ",
                                    missing,
                                    " of the 256 bytes; is it a byte-level "
                                    "vocabulary?"));
  }
  RETURN_IF_ERROR(bpe.AddMerges(json["merges"]));
  return bpe;
}

absl::Status Bpe::AddMerges(const nlohmann::json& merges) {
  int32_t rank = 0;
  for (const nlohmann::json& merge : merges) {
    std::string left;
    std::string right;
    if (!SplitMerge(merge, &left, &right)) {
      return RefuseModel(
          absl::StrCat("merges[", rank, "] is ", merge.dump(), ", not a pair"));
    }
    for (const std::string& token : {left, right, left + right}) {
      if (!vocabulary_.contains(token)) {
        return RefuseModel(absl::StrCat(
            "merges[", rank, "] needs '", token, "', which is not in vocab"));
      }
    }
    // As in `tokenizers`, the last rank counts if a pair is listed twice.
    merges_[PairKey(vocabulary_[left], vocabulary_[right])] =
        Merge{rank, vocabulary_[left + right]};
    ++rank;
  }
  return absl::OkStatus();
}

std::vector<std::pair<int32_t, int32_t>> Bpe::Merges() const {
  std::vector<std::pair<int32_t, uint64_t>> ranked;  // rank and PairKey
  ranked.reserve(merges_.size());
  for (const auto& [key, merge] : merges_) ranked.emplace_back(merge.rank, key);
  std::ranges::sort(ranked);
  std::vector<std::pair<int32_t, int32_t>> pairs;
  pairs.reserve(ranked.size());
  for (const auto& [rank, key] : ranked) {
    pairs.emplace_back(static_cast<int32_t>(key >> 32),
                       static_cast<int32_t>(key & 0xffffffff));
  }
  return pairs;
}

void Bpe::Encode(absl::string_view word, std::vector<int32_t>* ids) const {
  if (ignore_merges_) {
    std::string token;
    for (const char c : word) {
      token += ByteAlphabet::Get().Symbol(static_cast<uint8_t>(c));
    }
    const auto found = vocabulary_.find(token);
    if (found != vocabulary_.end()) {
      ids->push_back(found->second);
      return;
    }
  }
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (const char c : word) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id < 0) continue;
    const auto index = static_cast<int32_t>(symbols.size());
    symbols.push_back({id, index - 1, index + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;

  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](int32_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    const auto found =
        merges_.find(PairKey(symbols[left].id, symbols[symbols[left].next].id));
    if (found != merges_.end()) {
      queue.push({found->second.rank, left, found->second.id});
    }
  };
  for (int32_t i = 0; i < static_cast<int32_t>(symbols.size()); ++i) {
    consider(i);
  }
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbols[top.position];
    if (!left.alive || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    // This candidate is stale: one of its symbols has been merged with another
    // symbol.
    const auto found = merges_.find(PairKey(left.id, right.id));
    if (found == merges_.end() || found->second.rank != top.rank) continue;
    left.id = top.id;
    right.alive = false;
    left.next = right.next;
    if (left.next >= 0) symbols[left.next].previous = top.position;
    consider(left.previous);
    consider(top.position);
  }
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    ids->push_back(symbols[i].id);
  }
}

}  // namespace dapd
