// Opens a listening TCP socket, with errors that say what to do.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace dapd {

struct ListenSocket {
  int descriptor = -1;  // the caller's to close; does not block
  int port = 0;         // the assigned port if 0 was asked for
};

// Listens on `host`, a name or an address. With `port` 0 the system chooses the
// port.
//   INVALID_ARGUMENT  `host` is not a valid host
//   UNAVAILABLE       "cannot listen on HOST:PORT: REASON; WHAT TO DO"; for
//                     example, the port is in use, or needs a privilege
absl::StatusOr<ListenSocket> OpenListenSocket(const std::string& host,
                                              int port);

}  // namespace dapd
