// A TeacherClient and the servers that its tests run.
#pragma once

#include <algorithm>
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
#include "common/rpc/transfer/chunk_stream.h"
#include "services/teacher/teacher_service.h"
#include "services/trainer/workers/worker_client.h"
#include "tests/fakes/fake_scorer.h"
#include "tests/fakes/worker_servers.h"

namespace dapd {

class TeacherClientFixture : public ::testing::Test {
 protected:
  static constexpr int64_t kHidden = 8;

  static WorkerDescription Description() {
    WorkerDescription description;
    description.service = "teacher";
    description.layout_digest = "layout";
    description.precision = "float32";
    description.vocab_size = 1 << 20;
    description.hidden_size = kHidden;
    description.max_positions = 1 << 17;
    description.max_in_flight = 2;
    description.max_adapter_bytes = 1 << 20;
    description.weight_sets = {kTeacherSets.begin(), kTeacherSets.end()};
    return description;
  }

  // A teacher server in the test's process: everything but the model is real.
  class MiniServer {
   public:
    MiniServer(FakeScorerControl* control, const std::string& listen)
        : worker_(std::make_unique<FakeScorer>(control), {}) {
      service_.Attach(&worker_, Description());
      server_ = StartOrFail(
          listen, &service_, v1::TeacherService::service_full_name());
    }
    ~MiniServer() {
      server_->Shutdown(absl::ZeroDuration());
      worker_.Shutdown(absl::ZeroDuration());
    }
    const std::string& address() const { return server_->address(); }

   private:
    TeacherService service_;
    TeacherWorker worker_;
    std::unique_ptr<RpcServer> server_;
  };

  // A worker that breaks the protocol: `score` answers each request.
  class ScriptedServer final : public ScriptedWorker<v1::TeacherService> {
   public:
    using Stream =
        grpc::ServerReaderWriter<v1::ScoreResponse, v1::ScoreRequest>;
    using Script = std::function<void(const v1::ScoreRequest&, Stream*)>;

    // `on_stream` is called for each Score call. `end` says whether a call ends
    // after the request that it has just answered.
    explicit ScriptedServer(
        Script score,
        std::function<void(grpc::ServerContext*)> on_stream = {},
        std::function<bool()> end = {})
        : ScriptedWorker(Description()),
          score_(std::move(score)),
          on_stream_(std::move(on_stream)),
          end_(std::move(end)) {
      Serve();
    }
    ~ScriptedServer() override { Stop(); }

    grpc::Status Score(grpc::ServerContext* context, Stream* stream) override {
      if (on_stream_) on_stream_(context);
      v1::ScoreRequest request;
      while (stream->Read(&request)) {
        score_(request, stream);
        if (end_ && end_()) break;
      }
      return grpc::Status::OK;
    }

   private:
    const Script score_;
    const std::function<void(grpc::ServerContext*)> on_stream_;
    const std::function<bool()> end_;
  };

  static std::shared_ptr<const PolicyUpdate> MakeUpdate(int64_t version) {
    auto update = std::make_shared<PolicyUpdate>();
    update->version = version;
    update->is_base = version == 0;
    if (!update->is_base) {
      update->adapter.tensors = std::string(100, static_cast<char>(version));
      update->adapter.config_json = "{}";
      update->adapter.digest =
          Sha256Hex(absl::StrCat(update->adapter.tensors.view(), "{}"));
    }
    update->probe_ids = {1, 2};
    update->probe_logprobs = {-1.5F};
    return update;
  }

  static ScoreTask MakeTask(uint64_t id, int64_t tokens = 4) {
    ScoreTask task;
    task.id = id;
    for (const ViewName name :
         {ViewName::kNoneRollout, ViewName::kSelfRollout}) {
      View view;
      view.scored_from = 1;
      for (int64_t i = 0; i <= tokens; ++i) {
        view.input_ids.push_back(static_cast<int32_t>(100 * id + i));
      }
      view.scored_count = tokens;
      task.views[name] = view;
    }
    return task;
  }

  static float ValueAt(const HostTensor& tensor, int64_t index) {
    return reinterpret_cast<const float*>(tensor.data.get())[index];
  }

  // Returns a sound answer to the request; each test spoils one message of it.
  static std::vector<v1::ScoreResponse> SoundAnswer(
      const v1::ScoreRequest& request) {
    std::vector<v1::ScoreResponse> messages;
    for (const v1::ScoreView& view : request.views()) {
      HostTensor hidden = *HostTensor::Allocate(
          DType::kFloat32, {int64_t{view.scored_count()}, kHidden});
      std::fill_n(hidden.data.get(), hidden.num_bytes(), '\0');
      v1::ScoreResponse header;
      header.mutable_tensor()->set_view(view.name());
      *header.mutable_tensor()->mutable_header() =
          MakeTensorHeader("hidden", hidden);
      messages.push_back(header);
      for (const v1::TensorChunk& chunk :
           ChunksOf({hidden.data, hidden.bytes()})) {
        v1::ScoreResponse message;
        *message.mutable_chunk() = chunk;
        messages.push_back(message);
      }
    }
    v1::ScoreResponse done;
    done.mutable_done()->set_policy_version(request.policy_version());
    done.mutable_done()->set_adapter_digest(request.adapter_digest());
    messages.push_back(done);
    for (v1::ScoreResponse& message : messages) {
      message.set_request_id(request.request_id());
    }
    return messages;
  }

  TeacherClientFixture() {
    options_.expected = {"layout", "float32", 1 << 20, kHidden};
    options_.task_timeout = absl::Seconds(30);
    options_.peer_timeout = absl::Seconds(30);
    options_.observer.on_outcome = [this](TaskOutcome outcome) {
      ++outcomes_[static_cast<int>(outcome)];
    };
  }

  void Start(const std::string& address, int64_t version = 1) {
    options_.addresses = {address};
    auto client = TeacherClient::Start(options_);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    client_->SetWeights({{WeightSet::kSnapshot, MakeUpdate(version)}});
  }

  std::atomic<int> outcomes_[static_cast<int>(TaskOutcome::kHedged) + 1] = {};
  FakeScorerControl control_;
  WorkerClientOptions options_;
  std::unique_ptr<TeacherClient> client_;
};

}  // namespace dapd
