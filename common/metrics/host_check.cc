#include "common/metrics/host_check.h"

#include <arpa/inet.h>
#include <unistd.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace dapd {
namespace {

constexpr size_t kMaxNameBytes = 253;  // RFC 1035

// Turns "Name.:9103" into "name" and "[::1]:9103" into "::1"; empty if `host`
// is malformed.
std::string NameOf(absl::string_view host) {
  absl::string_view port;
  if (absl::StartsWith(host, "[")) {
    const size_t end = host.find(']');
    if (end == absl::string_view::npos) return "";
    port = host.substr(end + 1);
    host = host.substr(1, end - 1);
  } else if (const size_t colon = host.find(':');
             colon != absl::string_view::npos) {
    port = host.substr(colon);
    host = host.substr(0, colon);
  }
  if (!port.empty() && port[0] != ':') return "";
  for (const char c : port.substr(port.empty() ? 0 : 1)) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return "";
  }
  if (absl::EndsWith(host, ".")) host.remove_suffix(1);
  if (host.size() > kMaxNameBytes) return "";
  for (const char c : host) {
    // A zero byte would end the name early for inet_pton.
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-' &&
        c != '.' && c != '_' && c != ':') {
      return "";
    }
  }
  return absl::AsciiStrToLower(host);
}

bool IsIpAddress(const std::string& name) {
  in6_addr address = {};
  return ::inet_pton(AF_INET, name.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

std::string OwnName() {
  char name[kMaxNameBytes + 1] = {};
  ::gethostname(name, sizeof(name) - 1);
  return absl::AsciiStrToLower(name);
}

}  // namespace

bool IsTrustedHost(absl::string_view host,
                   const std::vector<std::string>& allowed) {
  const std::string name = NameOf(absl::StripAsciiWhitespace(host));
  if (name.empty()) return false;
  if (IsIpAddress(name) || name.find('.') == std::string::npos) return true;
  if (absl::EndsWith(name, ".localhost") || absl::EndsWith(name, ".svc") ||
      absl::EndsWith(name, ".svc.cluster.local") || name == OwnName()) {
    return true;
  }
  for (const std::string& other : allowed) {
    if (absl::EqualsIgnoreCase(name, other)) return true;
  }
  return false;
}

}  // namespace dapd
