// A data set as `save_to_disk` of the library `datasets` writes it:
//
//   state.json, dataset_info.json, data-00000-of-00002.arrow, ...   one split
//   dataset_dict.json, train/state.json, test/state.json, ...       several
#pragma once

#include <vector>

#include "absl/status/statusor.h"

#include "common/data/data_folder.h"
#include "common/data/data_splits.h"

namespace dapd {

// Its splits, with the files that each state.json lists, in its order; the
// split of a folder without dataset_dict.json is called train. Empty if the
// folder is no such one. An error (exit code of the data) for a list that
// cannot be read, leads elsewhere, or names files that are not there.
absl::StatusOr<std::vector<DataSplit>> SplitsOfSaved(const DataFolder& folder);

}  // namespace dapd
