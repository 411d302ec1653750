#include "common/generation/backend_relay.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status_error.h"
#include "common/base/status_macros.h"
#include "common/collective/parse_rank_message.h"
#include "common/generation/decode_request_message.h"
#include "common/model/spec/lora_config.h"
#include "common/model/spec/peft_config.h"
#include "common/tensor/torch_bridge.h"
#include "dapd/v1/rank.pb.h"

namespace dapd {
namespace {

using Sampled = std::vector<std::pair<int64_t, int32_t>>;  // slot and token

Sampled SampledOf(const std::vector<DecodedToken>& tokens) {
  Sampled sampled;
  for (const DecodedToken& each : tokens) {
    sampled.emplace_back(each.slot, each.token);
  }
  return sampled;
}

Sampled SampledOf(const v1::DecodeCall& call) {
  Sampled sampled;
  for (const v1::DecodeCall::Sampled& each : call.sampled()) {
    sampled.emplace_back(each.slot(), each.token());
  }
  return sampled;
}

// Starts a sequence, or resumes it after `answer`. Returns false if a rank had
// no memory for it; then no rank has the sequence.
absl::StatusOr<bool> BeginOnAll(DecodeBackend& own,
                                int64_t slot,
                                DecodeRequest request,
                                std::vector<int32_t> answer,
                                Collective& ranks) {
  const bool found =
      answer.empty() ? own.Start(slot, std::move(request))
                     : own.Resume(slot, std::move(request), std::move(answer));
  ASSIGN_OR_RETURN(const bool all_found, HoldsOnAllRanks(found, ranks));
  if (!all_found) own.Stop(slot);
  return all_found;
}

// Keeps a sequence on the host. Returns the bytes of this rank; 0 if a rank had
// no memory for it; then no rank has the sequence.
absl::StatusOr<int64_t> SwapOutOnAll(DecodeBackend& own,
                                     int64_t slot,
                                     uint64_t key,
                                     Collective& ranks) {
  const int64_t bytes = own.SwapOut(slot, key);
  ASSIGN_OR_RETURN(const bool all_found, AllFound(bytes > 0, ranks));
  if (!all_found) own.DropSwapped(key);
  return all_found ? bytes : 0;
}

// Brings it back. Returns false if a rank had no memory for it; then it is kept
// on every rank: the host's memory that it left has not been taken since.
absl::StatusOr<bool> SwapInOnAll(DecodeBackend& own,
                                 int64_t slot,
                                 uint64_t key,
                                 int64_t tokens,
                                 Collective& ranks) {
  const bool found = own.SwapIn(slot, key, tokens);
  ASSIGN_OR_RETURN(const bool all_found, AllFound(found, ranks));
  if (found && !all_found) own.SwapOut(slot, key);
  return all_found;
}

class LeadingBackend final : public DecodeBackend {
 public:
  LeadingBackend(std::unique_ptr<DecodeBackend> own,
                 Collective& collective,
                 std::shared_ptr<DeviceGroup> devices,
                 OnRanksLost on_lost)
      : own_(std::move(own)),
        collective_(collective),
        devices_(std::move(devices)),
        on_lost_(std::move(on_lost)) {}
  // If ranks are lost, there is nobody to tell about the end.
  ~LeadingBackend() override {
    v1::DecodeCall call;
    call.mutable_end();
    std::string message = call.SerializeAsString();
    static_cast<void>(collective_.Broadcast(&message));
  }

  const ModelConfig& config() const override { return own_->config(); }
  int64_t num_slots() const override { return own_->num_slots(); }
  int64_t KvBytes(int64_t tokens) const override {
    return own_->KvBytes(tokens);
  }
  int64_t StepPositions() const override { return own_->StepPositions(); }
  bool ResumesFromTheStart() const override {
    return own_->ResumesFromTheStart();
  }
  int64_t DefaultKvBudget() const override { return own_->DefaultKvBudget(); }
  int64_t DefaultSwapBudget() const override {
    return own_->DefaultSwapBudget();
  }

