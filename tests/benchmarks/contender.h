// A benchmark's C++ side: a process that prepares once and then runs a round
// each time the driver (duel.py) asks, so that the process and its peer can
// take turns.
//
// The protocol has one JSON object per line. After its preparation the process
// prints {"ready": true, ...}; for every line on stdin it runs one round and
// prints that round's figures; it ends at the end of its input.
#pragma once

#include <functional>
#include <iostream>
#include <string>

#include "common/base/json.h"

namespace dapd {

// `ready` has figures about the preparation. `round` gets the line that asked
// for it (empty for a plain round) and returns its figures; ratios are made of
// "seconds". Returns main's exit code.
inline int ServeRounds(
    nlohmann::json ready,
    const std::function<nlohmann::json(const std::string& request)>& round) {
  ready["ready"] = true;
  std::cout << ready.dump() << std::endl;
  std::string request;
  while (std::getline(std::cin, request)) {
    std::cout << round(request).dump() << std::endl;
  }
  return 0;
}

}  // namespace dapd
