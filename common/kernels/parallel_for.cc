#include "common/kernels/parallel_for.h"

#include <strings.h>

#include <algorithm>
#include <cstdlib>

#include "common/kernels/helper_threads.h"

namespace dapd {
namespace {

// Pieces per thread. With few pieces each reads a long stream; with several, a
// thread that was interrupted leaves its share to the others.
constexpr int64_t kPieces = 8;

// Waking a thread that then sleeps again takes two system calls, an interrupt
// of another core and two switches: about 2 us, several times that on a virtual
// machine. A share of work must take ten times as long.
constexpr double kShareNanoseconds = 20000.0;

// Holds for AVX-512 and AVX2: a core reaches 50 to 100.
constexpr double kMultiplyAddsPerNanosecond = 50.0;
constexpr double kBytesPerNanosecond = 20.0;

bool CoresAreShared() {
  static const bool shared = [] {
    const char* policy = std::getenv("OMP_WAIT_POLICY");
    return policy != nullptr && ::strcasecmp(policy, "passive") == 0;
  }();
  return shared;
}

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
  if (CoresAreShared()) {
    const auto helpers =
        static_cast<int>(std::min<int64_t>(num_threads, count) - 1);
    HelperThreads::Instance().Run(helpers, count, piece, body, context);
    return;
  }
  LoopFailure failure;
#pragma omp parallel for num_threads(num_threads) schedule(dynamic, piece)
  for (int64_t i = 0; i < count; ++i) {
    try {
      body(context, i);
    } catch (...) {
      failure.Keep();
    }
  }
  failure.Rethrow();
}

int ThreadsWorth(int num_threads, double nanoseconds) {
  const double shares = nanoseconds / kShareNanoseconds;
  return shares >= num_threads ? num_threads
                               : std::max(1, static_cast<int>(shares));
}

double ProductNanoseconds(double multiply_adds, double bytes) {
  return std::max(multiply_adds / kMultiplyAddsPerNanosecond,
                  bytes / kBytesPerNanosecond);
}

}  // namespace dapd