  void SetAdapter(std::shared_ptr<const Adapter> adapter) override {
    Together([&] {
      v1::DecodeCall call;
      call.mutable_adapter();
      if (adapter != nullptr) {
        call.mutable_adapter()->set_config_json(
            FormatLoraConfig(adapter->config, /*base_model_path=*/""));
      }
      Tell(std::move(call));
      if (adapter != nullptr) {
        const bool all_found = ValueOrThrow(HoldsOnAllRanks(true, collective_));
        TORCH_CHECK_WITH(
            OutOfMemoryError,
            all_found,
            "[backend_relay] another rank of this worker has no memory for the "
            "adapter");
        ThrowIfError(devices_->Broadcast(adapter->Tensors()));
      }
      own_->SetAdapter(std::move(adapter));
    });
  }
  bool Start(int64_t slot, DecodeRequest request) override {
    return Begin(slot, std::move(request), {});
  }
  bool Resume(int64_t slot,
              DecodeRequest request,
              std::vector<int32_t> answer) override {
    return Begin(slot, std::move(request), std::move(answer));
  }
  bool Reserve(int64_t slot, int64_t tokens) override {
    return Together([&] {
      v1::DecodeCall call;
      call.mutable_reserve()->set_slot(slot);
      call.mutable_reserve()->set_tokens(tokens);
      Tell(std::move(call));
      return ValueOrThrow(
          HoldsOnAllRanks(own_->Reserve(slot, tokens), collective_));
    });
  }
  void Stop(int64_t slot) override {
    Together([&] {
      v1::DecodeCall call;
      call.mutable_stop()->set_slot(slot);
      Tell(std::move(call));
      own_->Stop(slot);
    });
  }
  int64_t SwapOut(int64_t slot, uint64_t key) override {
    return Together([&] {
      v1::DecodeCall call;
      call.mutable_swap_out()->set_slot(slot);
      call.mutable_swap_out()->set_key(key);
      Tell(std::move(call));
      return ValueOrThrow(SwapOutOnAll(*own_, slot, key, collective_));
    });
  }
  bool SwapIn(int64_t slot, uint64_t key, int64_t tokens) override {
    return Together([&] {
      v1::DecodeCall call;
      call.mutable_swap_in()->set_slot(slot);
      call.mutable_swap_in()->set_key(key);
      call.mutable_swap_in()->set_tokens(tokens);
      Tell(std::move(call));
      return ValueOrThrow(SwapInOnAll(*own_, slot, key, tokens, collective_));
    });
  }
  void DropSwapped(uint64_t key) override {
    Together([&] {
      v1::DecodeCall call;
      call.mutable_drop_swapped()->set_key(key);
      Tell(std::move(call));
      own_->DropSwapped(key);
    });
  }
  std::vector<DecodedToken> Step() override {
    return Together([&] {
      v1::DecodeCall call;
      call.mutable_step();
      Tell(std::move(call));
      std::vector<DecodedToken> tokens = own_->Step();
      sampled_ = SampledOf(tokens);
      return tokens;
    });
  }
  std::vector<float> ScoreTokens(const std::vector<int32_t>& ids) override {
    return Together([&] {
      v1::DecodeCall call;
      call.mutable_score()->mutable_ids()->Add(ids.begin(), ids.end());
      Tell(std::move(call));
      return own_->ScoreTokens(ids);
    });
  }

 private:
  // Starts a sequence, or resumes it if `answer` is not empty.
  bool Begin(int64_t slot, DecodeRequest request, std::vector<int32_t> answer) {
    return Together([&] {
      v1::DecodeCall call;
      call.mutable_start()->set_slot(slot);
      WriteRequest(request, call.mutable_start());
      call.mutable_start()->mutable_answer()->Add(answer.begin(), answer.end());
      Tell(std::move(call));
      return ValueOrThrow(BeginOnAll(
          *own_, slot, std::move(request), std::move(answer), collective_));
    });
  }

  void Tell(v1::DecodeCall call) {
    for (const auto& [slot, token] : std::exchange(sampled_, {})) {
      v1::DecodeCall::Sampled& each = *call.add_sampled();
      each.set_slot(slot);
      each.set_token(token);
    }
    std::string message = call.SerializeAsString();
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
  const std::shared_ptr<DeviceGroup> devices_;
  const OnRanksLost on_lost_;
  Sampled sampled_;  // in the step before
};

class Follower {
 public:
  Follower(DecodeBackend& own,
           at::Device device,
           Collective& collective,
           DeviceGroup& devices)
      : own_(own),
        device_(device),
        collective_(collective),
        devices_(devices) {}

