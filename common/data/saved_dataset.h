// Reads a data set that `save_to_disk` of the library `datasets` wrote:
//
//   state.json, dataset_info.json, data-00000-of-00002.arrow, ...   one split
//   dataset_dict.json, train/state.json, test/state.json, ...       several
#pragma once

#include <vector>

#include "absl/status/statusor.h"

#include "common/data/data_folder.h"
#include "common/data/data_splits.h"

namespace dapd {

// Returns the splits with the files that each state.json lists, in its order.
// The split of a folder without dataset_dict.json is called train. Returns no
// split if save_to_disk did not write the folder. A list is an error (exit code
// kData) if it cannot be read, leads out of the folder, or names missing files.
absl::StatusOr<std::vector<DataSplit>> SplitsOfSaved(const DataFolder& folder);

}  // namespace dapd
