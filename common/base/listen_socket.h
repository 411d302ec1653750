// A TCP socket that listens, and why one cannot be had.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace dapd {

struct ListenSocket {
  int descriptor = -1;  // the caller's to close; does not block
  int port = 0;         // the one that it got, if 0 was asked for
};

// Listens on `host`, a name or an address; with `port` 0 on any.
//   INVALID_ARGUMENT  the host is none
//   UNAVAILABLE       "cannot listen on HOST:PORT: REASON; WHAT TO DO", by the
//                     system's reason: the port is in use, the address is not
//                     this machine's, the port needs a privilege, this process
//                     may have no more files open, ...
absl::StatusOr<ListenSocket> OpenListenSocket(const std::string& host,
                                              int port);

}  // namespace dapd
