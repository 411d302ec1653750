#include "common/sharding/sharded_layers.h"

#include <array>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "c10/core/Event.h"
#include "c10/core/StreamGuard.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "common/base/check.h"
#include "common/base/mutex.h"
#include "common/base/status_error.h"
#include "common/base/status_macros.h"
#include "common/sharding/layer_gather.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

// The order of the layers, each once where it is used twice in a row.
std::vector<int64_t> GatherOrder(int64_t layers, WalkKind kind) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < layers; ++i) order.push_back(i);
  if (kind == WalkKind::kForward) return order;
  for (int64_t i = layers - 2; i >= 0; --i) order.push_back(i);
  return order;
}

// Adds the seconds of its life to `total`.
class WaitTimer {
 public:
  explicit WaitTimer(double* total) : total_(total) {}
  ~WaitTimer() { *total_ += absl::ToDoubleSeconds(absl::Now() - start_); }

 private:
  double* const total_;
  const absl::Time start_ = absl::Now();
};

// A layer gathered on a stream of its own, for the one that computes.
struct GatheredLayer {
  int64_t index = 0;
  LayerWeights weights;
  std::optional<c10::Event> ready;  // on a GPU
};

// Lets the current stream use `layer`, and its memory be used again only after
// what that stream does with it.
void HandOver(GatheredLayer& layer) {
  if (!layer.ready.has_value()) return;
  const c10::impl::VirtualGuardImpl device(
      layer.weights.weight[0].device().type());
  const c10::Stream stream = device.getStream(layer.weights.weight[0].device());
  layer.ready->block(stream);
  for (const at::Tensor& weight : layer.weights.weight) {
    weight.record_stream(stream);
  }
}

class GatheredWalk final : public LayerWalk {
 public:
  GatheredWalk(std::shared_ptr<const ShardedWeights> weights,
               DeviceGroup& devices,
               WalkKind kind,
               double* wait_seconds)
      : weights_(std::move(weights)),
        devices_(devices),
        wait_seconds_(wait_seconds),
        order_(GatherOrder(weights_->shard.config.num_layers, kind)),
        gatherer_([this] { GatherAll(); }) {}

  // An error of the rest is one of the ranks' next operation, too.
  ~GatheredWalk() override { static_cast<void>(Finish()); }

  LayerWeights Next(int64_t index) override {
    // The last layer forward is the first one backward.
    if (taken_.has_value() && taken_->index == index) return taken_->weights;
    taken_.reset();
    {
      const WaitTimer timer(wait_seconds_);
      MutexLock lock(&mutex_);
      while (!gathered_.has_value() && status_.ok()) changed_.Wait(&mutex_);
      if (!gathered_.has_value()) throw StatusError(status_);
      taken_ = std::exchange(gathered_, std::nullopt);
      changed_.NotifyAll();
    }
    Check(taken_->index == index, "a pass takes the layers in order");
    HandOver(*taken_);
    return taken_->weights;
  }

  // Gathers what is left of the walk, for the other ranks.
  absl::Status Finish() {
    taken_.reset();
    {
      MutexLock lock(&mutex_);
      is_over_ = true;
      gathered_.reset();
      changed_.NotifyAll();
    }
    if (gatherer_.joinable()) gatherer_.join();
    MutexLock lock(&mutex_);
    return status_;
  }

 private:
  void GatherAll() {
    const absl::Status status = CatchTorch([this]() -> absl::Status {
      const at::Device device = weights_->shard.device();
      std::optional<c10::StreamGuard> own_stream;
      if (device.is_cuda()) {
        own_stream.emplace(c10::impl::VirtualGuardImpl(device.type())
                               .getStreamFromGlobalPool(device));
      }
      for (const int64_t index : order_) {
        WaitForRoom();
        GatheredLayer layer = {.index = index};
        ASSIGN_OR_RETURN(layer.weights,
                         GatherLayer(*weights_, index, devices_));
        if (own_stream.has_value()) {
          layer.ready.emplace(device.type());
          layer.ready->record(own_stream->current_stream());
        }
        Offer(std::move(layer));
      }
      return absl::OkStatus();
    });
    MutexLock lock(&mutex_);
    status_ = status;
    changed_.NotifyAll();
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
  double* const wait_seconds_;
  const std::vector<int64_t> order_;
  std::optional<GatheredLayer> taken_;  // by the pass
  Mutex mutex_;
  CondVar changed_;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<GatheredLayer> gathered_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::jthread gatherer_;
};

}  // namespace

ShardedLayers::ShardedLayers(std::shared_ptr<const ShardedWeights> weights,
                             Collective& collective,
                             DeviceGroup& devices)
    : weights_(std::move(weights)),
      collective_(collective),
      devices_(devices) {}

std::unique_ptr<LayerWalk> ShardedLayers::Begin(WalkKind kind) {
  std::optional<WalkKind> agreed;
  {
    const WaitTimer timer(&wait_seconds_);
    agreed = ValueOrThrow(Agree(kind));
  }
  return std::make_unique<GatheredWalk>(
      weights_, devices_, agreed.value(), &wait_seconds_);
}

absl::Status ShardedLayers::ServeOthers() {
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<WalkKind> agreed, Agree(std::nullopt));
    if (!agreed.has_value()) return absl::OkStatus();
    double no_pass = 0.0;
    RETURN_IF_ERROR(
        GatheredWalk(weights_, devices_, *agreed, &no_pass).Finish());
  }
}

absl::StatusOr<std::optional<WalkKind>> ShardedLayers::Agree(
    std::optional<WalkKind> wanted) {
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
