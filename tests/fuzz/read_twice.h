// Reads a data file, which must be refused or read in the same way each time.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "common/base/check.h"
#include "common/base/utf8.h"
#include "common/data/dataset.h"

namespace dapd {

// Returns the rows, or an error for a file that is refused.
inline absl::StatusOr<Dataset> ReadTwice(const std::string& path) {
  const DatasetOptions options = {.on_bad_row = OnBadRow::kFail};
  absl::StatusOr<Dataset> first = ReadDataset(path, options);
  const absl::StatusOr<Dataset> second = ReadDataset(path, options);
  Check(first.ok() == second.ok(), "a file is read or refused each time");
  if (!first.ok()) return first;
  Check(!first->problems.empty(), "an accepted file has rows");
  Check(first->digest == second->digest, "rows are the same each time");
  return first;
}

// Does the same for a format that does not promise UTF-8 itself: a file that is
// not refused has only texts in UTF-8.
inline void ReadTextsTwice(const std::string& path) {
  const absl::StatusOr<Dataset> data = ReadTwice(path);
  if (!data.ok()) return;
  for (const Problem& problem : data->problems) {
    for (const std::string* text :
         {&problem.id, &problem.problem, &problem.solution, &problem.answer}) {
      Check(IsUtf8(*text), "accepted texts are UTF-8");
    }
  }
}

}  // namespace dapd
