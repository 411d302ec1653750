// Detects answers that end in a loop.
#pragma once

#include <cstdint>
#include <span>

namespace dapd {

// Returns whether an answer ends in a loop: its last tokens repeat a block of 1
// to 512 tokens at least four times in a row, over at least 64 tokens. The
// tokens before the loop do not matter, and the last copy may be incomplete.
// The caller must remove the end token (WithoutEndToken,
// common/generation/decode_request.h).
//
// A row of zeros is shorter, and the entries of a list with a common beginning
// differ. An answer that reaches the length limit in a loop is found if its
// block has at most 512 tokens. Takes O(512 T) for T tokens.
bool EndsInRepetition(std::span<const int32_t> ids);

}  // namespace dapd
