// Names to addresses: one name may stand for many workers (a Compose service,
// a headless Kubernetes service).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dapd {

struct HostPort {
  std::string host;  // without brackets
  int port = 0;
};
// Parses "host:port", "1.2.3.4:80" or "[::1]:80"; INVALID_ARGUMENT otherwise.
absl::StatusOr<HostPort> ParseHostPort(const std::string& address);
// Is the inverse of ParseHostPort; an IPv6 host gets its brackets.
std::string JoinHostPort(const std::string& host, int port);

// Returns whether the endpoint "ip:port" has an IPv6 address.
bool IsIpv6(const std::string& endpoint);

// "host:port" -> "ip:port" for each address the host has now, sorted, without
// repetitions. May block for as long as the system's resolver does.
using AddressResolver = std::function<absl::StatusOr<std::vector<std::string>>(
    const std::string& address)>;

// Returns a `resolver` that returns CANCELLED soon after `gives_up` becomes
// true. A look-up cannot be interrupted, so it runs on its own thread, which is
// then left behind. `resolver` must own everything that it uses, and be
// thread-safe.
AddressResolver Abandonable(AddressResolver resolver,
                            std::function<bool()> gives_up);

// Asks the system's resolver (getaddrinfo, TCP, all A and AAAA records). A
// failure is UNAVAILABLE and names the address and the system's reason.
absl::StatusOr<std::vector<std::string>> ResolveAddress(
    const std::string& address);

}  // namespace dapd
