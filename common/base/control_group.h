// The control groups that limit this process: of a container, a Slurm job, a
// systemd unit. Both versions are known: in v2 there is one hierarchy, in v1
// one for each controller, and a machine may have a controller in either.
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

// The groups of a controller ("memory", "cpu", "pids") that this process is in:
// its own and the ones around it, from the inside out; a container that is told
// its path outside sees itself as the last one. Not all need exist. `root`: the
// folder that holds proc and sys, "/" but in tests.
std::vector<ControlGroup> ControlGroups(const std::string& controller,
                                        const std::string& root);

// The number that a group's file holds; nothing for "max" and for a file that
// is not there.
std::optional<int64_t> ReadGroupNumber(const ControlGroup& group,
                                       const std::string& file);

}  // namespace dapd
