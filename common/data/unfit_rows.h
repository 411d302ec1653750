// UnfitRows: the rows of a data set that a run cannot use, as they are
// measured, and what becomes of them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/data/dataset.h"

namespace dapd {

// Not thread-safe.
class UnfitRows {
 public:
  // The next row. `description`: of one that does not fit.
  void Add(bool fits, const std::string& description);

  // Refuses them (exit code of the data) or leaves them out of `data`, whose
  // rows all have been added, as `on_bad_row` (data.on_bad_row) says, with a
  // warning; counts those in skipped_rows. Where nothing would be left they are
  // refused. The first few are named. `problem`: "cannot be trained: ...";
  // `advice`: what makes them fit.
  absl::Status Settle(const std::string& path,
                      const std::string& problem,
                      const std::string& advice,
                      const std::string& on_bad_row,
                      Dataset* data) const;

 private:
  std::vector<bool> fits_;
  size_t num_unfit_ = 0;
  std::string named_;
};

}  // namespace dapd
