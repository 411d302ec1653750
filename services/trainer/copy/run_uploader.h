// RunUploader: uploads cuts of a run (run_cut.h) to its copy at a URL
// (run_copy.h), and removes copies that are no longer kept.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/copy/object_store.h"
#include "common/copy/run_copy.h"
#include "services/trainer/copy/run_cut.h"

namespace dapd {

// Returns the errors of ObjectStore, and:
//   FAILED_PRECONDITION  something else is at the URL, unless a run that was
//                        lost before its first commit left it
//   ABORTED              another process has begun to copy the run there
// Every call can be repeated after an error, and sends nothing twice that
// arrived. Not thread-safe.
class RunUploader {
 public:
  // `keep`: commits to keep, like checkpoint.keep; 0: all. Commits of later
  // steps than the newest uploaded commit stay in any case: an earlier attempt
  // made them, and the run has yet to reach their steps. `store` must outlive
  // it.
  RunUploader(ObjectStore* store,
              std::string run_id,
              std::string run_name,
              int64_t keep);

  // Claims the URL and reads which commits exist; does nothing once it has
  // succeeded.
  absl::Status Open();
  // Returns the step of the newest commit; 0 if there is none.
  int64_t newest() const;
  // Returns the commits that `keep` counts, up to the newest uploaded commit.
  std::set<int64_t> steps() const;

  // Sends missing objects, reads them back, then writes the commit. Returns OK
  // if a commit with exactly this content is there.
  absl::Status Upload(const RunCut& cut);

  // Removes commits that are not kept, then objects that no commit names: the
  // objects of a removed commit at once, other objects and unfinished uploads
  // after an hour.
  absl::Status Thin();

 private:
  struct KnownFile {
    dev_t device = 0;
    ino_t inode = 0;
    timespec changed = {};
    std::vector<Content> parts;
  };

  absl::Status ReadOwner(bool* is_free);
  absl::Status StillOwner();
  void Release(const RunCopy& copy);
  absl::StatusOr<std::vector<Content>> PartsOf(const CutFile& file);
  absl::Status Send(const CutFile& file,
                    const std::vector<Content>& parts,
                    std::map<std::string, StoredObject>* present);

  ObjectStore& store_;
  const std::string run_id_;
  const std::string run_name_;
  const int64_t keep_;
  const std::string token_;  // of this process
  bool is_open_ = false;
  int64_t last_uploaded_ = 0;
  std::map<int64_t, RunCopy> commits_;  // by step
  std::set<std::string> released_;      // objects of commits that are gone
  std::set<int64_t> damaged_;           // steps whose commit cannot be read
  std::set<std::string> verified_;  // digests of objects that were read back
  std::map<std::string, KnownFile> files_;
};

}  // namespace dapd
