// Byte-pair encoding (Sennrich et al. 2016) over a byte-level vocabulary.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

// Far beyond every published vocabulary; tables of ids stay small below it.
constexpr int32_t kMaxTokenId = 1 << 24;

// Immutable; thread-safe.
class Bpe {
 public:
  // From the "model" of tokenizer.json. Merges are read in both spellings,
  // "a b" and ["a", "b"]. INVALID_ARGUMENT names what is wrong or unsupported.
  static absl::StatusOr<Bpe> Parse(const nlohmann::json& json);

  // Appends the ids of one word, given as its bytes. Merges apply in the order
  // of their rank, leftmost first; O(n log n). A byte that the vocabulary lacks
  // becomes the unknown token or, as in `tokenizers` without one, nothing.
  void Encode(absl::string_view word, std::vector<int32_t>* ids) const;

  // token -> id as written in the file.
  const std::unordered_map<std::string, int32_t>& vocabulary() const {
    return vocabulary_;
  }

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t id = 0;
  };
  static uint64_t PairKey(int32_t left, int32_t right) {
    return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) |
           static_cast<uint32_t>(right);
  }
  absl::Status AddMerges(const nlohmann::json& merges);

  std::unordered_map<std::string, int32_t> vocabulary_;
  std::unordered_map<uint64_t, Merge> merges_;
  int32_t byte_ids_[256] = {};
  bool ignore_merges_ = false;
};

}  // namespace dapd