  // Runs the next call of rank 0. Returns false at the end.
  absl::StatusOr<bool> DoNext() {
    std::string message;
    RETURN_IF_ERROR(collective_.Broadcast(&message));
    ASSIGN_OR_RETURN(
        const v1::DecodeCall call,
        ParseRankMessage<v1::DecodeCall>(message, "a call of its backend"));
    if (call.has_end()) return false;
    if (SampledOf(call) != std::exchange(sampled_, {})) {
      return absl::DataLossError(
          "this rank sampled different tokens from rank 0; are their "
          "processors the same?");
    }
    try {
      RETURN_IF_ERROR(Do(call));
    } catch (const WantOnARank&) {
      // Rank 0 has it, too, and decides what becomes of the sequences.
    }
    return true;
  }

 private:
  absl::Status Do(const v1::DecodeCall& call) {
    switch (call.call_case()) {
      case v1::DecodeCall::kAdapter:
        return SetAdapter(call.adapter());
      case v1::DecodeCall::kStart:
        return BeginOnAll(
                   own_,
                   call.start().slot(),
                   ReadRequest(call.start()),
                   {call.start().answer().begin(), call.start().answer().end()},
                   collective_)
            .status();
      case v1::DecodeCall::kReserve:
        return HoldsOnAllRanks(
                   own_.Reserve(call.reserve().slot(), call.reserve().tokens()),
                   collective_)
            .status();
      case v1::DecodeCall::kStop:
        own_.Stop(call.stop().slot());
        return absl::OkStatus();
      case v1::DecodeCall::kSwapOut:
        return SwapOutOnAll(own_,
                            call.swap_out().slot(),
                            call.swap_out().key(),
                            collective_)
            .status();
      case v1::DecodeCall::kSwapIn:
        return SwapInOnAll(own_,
                           call.swap_in().slot(),
                           call.swap_in().key(),
                           call.swap_in().tokens(),
                           collective_)
            .status();
      case v1::DecodeCall::kDropSwapped:
        own_.DropSwapped(call.drop_swapped().key());
        return absl::OkStatus();
      case v1::DecodeCall::kStep:
        sampled_ = SampledOf(own_.Step());
        return absl::OkStatus();
      case v1::DecodeCall::kScore:
        own_.ScoreTokens(
            {call.score().ids().begin(), call.score().ids().end()});
        return absl::OkStatus();
      default:
        return absl::DataLossError(
            "rank 0 asks for an operation that this rank does not know");
    }
  }

  absl::Status SetAdapter(const v1::AdapterCall& call) {
    if (!call.has_config_json()) {
      own_.SetAdapter(nullptr);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(
        const PeftConfig config,
        ParsePeftConfig(
            call.config_json(), own_.config(), "the adapter of rank 0"));
    ASSIGN_OR_RETURN(std::optional<Adapter> adapter, MakeRoom(config.lora));
    if (!adapter.has_value()) return absl::OkStatus();
    RETURN_IF_ERROR(devices_.Broadcast(adapter->Tensors()));
    own_.SetAdapter(std::make_shared<const Adapter>(*std::move(adapter)));
    return absl::OkStatus();
  }

  // Makes the memory of an adapter. Returns nothing if a rank has none for it.
  absl::StatusOr<std::optional<Adapter>> MakeRoom(const LoraConfig& lora) {
    std::optional<Adapter> adapter;
    try {
      adapter = MakeUnsetAdapter(own_.config(), lora, device_);
    } catch (const c10::Error& error) {
      if (!IsOutOfMemory(error)) throw;
    }
    ASSIGN_OR_RETURN(const bool all_found,
                     HoldsOnAllRanks(adapter.has_value(), collective_));
    if (!all_found) adapter.reset();
    return adapter;
  }

  DecodeBackend& own_;
  const at::Device device_;
  Collective& collective_;
  DeviceGroup& devices_;
  Sampled sampled_;
};

}  // namespace

std::unique_ptr<DecodeBackend> LeadBackend(std::unique_ptr<DecodeBackend> own,
                                           Collective& collective,
                                           std::shared_ptr<DeviceGroup> devices,
                                           OnRanksLost on_lost) {
  return std::make_unique<LeadingBackend>(
      std::move(own), collective, std::move(devices), std::move(on_lost));
}

absl::Status FollowBackend(DecodeBackend& own,
                           at::Device device,
                           Collective& collective,
                           DeviceGroup& devices) {
  return CatchTorch([&]() -> absl::Status {
    Follower follower(own, device, collective, devices);
    for (bool goes_on = true; goes_on;) {
      ASSIGN_OR_RETURN(goes_on, follower.DoNext());
    }
    return absl::OkStatus();
  });
}

}  // namespace dapd
