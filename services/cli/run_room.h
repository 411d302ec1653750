// Computes how much room a run needs on a disk, and checks whether a file
// system has it.
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

// Returns the room for the adapters and checkpoints that a run has at the same
// time: the checkpoints that checkpoint.keep leaves, and a checkpoint being
// written; for an existing run only the checkpoint being written. Answers and
// metrics, whose size depends on the answers' length, are not included.
RunRoom RoomOfRun(const Config& config, const ModelConfig& model);

// Returns the folder or its nearest existing ancestor.
std::string ExistingFolder(const std::string& folder);

// Returns an empty text if the file system of `folder`, which need not exist,
// has enough room for this user; otherwise a text that says what is missing.
std::string WantOfRoom(const std::string& folder, const RunRoom& room);

}  // namespace dapd
