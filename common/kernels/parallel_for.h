// A loop whose iterations run on several threads.
#pragma once

#include <cstdint>

namespace dapd {

// Runs body(context, i) for i in [0, count) on up to `num_threads` threads.
// Which thread runs which i is not determined. What `body` throws, memory that
// is not to be had say, is thrown again here once all threads have left the
// loop, the first of several; which other iterations ran is not determined
// then.
//
// These are OpenMP's threads, the same ones that LibTorch computes with, and
// which wait for each other by spinning. With OMP_WAIT_POLICY=PASSIVE in the
// environment, which says that other processes want the cores (services set it
// for themselves, common/base/passive_threads.cc), they are those of
// helper_threads.h.
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

// How many of `num_threads` threads are worth waking for work that takes one of
// them about `nanoseconds`: each gets ten times what waking it costs. At least
// one.
int ThreadsWorth(int num_threads, double nanoseconds);

// What a core takes about for so many multiplications with additions, `bytes`
// of whose operands come from memory.
double ProductNanoseconds(double multiply_adds, double bytes);

}  // namespace dapd
