// UnfitRows collects the rows of a data set that a run cannot use, and then
// refuses or removes them.
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
  // Adds the next row. `description` describes a row that does not fit.
  void Add(bool fits, const std::string& description);

  // Handles the unfit rows of `data`; all of its rows must have been added. As
  // `on_bad_row` (data.on_bad_row) says, it returns an error (exit code kData),
  // or removes the rows, counts them in skipped_rows and logs a warning. It
  // returns the error also if no row would remain. The message names the first
  // few rows. `problem` is a text such as "cannot be trained: ..."; `advice`
  // says what makes the rows fit.
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
