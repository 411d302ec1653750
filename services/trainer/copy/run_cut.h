// RunCut: a run folder as it is at one moment, kept readable while training
// goes on: what may be replaced or removed is linked into a folder of its own,
// of files that only grow the length counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

struct CutFile {
  std::string name;  // in the run folder
  std::string path;  // where its first `bytes` bytes stay what they are
  int64_t bytes = 0;
  bool grows = false;      // more may follow behind them
  bool is_linked = false;  // it is there as long as the cut
};

struct RunCut {
  int64_t step = 0;  // of its checkpoint
  std::string links;
  std::vector<CutFile> files;
};

// What a resume and a reader need of the run in `folder`: the checkpoint of
// `step`, configuration, evaluations, adapters, records and samples up to the
// step, and, where they are there, summary and report. Costs a hard link for
// each file that may go (a copy where the file system has no links), and looks
// at the others. NOT_FOUND if there is no such checkpoint; an error also where
// a folder does not show all that it holds. Call it from the thread that writes
// the folder.
absl::StatusOr<RunCut> CutRun(const std::string& folder, int64_t step);

// Whether somebody has removed links of the cut: nothing copies it any more.
bool IsGone(const RunCut& cut);

// Removes the cut's links.
void DropCut(const RunCut& cut);

// Removes those that an earlier process left.
void DropAllCuts(const std::string& folder);

}  // namespace dapd
