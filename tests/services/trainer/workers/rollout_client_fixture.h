// A RolloutClient and the servers that its tests run.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "common/base/sha256.h"
#include "services/rollout/rollout_service.h"
#include "services/trainer/workers/worker_client.h"
#include "tests/fakes/eventually.h"
#include "tests/fakes/fake_sampler.h"
#include "tests/fakes/worker_servers.h"

namespace dapd {

class RolloutClientFixture : public ::testing::Test {
 protected:
  static WorkerDescription Description() {
    WorkerDescription description;
    description.service = "rollout";
    description.layout_digest = "layout";
    description.precision = "float32";
    description.vocab_size = 100;
    description.hidden_size = 8;
    description.max_positions = 64;
    description.max_in_flight = 4;
    description.max_adapter_bytes = 8 << 20;
    return description;
  }

  // A rollout server in the test's process: everything but the model is real.
  class MiniServer {
   public:
    MiniServer(FakeSamplerControl* control,
               const std::string& listen,
               const std::string& instance = "")
        : worker_(std::make_unique<FakeSampler>(control), {}) {
      WorkerDescription description = Description();
      description.instance = instance;
      service_.Attach(&worker_, description);
      server_ = StartOrFail(
          listen, &service_, v1::RolloutService::service_full_name());
    }
    ~MiniServer() { Stop(absl::ZeroDuration()); }

    // Stops in the order of main.cc, so that finished answers are delivered.
    void Stop(absl::Duration grace) {
      worker_.Shutdown(grace);
      server_->Shutdown(grace);
    }
    const std::string& address() const { return server_->address(); }

   private:
    RolloutService service_;
    RolloutWorker worker_;
    std::unique_ptr<RpcServer> server_;
  };

  // A worker that breaks the protocol: `generate` is its Generate.
  class ScriptedServer final : public ScriptedWorker<v1::RolloutService> {
   public:
    using Stream =
        grpc::ServerReaderWriter<v1::GenerateResponse, v1::GenerateRequest>;

    explicit ScriptedServer(std::function<void(Stream*)> generate)
        : ScriptedWorker(Description()), generate_(std::move(generate)) {
      Serve();
    }
    ~ScriptedServer() override { Stop(); }

    grpc::Status Generate(grpc::ServerContext*, Stream* stream) override {
      generate_(stream);
      return grpc::Status::OK;
    }

   private:
    const std::function<void(Stream*)> generate_;
  };

  // Sends an answer of one token as a sound worker does.
  static void AnswerWithOneToken(
      const v1::GenerateRequest& request,
      ScriptedServer::Stream* stream,
      const std::function<void(v1::GenerationFinished*)>& at_the_end = {}) {
    v1::GenerateResponse response;
    response.set_request_id(request.request_id());
    response.mutable_tokens()->add_ids(1);
    response.mutable_tokens()->add_logprobs(-1);
    stream->Write(response);
    v1::GenerationFinished& finished = *response.mutable_finished();
    finished.set_reason(v1::GenerationFinished::REASON_EOS);
    finished.set_num_tokens(1);
    finished.set_policy_version(request.policy_version());
    finished.set_adapter_digest(request.adapter_digest());
    if (at_the_end) at_the_end(&finished);
    stream->Write(response);
  }

  static std::shared_ptr<const PolicyUpdate> MakeUpdate(int64_t version) {
    auto update = std::make_shared<PolicyUpdate>();
    update->version = version;
    // The tensors take more than one chunk.
    update->adapter.tensors =
        std::string((2 << 20) + 17, static_cast<char>('a' + version));
    update->adapter.config_json = "{}";
    update->adapter.digest =
        Sha256Hex(absl::StrCat(update->adapter.tensors.view(), "{}"));
    update->probe_ids = {1, 2};
    update->probe_logprobs = {-1.5F};
    return update;
  }

  static RolloutTask MakeTask(uint64_t id, int64_t max_new_tokens = 3) {
    RolloutTask task;
    task.id = id;
    task.request.prompt_ids = {1, 2};
    task.request.sampling.max_new_tokens = max_new_tokens;
    return task;
  }

  RolloutClientFixture() {
    options_.expected = {"layout", "float32", 100, 8};
    options_.task_timeout = absl::Seconds(30);
    options_.peer_timeout = absl::Seconds(30);
    options_.observer.on_outcome = [this](TaskOutcome outcome) {
      ++outcomes_[static_cast<int>(outcome)];
    };
    options_.observer.on_adapter_pushed = [this](double, uint64_t bytes) {
      pushed_bytes_ += bytes;
    };
  }

  void Start(std::vector<std::string> addresses) {
    options_.addresses = std::move(addresses);
    auto client = RolloutClient::Start(options_);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    client_->SetPolicy(MakeUpdate(1));
  }
  int Count(TaskOutcome outcome) const {
    return outcomes_[static_cast<int>(outcome)];
  }

  // Waits until the last error of the first worker contains `text`.
  void WaitForError(const std::string& text) {
    ASSERT_TRUE(Eventually([&] {
      const auto workers = client_->Workers();
      return !workers.empty() &&
             workers.front().last_error.find(text) != std::string::npos;
    }));
  }

  std::atomic<int> outcomes_[static_cast<int>(TaskOutcome::kHedged) + 1] = {};
  std::atomic<uint64_t> pushed_bytes_ = 0;
  FakeSamplerControl control_;
  FakeSamplerControl other_control_;
  WorkerClientOptions options_;
  std::unique_ptr<RolloutClient> client_;
};

}  // namespace dapd
