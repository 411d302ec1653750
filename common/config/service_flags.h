// The command line that all services share: CONFIG, --set, --listen, --version.
#pragma once

#include <string>
#include <vector>

#include "common/base/command_line.h"

namespace dapd {

struct ServiceFlags {
  std::string config;
  std::vector<std::string> overrides;  // key=value

  // --listen sets the key `listen_key`.
  void AddTo(CommandLine& line, const std::string& listen_key);
  // Returns the given overrides, followed by the override of --listen.
  std::vector<std::string> Overrides() const;

 private:
  std::string listen_;
  std::string listen_key_;
};

}  // namespace dapd
