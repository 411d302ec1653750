// Computes the answer to one HTTP/1.1 request: from text to text, without
// sockets.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dapd {

struct HttpPage {
  std::string content_type = "text/plain; charset=utf-8";
  std::function<std::string()> body;  // called on the responder's thread
  // The Content-Security-Policy: what a browser may load for the page.
  std::string security_policy = "default-src 'none'; frame-ancestors 'none'";
  bool is_public = false;  // shown to everybody
};

enum class HttpAccess {
  kAllowed,
  kUnknown,    // the client is not authenticated
  kForbidden,  // the client is authenticated and has no access
};

// `request` is the request line and the headers, up to the empty line that ends
// them. A query is ignored. Errors are:
//   400  not HTTP/1, or not exactly one Host (HTTP/1.0: more than one), or
//        several Authorization headers
//   401  `access` returned kUnknown
//   403  `access` returned kForbidden
//   404  an unknown path; the answer lists the known paths
//   405  a method other than GET and HEAD
//   421  a Host that is not trusted (host_check.h)
// `access`, if given, is called with the Authorization header (empty without
// one), for all pages that are not public.
std::string AnswerHttp(
    const std::string& request,
    const std::map<std::string, HttpPage>& pages,
    const std::vector<std::string>& allowed_hosts,
    const std::function<HttpAccess(absl::string_view authorization)>& access =
        {});

}  // namespace dapd
