// Restores a run from its copy (common/copy/run_copy.h).
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "common/copy/object_store.h"

namespace dapd {

struct RestoredRun {
  int64_t step = 0;
  int64_t files = 0;
  int64_t bytes = 0;
};

// Makes `folder` from the newest whole commit at `store`, or from the commit of
// `step` unless that is negative. Writes everything into "<folder>.restoring",
// which is renamed once every file has the commit's digest and the checkpoint
// matches its manifest; another call resumes an interrupted call. A finished
// run keeps its outcome (run_outcome.h), and its end is not told again. Without
// a `step`, a commit that cannot be restored is logged, and the newest other
// commit is used, even one that arrives meanwhile.
//   FAILED_PRECONDITION  `folder` exists
//   NOT_FOUND            no copy, or none of `step`; names the existing ones
//   DATA_LOSS            the copy is damaged
//   UNAVAILABLE          another process restores this folder; or as
//                        ObjectStore
absl::StatusOr<RestoredRun> RestoreRun(ObjectStore& store,
                                       const std::string& folder,
                                       int64_t step);

}  // namespace dapd
