#include "services/trainer/record/end_notice.h"

#include <unistd.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/base/version.h"
#include "common/config/notify_url.h"
#include "common/config/run_folder.h"
#include "services/trainer/record/run_overview.h"

namespace dapd {
namespace {

using Json = nlohmann::ordered_json;

std::string HostName() {
  std::array<char, 256> name = {};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

bool IsHeldByAnother(const std::string& folder) {
  const auto is_held = IsHeld(folder);
  return is_held.ok() && *is_held;
}

// Returns whether an attempt has begun since to take the run to more steps. The
// end before that attempt is no news.
bool HasGoneOn(const std::string& folder) {
  const auto overview = ReadRunOverview(folder);
  return overview.ok() && overview->state != RunState::kFinished;
}

Json FiguresOf(const std::optional<EvaluationReport>& report) {
  return report.has_value() ? ToJson(*report) : Json();
}

// Returns the recorded outcome if this attempt left one that says more than
// `seen`.
RunOutcome OutcomeToTell(const std::string& folder,
                         const absl::Status& status,
                         absl::Time start) {
  RunOutcome seen = OutcomeOf(status);
  const std::optional<RunOutcome> recorded = ReadOutcomeSince(folder, start);
  if (recorded.has_value() && AddsNothing(seen, *recorded)) {
    seen.message = recorded->message;
  }
  return seen;
}

}  // namespace

std::string EndDocument(const RunConfig& run,
                        const RunOutcome& outcome,
                        double seconds) {
  // The figures of a folder that cannot be read, or does not exist yet, are
  // left out.
  const auto overview = ReadRunOverview(FolderOf(run));
  const RunOverview seen = overview.ok() ? *overview : RunOverview();
  const auto number = [&](int64_t value) {
    return seen.steps > 0 ? Json(value) : Json();
  };
  const Json document = {
      {"run", run.name},
      {"state", outcome.state},
      {"exit_code", outcome.exit_code},
      {"message", outcome.message},
      {"step", number(seen.step)},
      {"steps", number(seen.steps)},
      {"adapter_digest",
       seen.adapter_digest.empty() ? Json() : Json(seen.adapter_digest)},
      {"evaluation",
       {{"before", FiguresOf(seen.before)}, {"after", FiguresOf(seen.after)}}},
      {"seconds", seconds},
      {"host", HostName()},
      {"folder", FolderOf(run)},
      {"time",
       absl::FormatTime(
           "%Y-%m-%dT%H:%M:%SZ", outcome.time, absl::UTCTimeZone())},
      {"version", Version()}};
  // A folder's name may hold any bytes.
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

EndNotice::EndNotice(const RunConfig& run,
                     std::optional<Webhook> webhook,
                     std::function<bool()> gives_up)
    : run_(run),
      webhook_(std::move(webhook)),
      gives_up_(std::move(gives_up)),
      start_(absl::Now()),
      steady_start_(SteadyNow()) {}

absl::StatusOr<EndNotice> EndNotice::Create(const RunConfig& run,
                                            std::function<bool()> gives_up) {
  std::optional<Webhook> webhook;
  if (!run.notify_url.empty()) {
    ASSIGN_OR_RETURN(webhook, LoadWebhook(run));
  }
  return EndNotice(run, std::move(webhook), std::move(gives_up));
}

void EndNotice::Tell(const absl::Status& outcome) {
  if (!webhook_.has_value()) return;
  if (!outcome.ok() && IsHeldByAnother(FolderOf(run_))) return;
  const Webhook webhook = *std::exchange(webhook_, std::nullopt);
  const RunOutcome told = OutcomeToTell(FolderOf(run_), outcome, start_);
  const absl::Status posted = PostJson(
      webhook,
      EndDocument(
          run_, told, absl::ToDoubleSeconds(SteadyNow() - steady_start_)),
      gives_up_);
  if (posted.ok()) {
    LogInfo(absl::StrCat("notified ",
                         NotifyPlace(webhook.url),
                         " of the run's end: ",
                         told.state));
    return;
  }
  LogWarning(absl::StrCat(
      "no notice of the run's end could be sent (run.notify_url): ",
      std::string(posted.message())));
}

absl::Status TellIfUntold(const RunConfig& run,
                          std::function<bool()> gives_up) {
  const std::string folder = FolderOf(run);
  if (HasGoneOn(folder) || !RecordFinished(folder)) return absl::OkStatus();
  ASSIGN_OR_RETURN(EndNotice notice,
                   EndNotice::Create(run, std::move(gives_up)));
  notice.Tell(absl::OkStatus());
  return absl::OkStatus();
}

}  // namespace dapd
