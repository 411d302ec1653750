#include "common/notify/webhook.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"

#include "common/base/exit_code.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/config/notify_url.h"
#include "common/notify/http_post.h"

namespace dapd {
namespace {

constexpr int kAttempts = 3;
constexpr absl::Duration kFirstPause = absl::Milliseconds(200);
constexpr absl::Duration kLookInterval = absl::Milliseconds(50);

}  // namespace

absl::StatusOr<Webhook> LoadWebhook(const RunConfig& run) {
  Webhook webhook{.url = run.notify_url,
                  .ca_file = run.notify_ca_file,
                  .timeout = absl::Seconds(run.notify_timeout_seconds)};
  absl::string_view file = run.notify_url;
  if (absl::ConsumePrefix(&file, kUrlFilePrefix)) {
    ASSIGN_OR_RETURN(webhook.url,
                     ReadSecretLine("run.notify_url", std::string(file)));
    const std::string problem =
        ProblemWithNotifyUrl(webhook.url, !run.notify_secret_file.empty());
    if (!problem.empty()) {
      return ConfigError(
          absl::StrCat("run.notify_url: the file's content ", problem));
    }
  }
  ASSIGN_OR_RETURN(HttpTarget target,
                   LoadHttpTarget("run.notify_",
                                  webhook.url,
                                  run.notify_secret_file,
                                  run.notify_ca_file));
  webhook.header = std::move(target.header);
  return webhook;
}

absl::Status PostJson(const Webhook& webhook,
                      const std::string& json,
                      const std::function<bool()>& gives_up) {
  const HttpTarget target = {
      .url = webhook.url, .header = webhook.header, .ca_file = webhook.ca_file};
  const absl::Time deadline = SteadyNow() + webhook.timeout;
  absl::Status last = absl::DeadlineExceededError(
      absl::StrCat("no time left to reach ", NotifyPlace(webhook.url)));
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (gives_up()) return absl::CancelledError("abandoned");
    // A connection that cannot be made leaves time for further attempts. A
    // server that has the document may be slow, and is waited for: otherwise it
    // would get the document again.
    const absl::Duration left = deadline - SteadyNow();
    if (left <= absl::ZeroDuration()) break;
    last = PostOnce(target,
                    json,
                    {.connect_timeout = left / (kAttempts - attempt),
                     .timeout = left},
                    gives_up)
               .status();
    if (!IsPassingPostError(last)) return last;
    if (attempt + 1 == kAttempts) break;
    const absl::Time again =
        std::min(deadline, SteadyNow() + kFirstPause * (1 << attempt));
    while (SteadyNow() < again && !gives_up()) absl::SleepFor(kLookInterval);
  }
  return last;
}

}  // namespace dapd
