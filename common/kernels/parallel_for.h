// A loop whose iterations run on several threads.
#pragma once

#include <cstdint>

namespace dapd {

// Runs body(context, i) for i in [0, count) on up to `num_threads` threads of
// OpenMP, the same ones that LibTorch computes with. Which thread runs which i
// is not determined. `body` must not throw.
void ParallelRun(int num_threads,
                 int64_t count,
                 void (*body)(const void* context, int64_t i),
                 const void* context);

// The same for anything that is called with an int64_t.
template <typename Function>
void ParallelFor(int num_threads, int64_t count, const Function& function) {
  ParallelRun(
      num_threads,
      count,
      [](const void* context, int64_t i) {
        (*static_cast<const Function*>(context))(i);
      },
      &function);
}

}  // namespace dapd
