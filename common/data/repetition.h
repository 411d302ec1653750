// Answers that run in circles.
#pragma once

#include <cstdint>
#include <span>

namespace dapd {

// Whether an answer ended in a loop: its last tokens are one block of 1 to 512
// tokens, at least four times in a row, over at least 64 tokens. What came
// before, and a last copy that is not whole, do not matter. The caller leaves
// out the end token (WithoutEndToken, common/generation/decode_request.h).
//
// A row of zeros or a list with a common beginning is shorter or differs; an
// answer that hits the length limit in a loop is found as long as its block is
// at most 512 tokens. O(512 T) for T tokens.
bool EndsInRepetition(std::span<const int32_t> ids);

}  // namespace dapd
