#include "common/generation/decode_request.h"

namespace dapd {

absl::string_view NameOf(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "";
    case FinishReason::kEos:
      return "eos";
    case FinishReason::kLength:
      return "length";
  }
  return "";
}

std::optional<FinishReason> FinishReasonOf(absl::string_view name) {
  for (const FinishReason reason :
       {FinishReason::kEos, FinishReason::kLength}) {
    if (name == NameOf(reason)) return reason;
  }
  return std::nullopt;
}

MemoryCost& MemoryCost::operator+=(const MemoryCost& other) {
  recomputed_tokens += other.recomputed_tokens;
  swaps += other.swaps;
  swapped_bytes += other.swapped_bytes;
  return *this;
}

std::span<const int32_t> WithoutEndToken(std::span<const int32_t> ids,
                                         FinishReason reason) {
  if (reason != FinishReason::kEos || ids.empty()) return ids;
  return ids.first(ids.size() - 1);
}

}  // namespace dapd
