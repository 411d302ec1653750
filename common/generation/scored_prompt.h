// The scored tokens of a prompt as a backend returns them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/generation/decode_backend.h"
#include "common/model/score_rows.h"

namespace dapd {

// Appends the tokens of `prompt` from the second on. `scores` are on the CPU
// and have at least one row for each; further rows are not read.
void AppendScoredPrompt(int64_t slot,
                        std::span<const int32_t> prompt,
                        const RowScores& scores,
                        std::vector<DecodedToken>* tokens);

}  // namespace dapd
