// How a teacher fills its passes: what it computes by
// (services/teacher/load_scorer.h) and its memory is planned by
// (scoring_memory.h).
#pragma once

#include <cstdint>

namespace dapd {

// Most rows of a pass on a CPU that takes more than one chunk.
inline constexpr int64_t kCpuScoringRows = 512;
// Rows of a pass on a GPU.
inline constexpr int64_t kGpuScoringRows = 4096;
// Requests that share passes, under one set of weights. Those of a trainer have
// some 6,000 tokens each: six of them leave a thirtieth of the rows of their
// passes unused, two a sixth.
inline constexpr int64_t kGpuScoringRequests = 6;
// Rows whose logits are there at once: 512 x 151,936 float32 are 297 MiB.
inline constexpr int64_t kCpuScoringHeadRows = 64;
inline constexpr int64_t kGpuScoringHeadRows = 512;

}  // namespace dapd
