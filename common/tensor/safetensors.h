// Reads and writes safetensors (https://github.com/huggingface/safetensors): an
// 8-byte little-endian header length, a JSON header, then the tensors' bytes,
// contiguous and in the order of their offsets.
//
// The reader is strict. The header has at most 16 MiB and fits into the file;
// only space padding follows the JSON; names are unique; there are at most
// 100,000 tensors of rank at most 8; offsets are sorted and contiguous from 0
// to the file's end, without holes or overlaps; and shape * dtype equals every
// extent. Each error names the file and the tensor. Sizes are checked before
// allocation.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/shared_bytes.h"
#include "common/tensor/host_tensor.h"

namespace dapd {

struct SafetensorsEntry {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // byte offsets from the end of the header
  uint64_t end = 0;
};

// Represents an open file. Thread-safe: reads use pread.
class SafetensorsFile {
 public:
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);
  SafetensorsFile(SafetensorsFile&& other) noexcept;
  ~SafetensorsFile();

  const std::map<std::string, SafetensorsEntry>& entries() const {
    return entries_;
  }
  const std::map<std::string, std::string>& metadata() const {
    return metadata_;
  }
  // Returns NOT_FOUND for an unknown name; DATA_LOSS if the file has become
  // shorter.
  absl::StatusOr<HostTensor> Read(const std::string& name) const;

 private:
  SafetensorsFile() = default;
  std::string path_;
  int descriptor_ = -1;
  uint64_t data_start_ = 0;
  std::map<std::string, SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

using NamedTensors = std::vector<std::pair<std::string, HostTensor>>;

// Serialises tensors in the given order; names must be unique.
absl::StatusOr<std::string> SerializeSafetensors(
    const NamedTensors& tensors,
    const std::map<std::string, std::string>& metadata);

// Checks and parses bytes in memory, such as a received adapter, as
// SafetensorsFile does for a file. Every message begins with `where`. Copies
// the tensors.
absl::StatusOr<NamedTensors> ParseSafetensors(absl::string_view bytes,
                                              const std::string& where);
// Parses bytes as ParseSafetensors does, but tensors that are aligned as
// HostTensor requires share `bytes`. All tensors of SerializeSafetensors are
// aligned in this way if `bytes` is.
absl::StatusOr<NamedTensors> ShareSafetensors(const SharedBytes& bytes,
                                              const std::string& where);

// Writes the file aside, syncs and renames it; streams tensor by tensor.
absl::Status WriteSafetensors(
    const std::string& path,
    const NamedTensors& tensors,
    const std::map<std::string, std::string>& metadata);

}  // namespace dapd
