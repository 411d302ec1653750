#include "common/sharding/sharded_layers.h"

#include <array>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/base/status_error.h"
#include "common/base/status_macros.h"
#include "common/base/steady_time.h"
#include "common/sharding/sharded_weights.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

// Returns the order of the layers. A layer that is used twice in a row appears
// once.
std::vector<int64_t> GatherOrder(int64_t layers, WalkKind kind) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < layers; ++i) order.push_back(i);
  if (kind == WalkKind::kForward) return order;
  for (int64_t i = layers - 2; i >= 0; --i) order.push_back(i);
  return order;
}

// Adds the seconds of its lifetime to `total`.
class WaitTimer {
 public:
  explicit WaitTimer(double* total) : total_(total) {}
  ~WaitTimer() { *total_ += absl::ToDoubleSeconds(SteadyNow() - start_); }

 private:
  double* const total_;
  const absl::Time start_ = SteadyNow();
};

// A gathered layer. On a GPU it is complete behind `ready`, a place on the side
// stream.
struct GatheredLayer {
  int64_t index = 0;
  LayerWeights weights;
  std::unique_ptr<StreamPoint> ready;
};

// A layer that the pass no longer needs, and the place on its stream behind
// which the layer is not read any more.
struct ReturnedLayer {
  LayerWeights weights;
  std::unique_ptr<StreamPoint> read;
};

// Remembers whether the ranks have gathered: after that, a failure concerns
// this rank alone.
class WatchedGroup final : public DeviceGroup {
 public:
  explicit WatchedGroup(DeviceGroup& group) : group_(group) {}
  absl::Status Sum(at::Tensor& values) override { return group_.Sum(values); }
  absl::StatusOr<std::vector<at::Tensor>> AllGather(
      std::span<const at::Tensor> parts) override {
    auto all = group_.AllGather(parts);
    has_gathered_ = all.ok();
    return all;
  }
  absl::Status Broadcast(std::span<const at::Tensor> tensors) override {
    return group_.Broadcast(tensors);
  }
  bool has_gathered() const { return has_gathered_; }

 private:
  DeviceGroup& group_;
  bool has_gathered_ = false;
};

class GatheredWalk final : public LayerWalk {
 public:
  // If the walk fails, `failure` says why the other ranks wait for a layer in
  // vain.
  GatheredWalk(std::shared_ptr<const ShardedWeights> weights,
               DeviceGroup& devices,
               SideStream* side,
               WalkKind kind,
               double* wait_seconds,
               absl::Status* failure)
      : weights_(std::move(weights)),
        devices_(devices),
        side_(side),
        wait_seconds_(wait_seconds),
        failure_(failure),
        order_(GatherOrder(weights_->shard.config.num_layers, kind)),
        gatherer_([this] { GatherAll(); }) {}

  ~GatheredWalk() override {
    const absl::Status status = Finish();
    if (!status.ok()) *failure_ = status;
  }

  LayerWeights Next(int64_t index) override {
    // The last layer of the forward pass is the first of the backward pass.
    if (taken_.has_value() && taken_->index == index) return taken_->weights;
    Return();
    {
      const WaitTimer timer(wait_seconds_);
      MutexLock lock(&mutex_);
      while (!gathered_.has_value() && status_.ok() && !lacks_memory_) {
        changed_.Wait(&mutex_);
      }
      TORCH_CHECK_WITH(OutOfMemoryError,
                       !lacks_memory_,
                       "not enough memory beside this pass for layer ",
                       index,
                       ", which the ranks gather");
      if (!gathered_.has_value()) throw StatusError(status_);
      taken_ = std::exchange(gathered_, std::nullopt);
      changed_.NotifyAll();
    }
    Check(taken_->index == index, "a pass takes the layers in order");
    if (taken_->ready != nullptr) taken_->ready->HoldStream();
    return taken_->weights;
  }

  // Gathers the rest of the walk, for the other ranks.
  absl::Status Finish() {
    Return();
    {
      MutexLock lock(&mutex_);
      is_over_ = true;
      gathered_.reset();
      changed_.NotifyAll();
    }
    if (gatherer_.joinable()) gatherer_.join();
    if (side_ != nullptr) {
      const auto scope = side_->Enter();
      FreeReturned();
    }
    MutexLock lock(&mutex_);
    return status_;
  }

 private:
  // Returns the taken layer: what the pass computes from here on does not read
  // it.
  void Return() {
    if (!taken_.has_value()) return;
    if (side_ != nullptr) {
      ReturnedLayer layer{std::move(taken_->weights), side_->Mark()};
      MutexLock lock(&mutex_);
      // A returned layer that is still here was read before this one.
      returned_ = std::move(layer);
    }
    taken_.reset();
  }

  // Must run on the side stream, whose next gather reuses the memory. The
  // stream waits for the pass to have read the layer; the host does not.
  void FreeReturned() {
    std::optional<ReturnedLayer> returned;
    {
      MutexLock lock(&mutex_);
      returned = std::exchange(returned_, std::nullopt);
    }
    if (returned.has_value()) returned->read->HoldStream();
  }

