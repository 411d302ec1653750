#include "services/cli/status_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace dapd {
namespace {

std::string Seconds(double seconds) {
  return absl::FormatDuration(
      absl::Trunc(absl::Seconds(seconds), absl::Milliseconds(100)));
}

std::string PolicyText(const v1::WorkerStatus& worker) {
  return worker.policy_version() < 0
             ? "no policy"
             : absl::StrCat("policy ", worker.policy_version());
}

}  // namespace

std::string StatusText(const v1::GetStatusResponse& status) {
  std::string text = absl::StrFormat(
      "run       %s (%s)\n"
      "phase     %s\n"
      "step      %d of %d, %s a step, %s left\n"
      "policy    version %d, digest %s, snapshot of step %d\n"
      "loss      %.6g   gradient norm %.6g   learning rate %.6g\n"
      "rollouts  %.1f tokens on average\n",
      status.run_name(),
      status.run_folder(),
      status.phase(),
      status.step(),
      status.total_steps(),
      Seconds(status.seconds_per_step()),
      Seconds(status.eta_seconds()),
      status.step(),
      status.adapter_digest().empty() ? "(none)"
                                      : status.adapter_digest().substr(0, 12),
      status.snapshot_step(),
      status.loss(),
      status.gradient_norm(),
      status.learning_rate(),
      status.mean_rollout_tokens());
  for (const v1::TermStatus& term : status.terms()) {
    absl::StrAppendFormat(
        &text,
        "term      %-22s %10.6f  weight %.4f  clipped %.1f%%\n",
        term.name(),
        term.value(),
        term.weight(),
        100.0 * term.clipped_fraction());
  }
  for (const v1::WorkerStatus& worker : status.workers()) {
    absl::StrAppendFormat(&text,
                          "%-9s %-22s %-10s %s, %d in flight%s%s\n",
                          worker.role(),
                          worker.address(),
                          worker.state(),
                          PolicyText(worker),
                          worker.in_flight(),
                          worker.state() == "ready" ? "" : ": ",
                          worker.state() == "ready" ? "" : worker.last_error());
  }
  return text;
}

nlohmann::ordered_json StatusJson(const v1::GetStatusResponse& status) {
  nlohmann::ordered_json json = {
      {"run_name", status.run_name()},
      {"run_folder", status.run_folder()},
      {"phase", status.phase()},
      {"step", status.step()},
      {"total_steps", status.total_steps()},
      {"adapter_digest", status.adapter_digest()},
      {"snapshot_step", status.snapshot_step()},
      {"seconds_per_step", status.seconds_per_step()},
      {"eta_seconds", status.eta_seconds()},
      {"loss", status.loss()},
      {"gradient_norm", status.gradient_norm()},
      {"learning_rate", status.learning_rate()},
      {"mean_rollout_tokens", status.mean_rollout_tokens()},
      {"terms", nlohmann::ordered_json::array()},
      {"workers", nlohmann::ordered_json::array()}};
  for (const v1::TermStatus& term : status.terms()) {
    json["terms"].push_back({{"name", term.name()},
                             {"value", term.value()},
                             {"weight", term.weight()},
                             {"clipped_fraction", term.clipped_fraction()}});
  }
  for (const v1::WorkerStatus& worker : status.workers()) {
    json["workers"].push_back({{"role", worker.role()},
                               {"address", worker.address()},
                               {"state", worker.state()},
                               {"policy_version", worker.policy_version()},
                               {"in_flight", worker.in_flight()},
                               {"last_error", worker.last_error()}});
  }
  return json;
}

}  // namespace dapd
