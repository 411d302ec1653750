// AppendFile: a file that only grows, record by record, each whole before it
// counts, and on disk unless that is not asked for.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

// Not thread-safe.
class AppendFile {
 public:
  // Opens `path` for writing at its end, creating it if it is not there.
  static absl::StatusOr<AppendFile> Open(const std::string& path);
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&&) = delete;
  ~AppendFile();

  // All of `record`, synced, or nothing: what a failed call left of it is cut
  // off, at once or before the next record. RESOURCE_EXHAUSTED for a full disk;
  // the call can be repeated.
  absl::Status Append(absl::string_view record);
  // The same, but a machine that goes down may take it along.
  absl::Status AppendUnsynced(absl::string_view record);

  // Cuts the file at `size` bytes, at most its size.
  absl::Status Truncate(uint64_t size);

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }

 private:
  AppendFile(std::string path, int descriptor, uint64_t size);
  absl::Status Add(absl::string_view record, bool synced);
  absl::Status Sync();

  std::string path_;
  int descriptor_;
  uint64_t size_;      // of the whole records
  bool torn_ = false;  // more than size_ bytes may be in the file
};

}  // namespace dapd
