// AppendFile: a file that only grows, record by record. A record counts only
// once it is whole, and, unless the caller does without, once it is on disk.
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
  // Opens `path` for appending and creates it if it is missing.
  static absl::StatusOr<AppendFile> Open(const std::string& path);
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&&) = delete;
  ~AppendFile();

  // Appends and syncs all of `record`, or nothing: bytes that a failed call has
  // left are cut off, at once or before the next record. Returns
  // RESOURCE_EXHAUSTED for a full disk; the call can be repeated.
  absl::Status Append(absl::string_view record);
  // Appends without the sync: the record may be lost if the machine goes down.
  absl::Status AppendUnsynced(absl::string_view record);

  // Cuts the file off after `size` bytes, which is at most its size.
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
