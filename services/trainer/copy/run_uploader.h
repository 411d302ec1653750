// RunUploader: brings cuts of a run (run_cut.h) to its copy at a URL
// (run_copy.h), and removes the copies that are no longer kept.
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

// Errors are those of ObjectStore, and:
//   FAILED_PRECONDITION  something else is at the URL; not if it is what a run
//                        left that was lost before its first commit
//   ABORTED              another process has begun to copy the run there
// Every call can be repeated after an error, and sends nothing twice that
// arrived. Not thread-safe.
class RunUploader {
 public:
  // `keep`: commits that stay, as checkpoint.keep; 0: all. Those of later steps
  // than any that was uploaded stay in any case: an earlier attempt's, which
  // the run has yet to reach. `store` must outlive it.
  RunUploader(ObjectStore* store,
              std::string run_id,
              std::string run_name,
              int64_t keep);

  // Makes the place its own and reads which commits there are; nothing once it
  // has succeeded.
  absl::Status Open();
  // The step of the newest commit; 0 if there is none.
  int64_t newest() const;
  // Of the commits up to the newest that was uploaded: those that `keep`
  // counts.
  std::set<int64_t> steps() const;

  // Sends what is not there yet, reads it back, then writes the commit. OK if
  // it is there with this very content.
  absl::Status Upload(const RunCut& cut);

  // Removes the commits that are not kept, then the objects that no commit
  // names: at once what a removed commit named, anything else, and what is
  // written half, after an hour.
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
  const std::string token_;  // this process's
  bool is_open_ = false;
  int64_t last_uploaded_ = 0;
  std::map<int64_t, RunCopy> commits_;  // by step
  std::set<std::string> released_;      // objects of commits that are gone
  std::set<int64_t> damaged_;           // steps whose commit cannot be read
  std::set<std::string> verified_;  // digests of objects that were read back
  std::map<std::string, KnownFile> files_;
};

}  // namespace dapd
