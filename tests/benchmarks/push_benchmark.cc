// A trainer that pushes an adapter to rollout workers; the time goes from the
// optimizer's tensors to the first token that each worker samples with it.
//
//   dapd_push_benchmark MODEL RANK ADDRESS...
//       prints {"bytes": size of the adapter, "digest_seconds": time of one
//       pass over it}. A round changes the adapter, pushes it as the trainer
//       does, and waits for one token of each worker. "wrong" counts tokens
//       that were not sampled under the pushed digest; "check" compares this
//       digest with the digest of the adapter packed at once.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"

#include "common/base/check.h"
#include "common/model/weights/adapter.h"
#include "common/model/weights/weights.h"
#include "services/trainer/publish/policy_update_writer.h"
#include "services/trainer/workers/worker_client.h"
#include "tests/benchmarks/contender.h"
#include "tests/benchmarks/cpu_time.h"

namespace dapd {
namespace {

class Trainer {
 public:
  Trainer(const std::string& model,
          int64_t rank,
          std::vector<std::string> addresses)
      : workers_(addresses.size()),
        weights_(LoadModelWeights(model, at::kFloat, at::kCPU).value()),
        adapter_(MakeFreshAdapter(
            weights_->config, {.rank = rank, .alpha = 1.0}, 1, at::kCPU)) {
    for (at::Tensor tensor : adapter_.Tensors()) tensor.normal_(0.0, 1e-3);
    WorkerClientOptions options;
    options.addresses = std::move(addresses);
    options.expected = {weights_->layout_digest,
                        "float32",
                        weights_->config.vocab_size,
                        weights_->config.hidden_size};
    client_ = RolloutClient::Start(std::move(options)).value();
  }

  nlohmann::json Describe() const {
    const SerializedAdapter adapter =
        SerializeAdapter(adapter_, "", DigestKind::kXxh3).value();
    const absl::Time start = absl::Now();
    Check(AdapterDigest(adapter) == adapter.digest, "a digest repeats");
    return {{"bytes", adapter.tensors.size()},
            {"digest_seconds", absl::ToDoubleSeconds(absl::Now() - start)}};
  }

  nlohmann::json Round(bool check) {
    // Changes every tensor, as a step of the optimizer does.
    for (at::Tensor tensor : adapter_.Tensors()) tensor.mul_(1.0001);
    ++version_;
    cpu_.SinceLast();
    const absl::Time start = absl::Now();
    const auto writer = PolicyUpdateWriter::Start(adapter_,
                                                  version_,
                                                  /*key=*/"",
                                                  {1, 2},
                                                  DigestKind::kXxh3,
                                                  /*side=*/nullptr)
                            .value();
    client_->SetPolicy(writer->update());
    for (const at::Tensor& tensor : adapter_.Tensors()) {
      Check(writer->Append(tensor).ok(), "it has its layout");
    }
    TORCH_CHECK(writer->Finish(*weights_, adapter_).ok());
    const absl::Time packed = absl::Now();
    // The tasks come only now, or a fast worker would do the other worker's
    // task.
    while (NumServing() < workers_) absl::SleepFor(absl::Milliseconds(1));
    for (uint64_t id = 0; id < workers_; ++id) client_->Submit(MakeTask(id));
    int64_t wrong = 0;
    const std::string digest = writer->update()->adapter.digest;
    for (uint64_t n = 0; n < workers_; ++n) {
      const RolloutResult result = client_->Next().value();
      wrong += result.adapter_digest != digest;
    }
    const absl::Time end = absl::Now();
    if (check) {
      wrong +=
          SerializeAdapter(adapter_, "", DigestKind::kXxh3).value().digest !=
          digest;
    }
    return {{"seconds", absl::ToDoubleSeconds(end - start)},
            {"packed_seconds", absl::ToDoubleSeconds(packed - start)},
            {"cpu_seconds", cpu_.SinceLast()},
            {"wrong", wrong}};
  }

 private:
  // Counts the workers that serve the current version by their own report and
  // by the probe.
  uint64_t NumServing() const {
    const std::vector<WorkerState> workers = client_->Workers();
    return static_cast<uint64_t>(
        std::count_if(workers.begin(), workers.end(), [this](const auto& w) {
          return w.stage == WorkerStage::kReady && w.policy_version == version_;
        }));
  }
  RolloutTask MakeTask(uint64_t id) const {
    RolloutTask task;
    task.id = id;
    task.request.prompt_ids = {1, 2};
    task.request.sampling.max_new_tokens = 1;
    return task;
  }

  const uint64_t workers_;
  const std::shared_ptr<const ModelWeights> weights_;
  Adapter adapter_;
  int64_t version_ = 0;
  CpuClock cpu_;
  std::unique_ptr<RolloutClient> client_;
};

}  // namespace
}  // namespace dapd

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  int64_t rank = 0;
  if (arguments.size() < 3 || !absl::SimpleAtoi(arguments[1], &rank)) return 2;
  at::NoGradGuard no_grad;
  dapd::Trainer trainer(
      arguments[0], rank, {arguments.begin() + 2, arguments.end()});
  return dapd::ServeRounds(trainer.Describe(), [&](const std::string& request) {
    return trainer.Round(request == "check");
  });
}
