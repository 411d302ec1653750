// RunCut: a run folder at one moment, kept readable while training goes on.
// Files that may be replaced or removed are linked into a folder of their own;
// for files that only grow, the cut keeps the length.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

struct CutFile {
  std::string name;  // in the run folder
  std::string path;  // whose first `bytes` bytes do not change
  int64_t bytes = 0;
  bool grows = false;      // it may get longer
  bool is_linked = false;  // it lives as long as the cut
};

struct RunCut {
  int64_t step = 0;  // of its checkpoint
  std::string links;
  std::vector<CutFile> files;
};

// Cuts the run in `folder`, with everything that a resume and a reader need:
// the checkpoint of `step`, configuration, evaluations, adapters, records and
// samples up to the step and, if they exist, summary and report. Costs a hard
// link for each file that may be replaced (a copy on a file system without
// links), and a look at the others. Returns NOT_FOUND if there is no such
// checkpoint; an error also if a folder cannot be listed. Call it from the
// thread that writes the folder.
absl::StatusOr<RunCut> CutRun(const std::string& folder, int64_t step);

// Returns whether links of the cut were removed, so that it can no longer be
// copied.
bool IsGone(const RunCut& cut);

// Removes the cut's links.
void DropCut(const RunCut& cut);

// Removes the cuts that an earlier process left.
void DropAllCuts(const std::string& folder);

}  // namespace dapd
