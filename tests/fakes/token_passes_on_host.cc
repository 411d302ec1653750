#include "tests/fakes/token_passes_on_host.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/kernels/cuda/divergence_kernel.h"
#include "common/objective/token_passes.h"

namespace dapd {
namespace {

int64_t tokens_at_a_time = 0;  // 0: the device has no such kernel
std::vector<int64_t> tokens_of_chunks;

// Runs the passes over float32 copies of the bfloat16 rows, and writes the
// students' gradients back.
void RunNarrow(const DivergenceChunk& chunk,
               int64_t tokens,
               DivergenceTokenSums* sums) {
  DivergenceChunk wide = chunk;
  std::vector<DivergenceSource> sources(chunk.sources.begin(),
                                        chunk.sources.end());
  std::vector<std::vector<float>> rows;
  for (DivergenceSource& source : sources) {
    if (!source.is_narrow) continue;
    const auto* narrow = reinterpret_cast<const at::BFloat16*>(source.logits);
    std::vector<float>& copy = rows.emplace_back();
    for (int64_t t = 0; t < tokens; ++t) {
      copy.insert(copy.end(),
                  narrow + t * source.stride,
                  narrow + t * source.stride + chunk.vocabulary);
    }
    source.logits = copy.data();
    source.stride = chunk.vocabulary;
  }
  wide.sources = sources;
  DivergenceTokens(wide, 0, tokens, sums);
  for (size_t s = 0; s < sources.size(); ++s) {
    const DivergenceSource& to = chunk.sources[s];
    if (!to.is_narrow || !to.is_student || !chunk.with_gradient) continue;
    for (int64_t t = 0; t < tokens; ++t) {
      const float* const from = sources[s].logits + t * chunk.vocabulary;
      std::copy_n(from,
                  chunk.vocabulary,
                  reinterpret_cast<at::BFloat16*>(to.logits) + t * to.stride);
    }
  }
}

// Rounds the students' gradients to bfloat16, in the first half of each row.
void RoundGradients(const DivergenceChunk& chunk, int64_t tokens) {
  for (const DivergenceSource& source : chunk.sources) {
    if (!source.is_student || source.is_narrow) continue;
    for (int64_t t = 0; t < tokens; ++t) {
      float* const row = source.logits + t * source.stride;
      auto* const rounded = reinterpret_cast<at::BFloat16*>(row);
      for (int64_t v = 0; v < chunk.vocabulary; ++v) {
        const float gradient = row[v];
        rounded[v] = gradient;
      }
    }
  }
}

}  // namespace

bool HasTokenPasses(at::Device device, const TokenPassCounts& counts) {
  if (device.is_cpu()) return true;
  return tokens_at_a_time > 0 && counts.sources <= kCudaMaxSources &&
         counts.derived <= kCudaMaxDerived && counts.terms <= kCudaMaxTerms &&
         counts.support <= kCudaMaxSupport;
}

int64_t TokenPassesAtATime(at::Device device,
                           const DivergenceChunk& /*chunk*/,
                           at::ScalarType /*gradient*/) {
  return device.is_cpu() ? 1 : tokens_at_a_time;
}

void RunTokenPasses(at::Device device,
                    const DivergenceChunk& chunk,
                    int64_t tokens,
                    at::ScalarType gradient,
                    DivergenceTokenSums* sums) {
  RunNarrow(chunk, tokens, sums);
  if (device.is_cpu()) return;
  tokens_of_chunks.push_back(tokens);
  if (chunk.with_gradient && gradient == at::kBFloat16) {
    RoundGradients(chunk, tokens);
  }
}

namespace fake {

SimulatedTokenPasses::SimulatedTokenPasses(int64_t at_a_time) {
  tokens_at_a_time = at_a_time;
  tokens_of_chunks.clear();
}

SimulatedTokenPasses::~SimulatedTokenPasses() { tokens_at_a_time = 0; }

std::vector<int64_t> SimulatedTokenPasses::TakeChunks() {
  return std::exchange(tokens_of_chunks, {});
}

}  // namespace fake
}  // namespace dapd
