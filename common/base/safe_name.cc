#include "common/base/safe_name.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace dapd {
namespace {

constexpr size_t kMaxBytes = 128;

bool IsSafe(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
         c == '_' || c == '-';
}

}  // namespace

bool IsSafeName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxBytes && name[0] != '.' &&
         name[0] != '-' && std::all_of(name.begin(), name.end(), IsSafe);
}

}  // namespace dapd
