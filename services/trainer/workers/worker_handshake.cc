#include "services/trainer/workers/worker_handshake.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/base/version.h"
#include "common/rpc/transfer/served_policy.h"
#include "common/rpc/transfer/wire_weights.h"

namespace dapd {
namespace {

template <typename Value>
void Compare(const char* field,
             const Value& is,
             const Value& expected,
             std::vector<std::string>* differences) {
  if (is == expected) return;
  differences->push_back(
      absl::StrCat(field, " is ", is, ", this run needs ", expected));
}

std::string NameOfTeacher(const std::string& teacher) {
  return teacher.empty()
             ? "the student's own model"
             : absl::StrCat("the teacher '", teacher.substr(0, 100), "'");
}

std::string BothVersions(const v1::DescribeResponse& worker) {
  return absl::StrCat(
      "version ",
      worker.version().empty() ? "unknown" : worker.version().substr(0, 100),
      ", this trainer ",
      Version());
}

}  // namespace

absl::StatusOr<int64_t> CheckDescription(const v1::DescribeResponse& worker,
                                         const std::string& service,
                                         const ExpectedWorker& expected) {
  if (worker.teacher() != expected.teacher) {
    return absl::FailedPreconditionError(
        absl::StrCat("it serves ",
                     NameOfTeacher(worker.teacher()),
                     ", and this address is for ",
                     NameOfTeacher(expected.teacher),
                     "; correct the addresses, or start it with ",
                     expected.teacher.empty()
                         ? "no --teacher"
                         : absl::StrCat("--teacher ", expected.teacher)));
  }
  std::vector<std::string> differences;
  Compare("service", worker.service(), service, &differences);
  Compare("layout_digest",
          worker.layout_digest(),
          expected.layout_digest,
          &differences);
  Compare("precision", worker.precision(), expected.precision, &differences);
  Compare<int64_t>(
      "vocab_size", worker.vocab_size(), expected.vocab_size, &differences);
  Compare<int64_t>(
      "hidden_size", worker.hidden_size(), expected.hidden_size, &differences);
  Compare("teacher_digest",
          worker.teacher_digest(),
          expected.teacher_digest,
          &differences);
  if (worker.max_in_flight() < 1) {
    differences.push_back("max_in_flight is 0");
  }
  if (!differences.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("it is not what this run needs: ",
                     absl::StrJoin(differences, "; "),
                     worker.version() == Version()
                         ? ""
                         : absl::StrCat(" (it has ", BothVersions(worker), ")"),
                     "; start it with the trainer's configuration"));
  }
  return static_cast<int64_t>(worker.max_in_flight());
}

std::string DescribeSkew(const v1::DescribeResponse& worker,
                         const std::string& address) {
  if (worker.version() == Version()) return "";
  return absl::StrCat(
      worker.service(),
      " worker ",
      address,
      " has ",
      BothVersions(worker),
      ": results are only known to be the same within one version");
}

absl::Status CheckAcknowledgement(const v1::LoadAdapterResponse& response,
                                  WeightSet set,
                                  const PolicyUpdate& update) {
  const v1::AdapterState& served = response.adapter();
  if (served.weights() != ToWireWeights(set)) {
    return absl::FailedPreconditionError(
        absl::StrCat("it was sent the ",
                     NameOf(set),
                     " adapter but acknowledged another set of weights; start "
                     "it with the trainer's version"));
  }
  if (!served.loaded() || served.policy_version() != update.version ||
      served.digest() != update.adapter.digest) {
    return absl::FailedPreconditionError(
        absl::StrCat("it was sent ",
                     PolicyName(update.version, update.adapter.digest),
                     " and serves ",
                     PolicyName(served.policy_version(), served.digest())));
  }
  const auto& probe = response.probe_logprobs();
  if (static_cast<size_t>(probe.size()) != update.probe_logprobs.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("its probe has ",
                     probe.size(),
                     " log-probabilities, this run's has ",
                     update.probe_logprobs.size()));
  }
  double squares = 0.0;
  double largest = -1.0;
  int worst = 0;
  for (int i = 0; i < probe.size(); ++i) {
    const double difference =
        std::abs(probe[i] - update.probe_logprobs[static_cast<size_t>(i)]);
    squares += difference * difference;
    // A NaN counts as the largest difference.
    if (difference > largest || std::isnan(difference)) {
      largest = difference;
      worst = i;
    }
  }
  const double root_mean_square = std::sqrt(squares / probe.size());
  const ProbeTolerance& tolerance = update.probe_tolerance;
  // The comparison is negated, so that a NaN counts as too much.
  if (!(largest <= tolerance.token &&
        root_mean_square <= tolerance.root_mean_square)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "it does not serve the weights it acknowledged: its log-probability of "
        "probe token ",
        worst + 1,
        " is ",
        probe[worst],
        ", the trainer computes ",
        update.probe_logprobs[static_cast<size_t>(worst)],
        " (tolerance ",
        tolerance.token,
        "; root mean square over the probe ",
        root_mean_square,
        ", tolerance ",
        tolerance.root_mean_square,
        ")"));
  }
  return absl::OkStatus();
}

}  // namespace dapd
