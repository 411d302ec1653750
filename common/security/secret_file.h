// Reads files with secrets: private keys and tokens. A file is read only if
// nobody else can read it, and its content never becomes part of a message.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/mutex.h"

namespace dapd {

// Returns the file's bytes. `key` is the configuration key that names the file,
// for messages; they do not repeat the path, in case it is the secret itself.
// Returns an error with exit code kConfig unless the file is regular, has at
// most 64 KiB, and belongs either
// * to this user, and nobody else has access (mode 0600 or less), or
// * to root and a group of this user (mode 0640 or less), as Kubernetes mounts
//   a secret for a container without root.
absl::StatusOr<std::string> ReadSecretFile(const std::string& key,
                                           const std::string& path);

// Follows a secret file: the next Get sees a change within a second.
// Thread-safe.
class SecretFile {
 public:
  using Bytes = std::shared_ptr<const std::string>;

  // Returns ReadSecretFile's errors.
  static absl::StatusOr<std::unique_ptr<SecretFile>> Open(
      const std::string& key, const std::string& path);

  // Returns the newest content. If the file becomes unreadable, the last
  // content stays in effect; the error is logged once per change, and the file
  // is tried again every second.
  Bytes Get();

 private:
  SecretFile(std::string key, std::string path, Bytes bytes, std::string stamp);

  const std::string key_;
  const std::string path_;
  Mutex mutex_;
  Bytes bytes_ ABSL_GUARDED_BY(mutex_);
  std::string stamp_ ABSL_GUARDED_BY(mutex_);  // stamp of bytes_
  // Stamp of the version that could not be read.
  std::string logged_stamp_ ABSL_GUARDED_BY(mutex_);
  absl::Time looked_ ABSL_GUARDED_BY(mutex_);
};

// Returns a text that differs between versions of a file: inode, size and time
// of change; empty if there is no file.
std::string FileStamp(const std::string& path);

}  // namespace dapd
