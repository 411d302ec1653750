// The control groups that limit this process, for example of a container, a
// Slurm job or a systemd unit. Version 2 has one hierarchy; version 1 has one
// for each controller, and a machine may have a controller in either version.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dapd {

struct ControlGroup {
  std::string folder;
  bool is_v1 = false;  // then its files have other names
};

// Returns the groups of a controller ("memory", "cpu", "pids") that contain
// this process: its own group and the groups around it, from the inside out. A
// container that knows its path on the host sees itself as the last one. Some
// of the folders may not exist. `root` is the folder that holds proc and sys;
// only tests use another one than "/".
std::vector<ControlGroup> ControlGroups(const std::string& controller,
                                        const std::string& root);

// Returns the number in a file of a group; nothing for "max" and for a missing
// file.
std::optional<int64_t> ReadGroupNumber(const ControlGroup& group,
                                       const std::string& file);

}  // namespace dapd
