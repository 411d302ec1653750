// A benchmark's C++ side: a process that prepares once and then runs a round
// each time the driver (duel.py) asks, so that it and its peer can take turns.
//
// Protocol: one JSON object a line. After preparing it prints {"ready": true,
// ...}; for every line on stdin it runs one round and prints that round's
// figures; end of input ends it.
#pragma once

#include <functional>
#include <iostream>
#include <string>

#include "common/base/json.h"

namespace dapd {

// `ready`: figures about the preparation. `round` gets the line that asked for
// it (empty for a plain round) and returns its figures; "seconds" is the one
// that ratios are made of. Returns main's exit code.
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
