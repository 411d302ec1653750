// A webhook: the URL that is told of a run's end (run.notify_url), by one POST
// of a JSON document. libcurl does the work, and honours http_proxy,
// https_proxy, all_proxy and no_proxy of the environment, but for an address of
// this machine's loopback: a proxy elsewhere would look for it there.
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
  std::string header;   // "Name: value", sent along; empty: none. A secret.
  std::string ca_file;  // PEM; empty: the system's authorities
  absl::Duration timeout = absl::Seconds(10);  // of all attempts together
};

// What the section `run` says, its files read. Exit code kConfig, with the key
// and nothing of a secret, for a file that cannot be used: ReadSecretFile's
// errors, another number of lines than one, a header that is none, authorities
// of which none is there.
// `run.notify_url` must not be empty.
absl::StatusOr<Webhook> LoadWebhook(const RunConfig& run);

// Posts `json`. Up to three attempts, within the time-out, names resolved and
// hanging servers included: one that has taken the document may take all of it
// to answer. No redirection is followed, and what the server answers is not
// kept. OK once the server said 2xx; it may have got the document more than
// once, where an answer was lost. Otherwise an error that says where
// (NotifyPlace), by way of which proxy and why:
//   UNAVAILABLE        it cannot be reached, or said 408, 429 or 5xx
//   DEADLINE_EXCEEDED  the time is up
//   INVALID_ARGUMENT   it said anything else: no further attempt is made
//   CANCELLED          `gives_up`, asked about once a second, said so
// Ignores SIGPIPE from then on.
absl::Status PostJson(const Webhook& webhook,
                      const std::string& json,
                      const std::function<bool()>& gives_up);

}  // namespace dapd
