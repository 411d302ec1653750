// ObjectStore accesses named objects at a URL that Python's fsspec reaches (a
// folder, s3://, gs://), through a helper process that may die or hang.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/base/json.h"
#include "common/base/line_process.h"

namespace dapd {

// Returns the command of object_store.py, with the Python that FindPython
// finds, for the store at `url`. The helper reads credentials and other
// settings from the environment, as fsspec's clients do.
std::vector<std::string> ObjectStoreCommand(const std::string& python,
                                            const std::string& url);

struct ObjectStoreOptions {
  std::string url;  // for messages
  std::vector<std::string> command;
  absl::Duration start_timeout = absl::Minutes(2);
  // How long the helper may be silent while it works.
  absl::Duration progress_timeout = absl::Minutes(2);
  // This function is called several times a second and returns whether to give
  // up the current operation.
  std::function<bool()> is_cancelled;
  // This function is called with a number of bytes that were sent; it may be
  // empty.
  std::function<void(int64_t)> on_sent;
};

// Identifies bytes by their content: objects with equal Content are equal.
struct Content {
  int64_t bytes = 0;
  std::string sha256;

  bool operator==(const Content&) const = default;
};

struct StoredObject {
  int64_t bytes = 0;
  // Time since the object was written, by the store's clock; unset if the store
  // does not report it.
  std::optional<absl::Duration> age;
};

// Every call starts the helper if it does not run. A call ends the helper if it
// was silent for too long, or was denied access; the next helper reads the
// credentials again. Errors name the URL, the object and the reason:
//   UNAVAILABLE          the helper died, or the store could not be reached
//   DEADLINE_EXCEEDED    the helper was silent for too long
//   PERMISSION_DENIED    there are no credentials, or they do not suffice
//   NOT_FOUND            there is no such object
//   DATA_LOSS            an object, or the file for it, has other content than
//                        expected
//   FAILED_PRECONDITION  there is no such bucket, no Python, or no package that
//                        the URL needs
//   RESOURCE_EXHAUSTED   a disk of this machine is full
//   CANCELLED            is_cancelled() returned true
// Not thread-safe.
class ObjectStore {
 public:
  explicit ObjectStore(ObjectStoreOptions options);

  const std::string& url() const { return options_.url; }

  // Returns every object whose name begins with `folder`/, by name; all objects
  // for "". A store in a folder also lists files that are being written, or
  // that a killed helper left: "<name>.<process>.part".
  absl::StatusOr<std::map<std::string, StoredObject>> List(
      const std::string& folder);

  // Reads a text of at most `max_bytes`, and at most 64 MiB.
  absl::StatusOr<std::string> Read(const std::string& name, int64_t max_bytes);
  // Writes the text and reads it back.
  absl::Status Write(const std::string& name, const std::string& text);

  // Makes the object `name` from the bytes of the file from `offset`, and reads
  // the object back. Returns DATA_LOSS if the file no longer holds this content
  // there.
  absl::Status Put(const std::string& name,
                   const Content& content,
                   const std::string& path,
                   int64_t offset);
  // Reads the object; returns whether it exists and has this content.
  absl::StatusOr<bool> Check(const std::string& name, const Content& content);
  // Writes the object into the file from `offset`; creates the file.
  absl::Status Get(const std::string& name,
                   const Content& content,
                   const std::string& path,
                   int64_t offset);
  // A missing object counts as removed.
  absl::Status Remove(const std::vector<std::string>& names);

 private:
  absl::Status Start();
  absl::StatusOr<nlohmann::json> ReadLine(absl::Duration timeout);
  // Sends the question; calls `visit` for each answer up to the last.
  absl::Status Ask(
      const std::string& what,
      const nlohmann::json& question,
      const std::function<void(const nlohmann::json& answer)>& visit);

  const ObjectStoreOptions options_;
  LineProcess process_;
};

}  // namespace dapd
