// URLs that are posted to: of a run's end (run.notify_url) and of a grader
// (grader.url).
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

// The prefix of the path of a file that contains the URL.
inline constexpr char kUrlFilePrefix[] = "file://";

// Returns "https://host:port". A log or a message may show no other part of the
// URL, since paths and queries of webhooks are often secrets.
std::string NotifyPlace(absl::string_view url);

// Returns whether the URL names this machine by its loopback address, which no
// proxy reaches.
bool IsOnLoopback(absl::string_view url);

// Returns why nothing can be posted to `url` (http://... or https://...); empty
// if it is good. Refused are credentials in the URL, for which there is
// run.notify_secret_file, and, with `has_secret`, plain HTTP to another
// machine. The text repeats nothing of the URL.
std::string ProblemWithNotifyUrl(absl::string_view url, bool has_secret);

// Returns why no answers can be posted to grader.url; empty if it is good.
// Refuses what ProblemWithNotifyUrl refuses, for grader.secret_file.
std::string ProblemWithGraderUrl(absl::string_view url, bool has_secret);

}  // namespace dapd
