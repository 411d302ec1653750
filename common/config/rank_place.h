// The place of a process among the trainer's ranks if several ranks run on a
// machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/load_config.h"

namespace dapd {

// With trainer.ranks_per_machine, sets trainer.ranks to the number of ranks on
// all machines and trainer.rank to the first rank of this machine. Returns
// contradictions in the form of FindContradictions.
std::vector<std::string> PlaceRanksByMachine(LoadedConfig* loaded);

// Returns the --set values that make a process rank `rank` of `ranks`, whatever
// the file and the environment say about machines.
std::vector<std::string> SettingsOfRank(int64_t ranks, int64_t rank);

}  // namespace dapd
