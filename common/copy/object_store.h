// ObjectStore: named objects at a URL that Python's fsspec reaches (a folder,
// s3://, gs://), by way of a helper process that may die or hang.
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

// object_store.py in the Python that FindPython finds, for the store at `url`.
// What the store asks for, credentials above all, it reads from the environment
// as fsspec's clients do.
std::vector<std::string> ObjectStoreCommand(const std::string& python,
                                            const std::string& url);

struct ObjectStoreOptions {
  std::string url;  // for messages
  std::vector<std::string> command;
  absl::Duration start_timeout = absl::Minutes(2);
  // How long the helper may be silent while it works.
  absl::Duration progress_timeout = absl::Minutes(2);
  // Asked several times a second: whether to give up what is under way.
  std::function<bool()> is_cancelled;
  // So many bytes were sent; may be empty.
  std::function<void(int64_t)> on_sent;
};

// Bytes by what they are: objects with the same content are the same.
struct Content {
  int64_t bytes = 0;
  std::string sha256;

  bool operator==(const Content&) const = default;
};

struct StoredObject {
  int64_t bytes = 0;
  // Since it was written, by the store's clock; nothing if it does not say.
  std::optional<absl::Duration> age;
};

// Every call starts the helper if it does not run, and ends it once it was
// silent or was denied what it asked for: the next one reads the credentials
// anew. Errors name the URL, the object and the reason:
//   UNAVAILABLE          the helper died, or the store could not be reached
//   DEADLINE_EXCEEDED    it was silent for too long
//   PERMISSION_DENIED    no credentials, or none that may do this
//   NOT_FOUND            there is no such object
//   DATA_LOSS            an object, or the file for it, is not what it should
//                        be
//   FAILED_PRECONDITION  there is no such bucket, no Python, or none with what
//                        the URL needs
//   RESOURCE_EXHAUSTED   a disk of this machine is full
//   CANCELLED            is_cancelled() said so
// Not thread-safe.
class ObjectStore {
 public:
  explicit ObjectStore(ObjectStoreOptions options);

  const std::string& url() const { return options_.url; }

  // Every object whose name begins with `folder`/, by name; all for "". Beside
  // those in a folder also files that are being written, or were by a helper
  // that was killed: "<name>.<process>.part".
  absl::StatusOr<std::map<std::string, StoredObject>> List(
      const std::string& folder);

  // A text of at most `max_bytes`, and of 64 MiB.
  absl::StatusOr<std::string> Read(const std::string& name, int64_t max_bytes);
  // Reads it back, too.
  absl::Status Write(const std::string& name, const std::string& text);

  // Makes `name` of the bytes of the file from `offset`, and reads the object
  // back. DATA_LOSS if the file no longer holds this content there.
  absl::Status Put(const std::string& name,
                   const Content& content,
                   const std::string& path,
                   int64_t offset);
  // Whether there is that object with this content, by reading it.
  absl::StatusOr<bool> Check(const std::string& name, const Content& content);
  // Writes the object into the file from `offset`, creating the file.
  absl::Status Get(const std::string& name,
                   const Content& content,
                   const std::string& path,
                   int64_t offset);
  // What is not there counts as removed.
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
