// Serves one HTTP client from its request to the end of its answer, with limits
// on bytes and time: the request line and headers have at most 8 KiB and arrive
// within 2 s of the connection (including a TLS handshake); the answer is sent
// within 10 s.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "common/metrics/http_transport.h"
#include "common/security/role.h"

namespace dapd {

// Not thread-safe.
class HttpConnection {
 public:
  // Returns the answer to a request; `roles` are granted by the client's
  // certificate.
  using Answer =
      std::function<std::string(const std::string& request, RoleSet roles)>;

  explicit HttpConnection(std::unique_ptr<HttpTransport> transport);

  pollfd ToPoll() const;
  // Reads or writes what is possible at once. Returns false when the connection
  // is over.
  bool Advance(const Answer& answer);
  bool IsOverdue() const;

 private:
  // The clock is monotonic: setting the system's clock must not end a
  // connection.
  using Clock = std::chrono::steady_clock;
  enum class State { kReading, kWriting, kDraining };

  bool Read(const Answer& answer);
  bool Write();
  bool Drain();
  void EnterState(State state, std::chrono::seconds timeout);

  const std::unique_ptr<HttpTransport> transport_;
  State state_ = State::kReading;
  std::string text_;  // the request, later the answer
  size_t done_ = 0;   // bytes written, or drained
  Clock::time_point deadline_;
};

}  // namespace dapd
