#include "common/terms/payload.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace dapd {
namespace {

// The names are indexed by Payload.
constexpr std::array<const char*, 3> kPayloadNames = {
    "hidden_states", "logits", "top_k"};

}  // namespace

absl::StatusOr<Payload> ParsePayload(const std::string& name) {
  for (size_t i = 0; i < kPayloadNames.size(); ++i) {
    if (name == kPayloadNames[i]) return static_cast<Payload>(i);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'",
                   name,
                   "' is not a payload; the payloads are ",
                   absl::StrJoin(kPayloadNames, ", ")));
}

}  // namespace dapd
