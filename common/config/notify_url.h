// The URL that a run's end is posted to (run.notify_url).
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

// In front of the path of a file that holds the URL.
inline constexpr char kUrlFilePrefix[] = "file://";

// "https://host:port" of the URL: all of it that a log or a message may say,
// since paths and queries of webhooks are often secrets.
std::string NotifyPlace(absl::string_view url);

// Whether the URL names this machine by its loopback, which no proxy leads to.
bool IsOnLoopback(absl::string_view url);

// Why nothing can be posted to `url`, which is http://... or https://... ;
// empty if it can. Refused: credentials in the URL (run.notify_secret_file is
// for them), and, `has_secret`, plain HTTP to another machine. Repeats nothing
// of the URL.
std::string ProblemWithNotifyUrl(absl::string_view url, bool has_secret);

}  // namespace dapd
