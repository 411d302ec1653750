#include "common/rpc/pool/address_resolver.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"

namespace dapd {
namespace {

// How often an abandonable look-up asks `gives_up`, and how long it may still
// take afterwards.
constexpr absl::Duration kGivesUpPoll = absl::Milliseconds(50);
constexpr absl::Duration kGivesUpGrace = absl::Milliseconds(500);

// The state that a look-up's thread shares with its caller.
struct LookUp {
  Mutex mutex;
  CondVar ended;
  std::optional<absl::StatusOr<std::vector<std::string>>> found
      ABSL_GUARDED_BY(mutex);
};

absl::Status BadAddress(const std::string& address, const char* why) {
  return absl::InvalidArgumentError(
      absl::StrCat("address '",
                   address,
                   "' ",
                   why,
                   "; write host:port, 1.2.3.4:port or [::1]:port"));
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return BadAddress(address, "has no port");
  HostPort result;
  result.host = address.substr(0, colon);
  if (result.host.size() > 2 && result.host.front() == '[' &&
      result.host.back() == ']') {
    result.host = result.host.substr(1, result.host.size() - 2);
  } else if (result.host.find(':') != std::string::npos) {
    return BadAddress(address, "has more than one ':'");
  }
  if (result.host.empty()) return BadAddress(address, "has no host");
  const std::string port = address.substr(colon + 1);
  if (!absl::SimpleAtoi(port, &result.port) || result.port < 0 ||
      result.port > 65535) {
    return BadAddress(address, "has no port from 0 to 65535");
  }
  return result;
}

std::string JoinHostPort(const std::string& host, int port) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? absl::StrCat("[", host, "]:", port)
                 : absl::StrCat(host, ":", port);
}

bool IsIpv6(const std::string& endpoint) { return endpoint.starts_with('['); }

AddressResolver Abandonable(AddressResolver resolver,
                            std::function<bool()> gives_up) {
  return [resolver = std::move(resolver),
          gives_up = std::move(gives_up)](const std::string& address)
             -> absl::StatusOr<std::vector<std::string>> {
    const absl::Status unwanted = absl::CancelledError(
        absl::StrCat("'", address, "' no longer needs to be resolved"));
    if (gives_up()) return unwanted;
    const auto look_up = std::make_shared<LookUp>();
    std::thread([look_up, resolver, address] {
      absl::StatusOr<std::vector<std::string>> found = resolver(address);
      MutexLock lock(&look_up->mutex);
      look_up->found = std::move(found);
      look_up->ended.NotifyAll();
    }).detach();
    absl::Time leaves = absl::InfiniteFuture();
    MutexLock lock(&look_up->mutex);
    while (!look_up->found.has_value()) {
      if (gives_up()) leaves = std::min(leaves, SteadyNow() + kGivesUpGrace);
      if (SteadyNow() >= leaves) return unwanted;
      look_up->ended.WaitFor(&look_up->mutex, kGivesUpPoll);
    }
    return *std::move(look_up->found);
  };
}

absl::StatusOr<std::vector<std::string>> ResolveAddress(
    const std::string& address) {
  ASSIGN_OR_RETURN(const HostPort target, ParseHostPort(address));
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(
      target.host.c_str(), std::to_string(target.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat(
        "cannot resolve '", target.host, "': ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found,
                                                                 freeaddrinfo);
  std::set<std::string> endpoints;
  for (const addrinfo* entry = found; entry != nullptr;
       entry = entry->ai_next) {
    char host[NI_MAXHOST];
    if (getnameinfo(entry->ai_addr,
                    entry->ai_addrlen,
                    host,
                    sizeof(host),
                    nullptr,
                    0,
                    NI_NUMERICHOST) == 0) {
      endpoints.insert(JoinHostPort(host, target.port));
    }
  }
  return std::vector<std::string>(endpoints.begin(), endpoints.end());
}

}  // namespace dapd
