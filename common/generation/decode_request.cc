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

std::span<const int32_t> WithoutEndToken(std::span<const int32_t> ids,
                                         FinishReason reason) {
  if (reason != FinishReason::kEos || ids.empty()) return ids;
  return ids.first(ids.size() - 1);
}

}  // namespace dapd
