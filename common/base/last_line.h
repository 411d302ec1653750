// The end of a file that grows line by line, without its beginning.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace dapd {

// The last line of `path` that has its '\n', without it: behind that a line is
// being written, or was cut off by a crash. Empty if there is none. NOT_FOUND
// without the file; INVALID_ARGUMENT if the line is not within the last
// `max_bytes` bytes, of which no more are read.
absl::StatusOr<std::string> ReadLastLine(const std::string& path,
                                         uint64_t max_bytes);

}  // namespace dapd
