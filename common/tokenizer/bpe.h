// Implements byte-pair encoding (Sennrich et al. 2016) over a byte-level
// vocabulary.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

// The limit is far beyond every published vocabulary, and keeps tables of ids
// small.
constexpr int32_t kMaxTokenId = 1 << 24;

// Immutable; thread-safe.
class Bpe {
 public:
  // Reads "model" of tokenizer.json. A merge is "a b" or ["a", "b"]. Returns
  // INVALID_ARGUMENT that names what is wrong or unsupported.
  static absl::StatusOr<Bpe> Parse(const nlohmann::json& json);

  // Appends the ids of a word, which is given as its bytes. Merges are applied
  // in the order of their rank, the leftmost first, in O(n log n). A byte that
  // the vocabulary lacks becomes the unknown token; without an unknown token it
  // is dropped, as in `tokenizers`.
  void Encode(absl::string_view word, std::vector<int32_t>* ids) const;

  // Returns the map token -> id as written in the file.
  const std::unordered_map<std::string, int32_t>& vocabulary() const {
    return vocabulary_;
  }
  // Returns the pairs of ids that are merged, in the order of their ranks.
  std::vector<std::pair<int32_t, int32_t>> Merges() const;

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
