// What is answered to one HTTP/1.1 request: pure text to text, no sockets.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dapd {

struct HttpPage {
  std::string content_type = "text/plain; charset=utf-8";
  std::function<std::string()> body;  // called from the responder's thread
  // The Content-Security-Policy: what a browser may load from the page.
  std::string security_policy = "default-src 'none'; frame-ancestors 'none'";
  bool is_public = false;  // shown to whoever asks
};

enum class HttpAccess {
  kAllowed,
  kUnknown,    // it is not known who asks
  kForbidden,  // it is, and may not
};

// `request`: request line and headers, to the empty line that ends them.
// 400 for what is no HTTP/1 or has not exactly one Host (HTTP/1.0: at most
// one), 405 for anything but GET and HEAD, 421 for a Host that is not trusted
// (host_check.h), 404 with the known paths for another one. A query is ignored.
// `access`, if given, decides about all but public pages by the Authorization
// header (empty: none): 401 and 403; 400 for more than one such header.
std::string AnswerHttp(
    const std::string& request,
    const std::map<std::string, HttpPage>& pages,
    const std::vector<std::string>& allowed_hosts,
    const std::function<HttpAccess(absl::string_view authorization)>& access =
        {});

}  // namespace dapd
