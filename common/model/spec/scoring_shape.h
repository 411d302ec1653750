// The sizes of a teacher's passes. services/teacher/load_scorer.h computes by
// these numbers, and scoring_memory.h plans memory by them.
#pragma once

#include <cstdint>

namespace dapd {

// The most rows of a pass on a CPU that takes more than one chunk.
inline constexpr int64_t kCpuScoringRows = 512;
// The most rows of a pass on a GPU.
inline constexpr int64_t kGpuScoringRows = 4096;
// The most requests that share passes, under one set of weights. A trainer's
// request has some 6,000 tokens: with six requests a thirtieth of the rows of
// their passes stays unused, with two a sixth.
inline constexpr int64_t kGpuScoringRequests = 6;
// The most rows whose logits are in memory at once: 512 x 151,936 float32 are
// 297 MiB.
inline constexpr int64_t kCpuScoringHeadRows = 64;
inline constexpr int64_t kGpuScoringHeadRows = 512;

}  // namespace dapd
