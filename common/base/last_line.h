// Reads the last line of a file that grows line by line, without reading its
// beginning.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace dapd {

// Returns the last complete line of `path` without its newline. Bytes after the
// last newline belong to a line that is being written, or that a crash has cut
// off. Empty if there is no complete line. Returns NOT_FOUND if the file is
// missing; INVALID_ARGUMENT if the line does not lie within the last
// `max_bytes` bytes, which are all that is read.
absl::StatusOr<std::string> ReadLastLine(const std::string& path,
                                         uint64_t max_bytes);

}  // namespace dapd
