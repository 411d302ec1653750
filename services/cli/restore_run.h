// Brings a run back from its copy (common/copy/run_copy.h).
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

// Makes `folder` what the newest whole commit at `store` says, or that of
// `step` if it is not negative. Everything is written into "<folder>.restoring"
// and renamed once the digest of every file is that of the commit and the
// checkpoint is what its own manifest says; another call goes on with what an
// interrupted one left there. The outcome of a run that had finished says so
// (run_outcome.h), and nobody is told of its end again. With no `step`, a
// commit that cannot be restored is told about, and the newest other taken, one
// that came meanwhile included.
//   FAILED_PRECONDITION  `folder` is there
//   NOT_FOUND            no copy, or none of `step`; names what is there
//   DATA_LOSS            the copy is damaged
//   UNAVAILABLE          somebody else restores this folder; or as ObjectStore
absl::StatusOr<RestoredRun> RestoreRun(ObjectStore& store,
                                       const std::string& folder,
                                       int64_t step);

}  // namespace dapd