  void GatherAll() {
    const absl::Status status = CatchTorch([this]() -> absl::Status {
      const std::shared_ptr<void> scope =
          side_ == nullptr ? nullptr : side_->Enter();
      for (const int64_t index : order_) {
        WaitForRoom();
        FreeReturned();
        GatheredLayer layer = {.index = index};
        ASSIGN_OR_RETURN(layer.weights, Gather(index));
        if (side_ != nullptr) layer.ready = side_->Mark();
        Offer(std::move(layer));
      }
      return absl::OkStatus();
    });
    MutexLock lock(&mutex_);
    status_ = status;
    if (absl::IsResourceExhausted(status)) {
      status_ = absl::ResourceExhaustedError(absl::StrCat(
          "not enough memory for a layer that the ranks gather, even without a "
          "pass beside it; lower trainer.pack_tokens, or "
          "trainer.activation_memory_mib if it is set: ",
          std::string(status.message())));
    }
    changed_.NotifyAll();
  }

  // Gathers layer `index`. A rank that skipped a layer would stay one layer
  // behind the others. So if there is no memory for the layer, the pass ends,
  // which frees memory, and the layer is gathered then; nobody reads the layers
  // from there on.
  absl::StatusOr<LayerWeights> Gather(int64_t index) {
    WatchedGroup devices(devices_);
    try {
      return GatherLayer(*weights_, index, devices);
    } catch (const c10::Error& error) {
      // On the CPU a gather is many operations, and some may already be done.
      if (side_ == nullptr || !IsOutOfMemory(error)) throw;
    }
    EndPass();
    FreeReturned();
    if (devices.has_gathered()) return LayerWeights();
    return GatherLayer(*weights_, index, devices_);
  }

  void EndPass() {
    MutexLock lock(&mutex_);
    lacks_memory_ = true;
    changed_.NotifyAll();
    while (!is_over_) changed_.Wait(&mutex_);
  }

  void WaitForRoom() {
    MutexLock lock(&mutex_);
    while (gathered_.has_value()) changed_.Wait(&mutex_);
  }

  void Offer(GatheredLayer layer) {
    MutexLock lock(&mutex_);
    if (!is_over_) gathered_ = std::move(layer);
    changed_.NotifyAll();
  }

  const std::shared_ptr<const ShardedWeights> weights_;
  DeviceGroup& devices_;
  SideStream* const side_;  // null on the CPU
  double* const wait_seconds_;
  absl::Status* const failure_;
  const std::vector<int64_t> order_;
  std::optional<GatheredLayer> taken_;  // by the pass
  Mutex mutex_;
  CondVar changed_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  bool lacks_memory_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<GatheredLayer> gathered_ ABSL_GUARDED_BY(mutex_);
  std::optional<ReturnedLayer> returned_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::jthread gatherer_;
};

}  // namespace

ShardedLayers::ShardedLayers(std::shared_ptr<const ShardedWeights> weights,
                             Collective& collective,
                             DeviceGroup& devices,
                             std::unique_ptr<SideStream> side)
    : weights_(std::move(weights)),
      collective_(collective),
      devices_(devices),
      side_(std::move(side)) {}

std::unique_ptr<LayerWalk> ShardedLayers::Begin(WalkKind kind) {
  std::optional<WalkKind> agreed;
  {
    const WaitTimer timer(&wait_seconds_);
    agreed = ValueOrThrow(Agree(kind));
  }
  return std::make_unique<GatheredWalk>(weights_,
                                        devices_,
                                        side_.get(),
                                        agreed.value(),
                                        &wait_seconds_,
                                        &failure_);
}

absl::Status ShardedLayers::ServeOthers() {
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<WalkKind> agreed, Agree(std::nullopt));
    if (!agreed.has_value()) return absl::OkStatus();
    double no_pass = 0.0;
    RETURN_IF_ERROR(
        GatheredWalk(
            weights_, devices_, side_.get(), *agreed, &no_pass, &failure_)
            .Finish());
  }
}

absl::StatusOr<std::optional<WalkKind>> ShardedLayers::Agree(
    std::optional<WalkKind> wanted) {
  RETURN_IF_ERROR(failure_);
  std::array<float, 2> wishes = {};  // ranks that want each WalkKind
  if (wanted.has_value()) wishes[static_cast<size_t>(*wanted)] = 1.0F;
  RETURN_IF_ERROR(collective_.Sum(absl::MakeSpan(wishes)));
  for (const WalkKind kind :
       {WalkKind::kForwardAndBackward, WalkKind::kForward}) {
    if (wishes[static_cast<size_t>(kind)] > 0.0F) return kind;
  }
  return std::nullopt;
}

std::shared_ptr<const ModelWeights> WithLayersFrom(
    const ShardedWeights& weights, std::shared_ptr<LayerSource> source) {
  auto whole = std::make_shared<ModelWeights>(weights.shard);
  whole->layers.clear();
  whole->source = std::move(source);
  return whole;
}

}  // namespace dapd
