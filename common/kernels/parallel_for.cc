#include "common/kernels/parallel_for.h"

#include <algorithm>

namespace dapd {
namespace {
// Pieces a thread: few, for long streams; several, so that a thread that was
// held up leaves its share to the others.
constexpr int64_t kPieces = 8;
}  // namespace

void ParallelRun(int num_threads,
                 int64_t count,
                 void (*body)(const void* context, int64_t i),
                 const void* context) {
  if (num_threads <= 1 || count <= 1) {
    for (int64_t i = 0; i < count; ++i) body(context, i);
    return;
  }
  const int64_t piece = std::max<int64_t>(1, count / (num_threads * kPieces));
#pragma omp parallel for num_threads(num_threads) schedule(dynamic, piece)
  for (int64_t i = 0; i < count; ++i) body(context, i);
}

}  // namespace dapd
