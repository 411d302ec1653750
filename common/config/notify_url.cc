#include "common/config/notify_url.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/config/validate_config.h"

namespace dapd {
namespace {

constexpr absl::string_view kPlain = "http://";
constexpr absl::string_view kEncrypted = "https://";

struct UrlHead {
  absl::string_view scheme;     // with "://"
  absl::string_view authority;  // "host:port", credentials included
};

std::optional<UrlHead> SplitHead(absl::string_view url) {
  for (const absl::string_view scheme : {kPlain, kEncrypted}) {
    if (!absl::StartsWithIgnoreCase(url, scheme)) continue;
    const absl::string_view rest = url.substr(scheme.size());
    return UrlHead{scheme, rest.substr(0, rest.find_first_of("/?#"))};
  }
  return std::nullopt;
}

// Returns the host in "host", "host:port", "[v6]" or "[v6]:port"; empty for any
// other text.
std::string HostOf(absl::string_view authority) {
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.rfind(':');
  const bool has_port = colon != absl::string_view::npos &&
                        (bracket == absl::string_view::npos || colon > bracket);
  std::string host;
  int port = 0;
  return SplitAddress(
             has_port ? std::string(authority) : absl::StrCat(authority, ":80"),
             &host,
             &port) &&
                 port > 0
             ? host
             : "";
}

// Returns what is wrong with a URL that begins with `head` and whose secret is
// in the file that the key `secret_file` names.
std::string ProblemWithUrl(absl::string_view url,
                           const UrlHead& head,
                           bool has_secret,
                           absl::string_view secret_file) {
  // Parsers disagree about some characters, such as a backslash before the
  // host.
  if (!std::all_of(url.begin(), url.end(), [](char c) {
        return absl::ascii_isgraph(static_cast<unsigned char>(c)) &&
               !absl::StrContains("\"<>\\^`{|}", c);
      })) {
    return "has a space or a character that must be encoded in a URL";
  }
  if (absl::StrContains(head.authority, '@')) {
    return absl::StrCat("has credentials in it; put them into the file that ",
                        secret_file,
                        " names");
  }
  const std::string host = HostOf(head.authority);
  if (host.empty()) return "names no host, or an invalid port";
  if (has_secret && head.scheme == kPlain && !IsLoopback(host)) {
    return absl::StrCat("would send ",
                        secret_file,
                        " without encryption to another machine: use https://");
  }
  return "";
}

}  // namespace

std::string NotifyPlace(absl::string_view url) {
  const std::optional<UrlHead> head = SplitHead(url);
  if (!head.has_value()) return "its URL";
  const size_t at = head->authority.rfind('@');
  return absl::StrCat(head->scheme,
                      at == absl::string_view::npos
                          ? head->authority
                          : head->authority.substr(at + 1));
}

bool IsOnLoopback(absl::string_view url) {
  const std::optional<UrlHead> head = SplitHead(url);
  return head.has_value() && IsLoopback(HostOf(head->authority));
}

std::string ProblemWithNotifyUrl(absl::string_view url, bool has_secret) {
  const std::optional<UrlHead> head = SplitHead(url);
  if (!head.has_value()) {
    return "is neither a URL that begins with http:// or https:// nor file:// "
           "and the path of a file that contains one";
  }
  return ProblemWithUrl(url, *head, has_secret, "run.notify_secret_file");
}

std::string ProblemWithGraderUrl(absl::string_view url, bool has_secret) {
  const std::optional<UrlHead> head = SplitHead(url);
  if (!head.has_value()) {
    return "is no URL that begins with http:// or https://";
  }
  return ProblemWithUrl(url, *head, has_secret, "grader.secret_file");
}

}  // namespace dapd
