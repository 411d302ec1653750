// One POST of a JSON document over HTTP. libcurl does the work. It honours
// http_proxy, https_proxy, all_proxy and no_proxy of the environment, except
// for loopback addresses, which a proxy elsewhere would look up on its own
// machine.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace dapd {

struct HttpTarget {
  std::string url;
  std::string header;   // "Name: value", sent with the request; may be empty. A
                        // secret.
  std::string ca_file;  // PEM; if empty, the system's authorities
};

struct PostLimits {
  absl::Duration connect_timeout;
  absl::Duration timeout;  // of everything, name resolution included
  size_t max_answer_bytes = 64 << 10;
  // Whether the body of the answer is wanted. Otherwise the head of a 2xx
  // answer is enough: it says that the server has the document.
  bool keeps_answer = false;
};

// Posts `json` once; redirections are not followed. Returns the body of a 2xx
// answer, empty unless it is wanted. Otherwise returns an error with the place
// (NotifyPlace), the proxy and the reason:
//   UNAVAILABLE         the server cannot be reached, or said 408, 429 or 5xx;
//                       RetryAfterOf says when it wants to be asked again
//   DEADLINE_EXCEEDED   the time is up
//   RESOURCE_EXHAUSTED  the wanted body is too long
//   INVALID_ARGUMENT    the server said anything else
//   CANCELLED           `gives_up`, called about once a second, returned true
// The process ignores SIGPIPE from then on. Thread-safe.
absl::StatusOr<std::string> PostOnce(const HttpTarget& target,
                                     const std::string& json,
                                     const PostLimits& limits,
                                     const std::function<bool()>& gives_up);

// Returns whether PostOnce may succeed if it is called again: UNAVAILABLE and
// DEADLINE_EXCEEDED.
bool IsPassingPostError(const absl::Status& status);

// Returns how long the server asked to be left alone by the header Retry-After
// (RFC 9110, section 10.2.3), a number of seconds or a date, if it did.
std::optional<absl::Duration> RetryAfterOf(const absl::Status& status);

// The following functions read the files that configuration keys name. Their
// errors have the exit code kConfig, the name of the key and no part of a
// secret.

// Returns the only line of a secret file, without surrounding white space.
// Returns the errors of ReadSecretFile, and one for a file without exactly one
// line.
absl::StatusOr<std::string> ReadSecretLine(const std::string& key,
                                           const std::string& path);

// Returns the target with its files read; each path may be empty. `keys` begins
// the names of their keys: "grader." for grader.secret_file and grader.ca_file.
// The secret is a token, sent as "Authorization: Bearer", or a whole header.
// Returns the errors of ReadSecretLine, and errors for an invalid header and
// for a file without certificate authorities.
absl::StatusOr<HttpTarget> LoadHttpTarget(const std::string& keys,
                                          const std::string& url,
                                          const std::string& secret_file,
                                          const std::string& ca_file);

}  // namespace dapd
