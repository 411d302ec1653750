#include "common/rpc/transfer/served_policy.h"

#include "absl/strings/str_cat.h"

namespace dapd {

std::string PolicyName(int64_t version, const std::string& digest) {
  constexpr size_t kShownDigits = 12;
  return absl::StrCat("version ",
                      version,
                      " (",
                      digest.empty() ? "base" : digest.substr(0, kShownDigits),
                      ")");
}

}  // namespace dapd
