// Parses the header of a safetensors file with every check, and writes it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/tensor/safetensors.h"

namespace dapd {

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

inline constexpr uint64_t kSafetensorsPrefixBytes = 8;

// Returns the length of the JSON from the file's first 8 bytes, checked against
// `file_bytes` and the limit.
absl::StatusOr<uint64_t> ParseHeaderLength(absl::string_view prefix,
                                           uint64_t file_bytes,
                                           const std::string& where);

// `data_bytes` is the number of bytes after the header, which the tensors must
// fill exactly.
absl::StatusOr<SafetensorsHeader> ParseHeader(absl::string_view json,
                                              uint64_t data_bytes,
                                              const std::string& where);

// Holds a whole file in memory: its header, and the data behind it (a view into
// `bytes`).
struct SafetensorsParts {
  SafetensorsHeader header;
  absl::string_view data;
};
absl::StatusOr<SafetensorsParts> SplitSafetensors(absl::string_view bytes,
                                                  const std::string& where);

// Returns prefix and JSON, padded with spaces to a multiple of
// kTensorAlignment.
absl::StatusOr<std::string> FormatHeader(
    const NamedTensors& tensors,
    const std::map<std::string, std::string>& metadata);

}  // namespace dapd
