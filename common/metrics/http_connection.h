// One HTTP client, from its request to the end of its answer, bounded in bytes
// and in time: request line and headers, at most 8 KiB, within 2 s of the
// connection (a TLS handshake included), the answer within 10 s.
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
  // The answer to a request whose client's certificate grants `roles`.
  using Answer =
      std::function<std::string(const std::string& request, RoleSet roles)>;

  explicit HttpConnection(std::unique_ptr<HttpTransport> transport);

  pollfd ToPoll() const;
  // Reads or writes what is possible at once. False when it is over.
  bool Advance(const Answer& answer);
  bool IsOverdue() const;

 private:
  // Monotonic: a clock that is set must not cut anybody off.
  using Clock = std::chrono::steady_clock;
  enum class State { kReading, kWriting, kDraining };

  bool Read(const Answer& answer);
  bool Write();
  bool Drain();
  void EnterState(State state, std::chrono::seconds timeout);

  const std::unique_ptr<HttpTransport> transport_;
  State state_ = State::kReading;
  std::string text_;  // the request, then the answer
  size_t done_ = 0;   // bytes written, or drained
  Clock::time_point deadline_;
};

}  // namespace dapd
