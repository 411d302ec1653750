// Files that hold secrets: private keys and tokens. They are read only if
// nobody else can read them, and what they hold is never part of a message.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/mutex.h"

namespace dapd {

// The file's bytes. `key` is the configuration key that names it, for messages;
// the path is not repeated there, in case it is the secret itself. An error,
// exit code kConfig, unless the file is a regular one of at most 64 KiB that
//   belongs to this user and to nobody else (mode 0600 or less), or
//   belongs to root and to a group of this user (0640 or less): how Kubernetes
//   mounts a secret for a container without root.
absl::StatusOr<std::string> ReadSecretFile(const std::string& key,
                                           const std::string& path);

// A secret file that is followed: a change is seen within a second of the next
// Get. Thread-safe.
class SecretFile {
 public:
  using Bytes = std::shared_ptr<const std::string>;

  // Errors as ReadSecretFile.
  static absl::StatusOr<std::unique_ptr<SecretFile>> Open(
      const std::string& key, const std::string& path);

  // The newest contents. A file that has become unreadable keeps its last ones,
  // is logged, once per change, and is tried again every second.
  Bytes Get();

 private:
  SecretFile(std::string key, std::string path, Bytes bytes, std::string stamp);

  const std::string key_;
  const std::string path_;
  Mutex mutex_;
  Bytes bytes_ ABSL_GUARDED_BY(mutex_);
  std::string stamp_ ABSL_GUARDED_BY(mutex_);  // of bytes_
  // Of the version that could not be read.
  std::string logged_stamp_ ABSL_GUARDED_BY(mutex_);
  absl::Time looked_ ABSL_GUARDED_BY(mutex_);
};

// Tells one version of a file from another: inode, size and time of change.
// Empty if there is none.
std::string FileStamp(const std::string& path);

}  // namespace dapd
