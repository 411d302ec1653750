// A loop whose iterations run on several threads.
#pragma once

#include <cstdint>

namespace dapd {

// Runs body(context, i) for i in [0, count) on up to `num_threads` threads. It
// is not determined which thread runs which i. If `body` throws (out of memory,
// for example), the first exception is thrown again here once all threads have
// left the loop; it is then not determined which other iterations ran.
//
// The threads are OpenMP's, the same that LibTorch computes with, which wait
// for each other by spinning. With OMP_WAIT_POLICY=PASSIVE in the environment,
// which says that other processes need the cores (services set it for
// themselves, common/base/passive_threads.cc), the threads of helper_threads.h
// are used instead.
void ParallelRun(int num_threads,
                 int64_t count,
                 void (*body)(const void* context, int64_t i),
                 const void* context);

// Calls ParallelRun with any function object that takes an int64_t.
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

// Returns how many of `num_threads` threads are worth waking for work that
// takes one thread about `nanoseconds`: each thread's share takes at least ten
// times as long as waking it. At least one.
int ThreadsWorth(int num_threads, double nanoseconds);

// Estimates the time that a core takes for `multiply_adds` multiplications with
// additions, when `bytes` of the operands come from memory.
double ProductNanoseconds(double multiply_adds, double bytes);

}  // namespace dapd
