// A file that names workers, so that workers can join and leave a running run:
// one "host:port" a line. A # begins a comment; blank lines and repetitions
// have no effect.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

// Returns the addresses in a file's `text`, in its order. INVALID_ARGUMENT
// names `path`, the first bad line and its error. A file without any address is
// valid: there are no workers.
absl::StatusOr<std::vector<std::string>> ParseAddressFile(
    const std::string& path, absl::string_view text);

// Returns the addresses in the file `path`; NOT_FOUND or the system's error if
// it cannot be read.
absl::StatusOr<std::vector<std::string>> ReadAddressFile(
    const std::string& path);

// An address file that is read again at every call. To add a line, append it;
// to remove a line, write a new file and rename it. Not thread-safe.
class AddressFile {
 public:
  explicit AddressFile(std::string path) : path_(std::move(path)) {}

  // Returns the current addresses. If the file is missing, unreadable or has a
  // mistake, the list is the last good list, and one warning says so; the error
  // if there was no good list.
  absl::StatusOr<std::vector<std::string>> Read();

 private:
  const std::string path_;
  bool was_good_ = false;
  std::vector<std::string> last_good_;
  std::string last_problem_;  // in the last warning; empty: the file is good
};

}  // namespace dapd
