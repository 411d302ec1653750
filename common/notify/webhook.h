// A webhook is the URL that is told of a run's end (run.notify_url), by one
// POST of a JSON document (http_post.h).
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/config/config.h"

namespace dapd {

struct Webhook {
  std::string url;
  std::string header;   // "Name: value", sent with the request; may be empty. A
                        // secret.
  std::string ca_file;  // PEM; if empty, the system's authorities
  absl::Duration timeout = absl::Seconds(10);  // for all attempts together
};

// Returns the webhook of the section `run`, with its files read.
// `run.notify_url` must not be empty. Returns an error with exit code kConfig,
// which has the key and no part of a secret, for an unusable file:
// ReadSecretFile's errors, a file without exactly one line, an invalid header,
// or a file without certificate authorities.
absl::StatusOr<Webhook> LoadWebhook(const RunConfig& run);

// Posts `json` in up to three attempts within the timeout, which includes name
// resolution and hanging servers. A server that has taken the document may use
// all of the remaining time for its answer. Redirections are not followed, and
// the body of the answer is not kept. Returns OK after a 2xx answer; the server
// may have got the document more than once if an answer was lost. Otherwise
// returns an error with the place (NotifyPlace), the proxy and the reason:
//   UNAVAILABLE        the server cannot be reached, or said 408, 429 or 5xx
//   DEADLINE_EXCEEDED  the time is up
//   INVALID_ARGUMENT   the server said anything else: no further attempt
//   CANCELLED          `gives_up`, called about once a second, returned true
// The process ignores SIGPIPE from then on.
absl::Status PostJson(const Webhook& webhook,
                      const std::string& json,
                      const std::function<bool()>& gives_up);

}  // namespace dapd
