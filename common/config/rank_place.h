// Which of the trainer's ranks a process is, where several run on a machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config/load_config.h"

namespace dapd {

// With trainer.ranks_per_machine, sets trainer.ranks to that of all machines
// and trainer.rank to the first one of this machine. What contradicts it is
// returned, as FindContradictions does.
std::vector<std::string> PlaceRanksByMachine(LoadedConfig* loaded);

// The --set values that make a process rank `rank` of `ranks` and nothing else,
// whatever file and environment say of machines.
std::vector<std::string> SettingsOfRank(int64_t ranks, int64_t rank);

}  // namespace dapd
