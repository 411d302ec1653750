// How much room a run needs on a disk, and whether a file system has it.
#pragma once

#include <cstdint>
#include <string>

#include "common/config/config.h"
#include "common/model/spec/model_config.h"

namespace dapd {

struct RunRoom {
  int64_t bytes = 0;
  int64_t files = 0;  // inodes: files and folders
};

// The room for the adapters and checkpoints that a run has at the same time:
// those that checkpoint.keep leaves, and one being written; for an existing run
// only the latter. Answers and metrics, whose size depends on the answers'
// length, are not included.
RunRoom RoomOfRun(const Config& config, const ModelConfig& model);

// The folder, or the nearest one above it that exists.
std::string ExistingFolder(const std::string& folder);

// Empty if the file system of `folder`, which need not exist, has enough room
// for this user; otherwise says what is missing.
std::string WantOfRoom(const std::string& folder, const RunRoom& room);

}  // namespace dapd
