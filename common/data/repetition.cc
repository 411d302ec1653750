#include "common/data/repetition.h"

#include <algorithm>

namespace dapd {
namespace {

constexpr size_t kMaxBlock = 512;
constexpr size_t kCopies = 4;
constexpr size_t kMinTokens = 64;

}  // namespace

bool EndsInRepetition(std::span<const int32_t> ids) {
  const size_t longest = std::min(kMaxBlock, ids.size() / kCopies);
  for (size_t block = 1; block <= longest; ++block) {
    const size_t needed = std::max(kCopies * block, kMinTokens);
    if (needed > ids.size()) continue;
    // Checks that every token behind the first copy equals the token one block
    // earlier.
    const std::span<const int32_t> end = ids.last(needed);
    if (std::equal(end.begin() + static_cast<std::ptrdiff_t>(block),
                   end.end(),
                   end.begin())) {
      return true;
    }
  }
  return false;
}

}  // namespace dapd
