#include "common/generation/backend_relay.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/json.h"
#include "common/base/status_error.h"
#include "common/base/status_macros.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

using Json = nlohmann::json;

// A call: one line of JSON; behind that of an adapter, its tensors.
Json StartCall(int64_t slot, const DecodeRequest& request) {
  const SamplingParams& sampling = request.sampling;
  const SamplingKey& key = request.key;
  return {{"call", "start"},
          {"slot", slot},
          {"prompt", request.prompt_ids},
          {"sampling",
           {sampling.temperature,
            sampling.top_k,
            sampling.top_p,
            sampling.max_new_tokens}},
          {"key", {key.seed, key.step, key.example, key.sample}}};
}

DecodeRequest RequestOf(const Json& call) {
  const Json& sampling = call.at("sampling");
  const Json& key = call.at("key");
  return {.prompt_ids = call.at("prompt").get<std::vector<int32_t>>(),
          .sampling = {.temperature = sampling.at(0),
                       .top_k = sampling.at(1),
                       .top_p = sampling.at(2),
                       .max_new_tokens = sampling.at(3)},
          .key = {.seed = key.at(0),
                  .step = key.at(1),
                  .example = key.at(2),
                  .sample = key.at(3)}};
}

Json TokensOf(const std::vector<DecodedToken>& sampled) {
  Json tokens = Json::array();
  for (const DecodedToken& each : sampled) {
    tokens.push_back({each.slot, each.token});
  }
  return tokens;
}

class LeadingBackend final : public DecodeBackend {
 public:
  LeadingBackend(std::unique_ptr<DecodeBackend> own,
                 Collective& collective,
                 OnRanksLost on_lost)
      : own_(std::move(own)),
        collective_(collective),
        on_lost_(std::move(on_lost)) {}
  // Ranks that are lost already need no word.
  ~LeadingBackend() override {
    std::string message = Json{{"call", "end"}}.dump() + "\n";
    static_cast<void>(collective_.Broadcast(&message));
  }

  const ModelConfig& config() const override { return own_->config(); }
  int64_t num_slots() const override { return own_->num_slots(); }
  int64_t KvBytes(int64_t max_tokens) const override {
    return own_->KvBytes(max_tokens);
  }
  int64_t DefaultKvBudget() const override { return own_->DefaultKvBudget(); }

  void SetAdapter(std::shared_ptr<const Adapter> adapter) override {
    Together([&] {
      if (adapter == nullptr) {
        Tell({{"call", "base"}});
      } else {
        const SerializedAdapter serialized =
            ValueOrThrow(SerializeAdapter(*adapter, /*base_model_path=*/""));
        Tell({{"call", "adapter"},
              {"config", serialized.config_json},
              {"digest", serialized.digest}},
             serialized.tensors.view());
      }
      own_->SetAdapter(std::move(adapter));
    });
  }
  void Start(int64_t slot, DecodeRequest request) override {
    Together([&] {
      Tell(StartCall(slot, request));
      own_->Start(slot, std::move(request));
    });
  }
  void Stop(int64_t slot) override {
    Together([&] {
      Tell({{"call", "stop"}, {"slot", slot}});
      own_->Stop(slot);
    });
  }
  std::vector<DecodedToken> Step() override {
    return Together([&] {
      Tell({{"call", "step"}});
      std::vector<DecodedToken> tokens = own_->Step();
      sampled_ = TokensOf(tokens);
      return tokens;
    });
  }
  std::vector<float> ScoreTokens(const std::vector<int32_t>& ids) override {
    return Together([&] {
      Tell({{"call", "score"}, {"ids", ids}});
      return own_->ScoreTokens(ids);
    });
  }

 private:
  void Tell(Json call, absl::string_view behind = "") {
    call["sampled"] = std::exchange(sampled_, Json::array());
    std::string message = absl::StrCat(call.dump(), "\n", behind);
    ThrowIfError(collective_.Broadcast(&message));
  }

  template <typename Call>
  auto Together(const Call& call) -> decltype(call()) {
    try {
      return call();
    } catch (const StatusError& error) {
      on_lost_(error.status());
      throw;
    }
  }

  const std::unique_ptr<DecodeBackend> own_;
  Collective& collective_;
  const OnRanksLost on_lost_;
  Json sampled_ = Json::array();  // by the step before
};

class Follower {
 public:
  Follower(DecodeBackend& own, at::Device device)
      : own_(own), device_(device) {}

  // False at the end.
  absl::StatusOr<bool> Do(std::string message) {
    const size_t end = message.find('\n');
    const Json call = Json::parse(message.substr(0, end));
    const std::string name = call.at("call");
    if (name == "end") return false;
    if (call.at("sampled") != std::exchange(sampled_, Json::array())) {
      return absl::DataLossError(
          "this rank sampled other tokens than rank 0; are their processors "
          "the same?");
    }
    if (name == "base") {
      own_.SetAdapter(nullptr);
    } else if (name == "adapter") {
      const SerializedAdapter serialized = {
          .config_json = call.at("config"),
          .tensors = SharedBytes(std::move(message)).Part(end + 1, SIZE_MAX),
          .digest = call.at("digest")};
      ASSIGN_OR_RETURN(Adapter adapter,
                       ParseAdapter(serialized, own_.config(), device_));
      own_.SetAdapter(std::make_shared<const Adapter>(std::move(adapter)));
    } else if (name == "start") {
      own_.Start(call.at("slot"), RequestOf(call));
    } else if (name == "stop") {
      own_.Stop(call.at("slot"));
    } else if (name == "step") {
      sampled_ = TokensOf(own_.Step());
    } else if (name == "score") {
      own_.ScoreTokens(call.at("ids").get<std::vector<int32_t>>());
    } else {
      return absl::DataLossError(
          absl::StrCat("rank 0 asks for an unknown call '", name, "'"));
    }
    return true;
  }

 private:
  DecodeBackend& own_;
  const at::Device device_;
  Json sampled_ = Json::array();
};

}  // namespace

std::unique_ptr<DecodeBackend> LeadBackend(std::unique_ptr<DecodeBackend> own,
                                           Collective& collective,
                                           OnRanksLost on_lost) {
  return std::make_unique<LeadingBackend>(
      std::move(own), collective, std::move(on_lost));
}

absl::Status FollowBackend(DecodeBackend& own,
                           at::Device device,
                           Collective& collective) {
  return CatchTorch([&]() -> absl::Status {
    Follower follower(own, device);
    bool goes_on = true;
    while (goes_on) {
      std::string message;
      RETURN_IF_ERROR(collective.Broadcast(&message));
      ASSIGN_OR_RETURN(goes_on, follower.Do(std::move(message)));
    }
    return absl::OkStatus();
  });
}

}  // namespace dapd
