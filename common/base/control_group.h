// The control groups (v2) that limit this process: of a container, a Slurm job,
// a systemd unit.
#pragma once

#include <string>
#include <vector>

namespace dapd {

// The folders of the group that this process is in and of those around it, from
// the inside out; a container that is told its path outside sees itself as the
// last one. Not all need exist. `root`: the folder that holds proc and sys, "/"
// but in tests.
std::vector<std::string> ControlGroups(const std::string& root);

}  // namespace dapd
