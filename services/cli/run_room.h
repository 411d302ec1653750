// How much room a run takes on a disk, and whether a file system has it.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/config.h"
#include "common/model/spec/model_config.h"

namespace dapd {

struct RunRoom {
  int64_t bytes = 0;
  int64_t files = 0;  // and folders: the inodes
};

// The room for the adapters and checkpoints that a run has at the same time:
// the ones that checkpoint.keep leaves, and one that is being written; for a
// run that is there already, the latter alone. Answers and metrics, which
// depend on how long answers are, come on top.
RunRoom RoomOfRun(const Config& config, const ModelConfig& model);

// The folder, or the nearest one above it that exists.
std::string ExistingFolder(const std::string& folder);

// Empty if the file system of `folder`, which need not exist, has the room for
// what this user may write; else what is missing.
std::string WantOfRoom(const std::string& folder, const RunRoom& room);

}  // namespace dapd
