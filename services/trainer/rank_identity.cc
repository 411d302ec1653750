#include "services/trainer/rank_identity.h"

#include "absl/strings/str_cat.h"

#include "common/base/sha256.h"

namespace dapd {

std::string RankIdentity(const RunIdentity& identity,
                         const std::string& version,
                         bool is_sharded,
                         bool is_insecure) {
  std::string text =
      absl::StrCat(identity.base_digest, "\n", identity.data_digest, "\n");
  for (const auto& [key, value] : identity.settings) {
    absl::StrAppend(&text, key, "=", value, "\n");
  }
  absl::StrAppend(&text, "version=", version, "\n");
  // No part of the result, but of how the ranks get there.
  if (is_sharded) absl::StrAppend(&text, "sharded\n");
  if (is_insecure) absl::StrAppend(&text, "insecure\n");
  return Sha256Hex(text);
}

}  // namespace dapd
