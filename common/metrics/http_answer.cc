#include "common/metrics/http_answer.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "common/metrics/host_check.h"

namespace dapd {
namespace {

struct Request {
  std::string method;
  std::string path;
  bool has_version_1_0 = false;
  std::vector<std::string> hosts;
  std::vector<std::string> authorizations;
};

// Returns false if `text` does not begin with a request line of HTTP/1.
bool Parse(const std::string& text, Request* request) {
  const std::vector<std::string> lines =
      absl::StrSplit(text.substr(0, text.find("\r\n\r\n")), "\r\n");
  const std::vector<std::string> words = absl::StrSplit(lines[0], ' ');
  if (words.size() != 3 || !absl::StartsWith(words[2], "HTTP/1.")) return false;
  request->method = words[0];
  request->path = words[1].substr(0, words[1].find('?'));
  request->has_version_1_0 = words[2] == "HTTP/1.0";
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::pair<std::string, std::string> header =
        absl::StrSplit(lines[i], absl::MaxSplits(':', 1));
    if (absl::EqualsIgnoreCase(header.first, "host")) {
      request->hosts.emplace_back(absl::StripAsciiWhitespace(header.second));
    } else if (absl::EqualsIgnoreCase(header.first, "authorization")) {
      request->authorizations.emplace_back(
          absl::StripAsciiWhitespace(header.second));
    }
  }
  return true;
}

std::string Respond(const char* status,
                    const std::string& body,
                    const HttpPage& page = {},
                    bool head_only = false) {
  return absl::StrCat("HTTP/1.1 ",
                      status,
                      "\r\nContent-Type: ",
                      page.content_type,
                      "\r\nContent-Length: ",
                      body.size(),
                      "\r\nContent-Security-Policy: ",
                      page.security_policy,
                      "\r\nX-Content-Type-Options: nosniff"
                      "\r\nReferrer-Policy: no-referrer"
                      "\r\nCross-Origin-Resource-Policy: same-origin"
                      "\r\nCache-Control: no-store"
                      "\r\nConnection: close\r\n\r\n",
                      head_only ? "" : body);
}

}  // namespace

std::string AnswerHttp(
    const std::string& request_text,
    const std::map<std::string, HttpPage>& pages,
    const std::vector<std::string>& allowed_hosts,
    const std::function<HttpAccess(absl::string_view authorization)>& access) {
  Request request;
  if (!Parse(request_text, &request)) {
    return Respond("400 Bad Request", "bad request\n");
  }
  const size_t num_hosts = request.hosts.size();
  if (num_hosts > 1 || (num_hosts == 0 && !request.has_version_1_0)) {
    return Respond("400 Bad Request", "a request needs one Host header\n");
  }
  if (num_hosts == 1 && !IsTrustedHost(request.hosts[0], allowed_hosts)) {
    return Respond("421 Misdirected Request",
                   "this host name is not known here; use the address, or add "
                   "the name to metrics.allowed_hosts\n");
  }
  const bool head_only = request.method == "HEAD";
  if (request.method != "GET" && !head_only) {
    return Respond("405 Method Not Allowed\r\nAllow: GET, HEAD", "only GET\n");
  }
  if (request.authorizations.size() > 1) {
    return Respond("400 Bad Request", "more than one Authorization header\n");
  }
  const auto page = pages.find(request.path);
  const bool is_public = page != pages.end() && page->second.is_public;
  if (access && !is_public) {
    switch (access(
        request.authorizations.empty() ? "" : request.authorizations.front())) {
      case HttpAccess::kAllowed:
        break;
      case HttpAccess::kUnknown:
        return Respond("401 Unauthorized\r\nWWW-Authenticate: Bearer",
                       "a certificate or a bearer token is needed\n");
      case HttpAccess::kForbidden:
        return Respond("403 Forbidden", "this role may not read this page\n");
    }
  }
  if (page == pages.end()) {
    std::string known = "not found; the pages are:\n";
    for (const auto& [name, unused] : pages)
      absl::StrAppend(&known, name, "\n");
    return Respond("404 Not Found", known, {}, head_only);
  }
  return Respond("200 OK", page->second.body(), page->second, head_only);
}

}  // namespace dapd
