// Check: ends the process with a message if an invariant of our own code is
// broken. Errors that input or other machines can cause are returned as an
// absl::Status instead.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace dapd {

inline void Check(bool condition,
                  const char* message,
                  const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (condition) return;
  std::fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, message);
  std::abort();
}

}  // namespace dapd
