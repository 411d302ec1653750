// The lines of `dapd check` on the folders that a run writes.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/model/spec/model_config.h"

namespace dapd {

// Returns a warning for each folder, the run's and one at checkpoint.copy_to,
// that this user could not write or create on this machine, or that has no room
// for the run (run_room.h). Creates nothing.
std::vector<std::string> OutputWarnings(const Config& config,
                                        const ModelConfig& model);

// Returns a warning if the run's folder on this machine holds another run,
// which names all differences except the base's weights; otherwise empty.
// `data_digest`: Dataset::digest of data.path.
std::string OtherRunWarning(const Config& config,
                            const std::string& data_digest);

}  // namespace dapd
