// Sends hidden states from a teacher's service to a trainer's client, both as
// in a run, with a scorer that computes nothing.
//
//   dapd_transport_benchmark teacher
//       prints {"address": ..., "crc32c": [one of each view]}; a round returns
//       its CPU time since the round before.
//   dapd_transport_benchmark trainer ADDRESS REQUESTS
//       asks in a round for REQUESTS times kViews views and waits for all; a
//       round "check" also counts the tensors with another checksum than the
//       further arguments.
#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"

#include "common/base/check.h"
#include "common/base/crc32c.h"
#include "common/rpc/server/server.h"
#include "services/teacher/teacher_service.h"
#include "services/teacher/teacher_worker.h"
#include "services/trainer/workers/worker_client.h"
#include "tests/benchmarks/contender.h"
#include "tests/benchmarks/cpu_time.h"

namespace dapd {
namespace {

// A sample of Qwen3-4B has these sizes: the answer's hidden states from five
// teacher views.
constexpr int64_t kViews = 5;
constexpr int64_t kTokens = 1024;
constexpr int64_t kHidden = 2560;
constexpr int64_t kVocabulary = 151'936;

// Clears a bit of the exponent of four bfloat16 numbers. A trainer refuses
// numbers that are not finite, whose exponent has all bits.
constexpr uint64_t kFinite = 0xBFFF'BFFF'BFFF'BFFF;

// Gives the same random tensors to every request.
class ReadyScorer final : public Scorer {
 public:
  ReadyScorer() {
    std::mt19937_64 random(1);
    for (int64_t view = 0; view < kViews; ++view) {
      HostTensor tensor =
          HostTensor::Allocate(DType::kBFloat16, {kTokens, kHidden}).value();
      for (int64_t at = 0; at < tensor.num_bytes(); at += 8) {
        const uint64_t bits = random() & kFinite;
        std::memcpy(tensor.data.get() + at, &bits, sizeof(bits));
      }
      tensors_.push_back(std::move(tensor));
    }
  }
  const std::vector<HostTensor>& tensors() const { return tensors_; }

  absl::StatusOr<AppliedAdapter> Load(const AdapterUpload&) override {
    return AppliedAdapter{0, {-1.0F}};
  }
  absl::StatusOr<AppliedAdapter> Probe(WeightSet,
                                       const std::vector<int32_t>&) override {
    return AppliedAdapter{0, {-1.0F}};
  }
  absl::StatusOr<ScoreWork> Score(const ScoreInput& input,
                                  const ViewSink& sink) override {
    for (const auto& [name, view] : input.views) {
      if (!sink({name, {{"hidden", tensors_[static_cast<size_t>(name)]}}})) {
        return absl::CancelledError("unwanted");
      }
    }
    return ScoreWork{};
  }
  int64_t chunk_tokens() const override { return 1; }
  absl::StatusOr<int64_t> Advance(
      std::span<const AheadSequence> /*sequences*/) override {
    return 0;
  }
  void Forget() override {}

 private:
  std::vector<HostTensor> tensors_;
};

int ServeTeacher() {
  WorkerDescription description;
  description.service = "teacher";
  description.layout_digest = "layout";
  description.precision = "bfloat16";
  description.vocab_size = kVocabulary;
  description.hidden_size = kHidden;
  description.max_positions = 2 * kTokens;
  description.max_in_flight = 4;
  description.weight_sets = {kTeacherSets.begin(), kTeacherSets.end()};
  auto scorer = std::make_unique<ReadyScorer>();
  std::vector<uint32_t> checksums;
  for (const HostTensor& tensor : scorer->tensors()) {
    checksums.push_back(Crc32c(tensor.bytes()));
  }
  TeacherWorker worker(std::move(scorer), {});
  TeacherService service;
  service.Attach(&worker, description);
  const auto server =
      RpcServer::Start({.listen = "127.0.0.1:0"},
                       {{&service, v1::TeacherService::service_full_name()}})
          .value();
  CpuClock clock;
  return ServeRounds({{"address", server->address()}, {"crc32c", checksums}},
                     [&](const std::string&) -> nlohmann::json {
                       return {{"cpu_seconds", clock.SinceLast()}};
                     });
}

ScoreTask MakeTask(uint64_t id) {
  ScoreTask task;
  task.id = id;
  for (int64_t view = 0; view < kViews; ++view) {
    task.views[static_cast<ViewName>(view)] = {
        .input_ids = std::vector<int32_t>(kTokens + 1, 7),
        .scored_from = 1,
        .scored_count = kTokens};
  }
  return task;
}

std::shared_ptr<const PolicyUpdate> MakeBase() {
  auto base = std::make_shared<PolicyUpdate>();
  base->is_base = true;
  base->probe_ids = {1, 2};
  base->probe_logprobs = {-1.0F};
  return base;
}

int ServeTrainer(const std::string& address,
                 uint64_t requests,
                 const std::vector<uint32_t>& checksums) {
  WorkerClientOptions options;
  options.addresses = {address};
  options.expected = {"layout", "bfloat16", kVocabulary, kHidden};
  const auto client = TeacherClient::Start(std::move(options)).value();
  client->SetWeights({{WeightSet::kBase, MakeBase()}});
  CpuClock clock;
  return ServeRounds(
      {{"views", kViews}, {"tokens", kTokens}, {"hidden", kHidden}},
      [&](const std::string& request) -> nlohmann::json {
        clock.SinceLast();
        const absl::Time start = absl::Now();
        for (uint64_t id = 1; id <= requests; ++id) {
          client->Submit(MakeTask(id));
        }
        uint64_t bytes = 0;
        int64_t wrong = 0;
        for (uint64_t n = 0; n < requests; ++n) {
          const ScoreResult result = client->Next().value();
          bytes += result.payload_bytes;
          if (request != "check") continue;
          for (int64_t view = 0; view < kViews; ++view) {
            const HostTensor& tensor =
                result.views.at(static_cast<ViewName>(view)).at("hidden");
            wrong += Crc32c(tensor.bytes()) !=
                     checksums.at(static_cast<size_t>(view));
          }
        }
        return {{"seconds", absl::ToDoubleSeconds(absl::Now() - start)},
                {"cpu_seconds", clock.SinceLast()},
                {"bytes", bytes},
                {"wrong", wrong}};
      });
}

}  // namespace
}  // namespace dapd

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments == std::vector<std::string>{"teacher"}) {
    return dapd::ServeTeacher();
  }
  uint64_t requests = 0;
  if (arguments.size() < 3 || arguments[0] != "trainer" ||
      !absl::SimpleAtoi(arguments[2], &requests)) {
    return 2;
  }
  std::vector<uint32_t> checksums;
  for (size_t i = 3; i < arguments.size(); ++i) {
    checksums.push_back(static_cast<uint32_t>(std::stoul(arguments[i])));
  }
  return dapd::ServeTrainer(arguments[1], requests, checksums);
}
