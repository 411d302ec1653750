// Replaces CUDA's header of this name (cuda_runtime.h): copies to shared memory
// that a thread starts and later waits for.
#pragma once

#include "tests/fakes/cuda/cuda_runtime.h"

inline void __pipeline_memcpy_async(void* to,
                                    const void* from,
                                    size_t bytes,
                                    const char* file = __builtin_FILE(),
                                    int line = __builtin_LINE()) {
  dapd::fake::CopyLater(to, from, bytes, {file, line});
}
inline void __pipeline_commit() { dapd::fake::CommitCopies(); }
// Waits for all commits but the last `prior`.
inline void __pipeline_wait_prior(size_t prior) {
  dapd::fake::WaitForCopies(prior);
}
