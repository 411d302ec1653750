// Workers that a file names, so that some can join a running run and others
// leave it: one "host:port" a line; what follows a # is a comment, and blank
// lines and repetitions count for nothing.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dapd {

// The addresses in a file's `text`, in its order. INVALID_ARGUMENT names
// `path`, the first line that is no address, and what is wrong with it. A file
// without any address is none of the errors: then there are no workers.
absl::StatusOr<std::vector<std::string>> ParseAddressFile(
    const std::string& path, absl::string_view text);

// The same of the file itself; NOT_FOUND or the system's reason if there is no
// reading it.
absl::StatusOr<std::vector<std::string>> ReadAddressFile(
    const std::string& path);

// One such file, read again whenever it is asked for. Who adds a line may
// append it; who removes one should write the file aside and rename it. Not
// thread-safe.
class AddressFile {
 public:
  explicit AddressFile(std::string path) : path_(std::move(path)) {}

  // What the file says now. A file that is not there, cannot be read or has a
  // mistake in it changes nothing: the list is the last good one, and a warning
  // says so once. If there has been none, the error.
  absl::StatusOr<std::vector<std::string>> Read();

 private:
  const std::string path_;
  bool was_good_ = false;
  std::vector<std::string> last_good_;
  std::string last_problem_;  // the last warning's; empty: the file is good
};

}  // namespace dapd
