#include "common/tensor/side_stream.h"

#include "c10/core/Event.h"
#include "c10/core/StreamGuard.h"
#include "c10/core/impl/VirtualGuardImpl.h"

namespace dapd {
namespace {

class EventPoint final : public StreamPoint {
 public:
  EventPoint(const c10::impl::VirtualGuardImpl& guard, at::Device device)
      : guard_(guard), device_(device), event_(device.type()) {
    event_.record(guard_.getStream(device_));
  }
  void HoldStream() override { event_.block(guard_.getStream(device_)); }
  void Wait() override { event_.synchronize(); }

 private:
  const c10::impl::VirtualGuardImpl guard_;
  const at::Device device_;
  c10::Event event_;
};

class DeviceSideStream final : public SideStream {
 public:
  explicit DeviceSideStream(at::Device device)
      : guard_(device.type()),
        device_(device.has_index() ? device : guard_.getDevice()),
        stream_(guard_.getStreamFromGlobalPool(device_)) {}

  std::shared_ptr<void> Enter() override {
    return std::make_shared<c10::StreamGuard>(stream_);
  }
  std::unique_ptr<StreamPoint> Mark() override {
    return std::make_unique<EventPoint>(guard_, device_);
  }
  at::Tensor HostBuffer(int64_t bytes) override {
    return at::empty({bytes},
                     at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  }
  void Copy(const at::Tensor& from, const at::Tensor& to) override {
    to.copy_(from, /*non_blocking=*/true);
  }

 private:
  const c10::impl::VirtualGuardImpl guard_;
  const at::Device device_;
  const c10::Stream stream_;
};

}  // namespace

std::unique_ptr<SideStream> MakeSideStream(at::Device device) {
  if (!device.is_cuda()) return nullptr;
  return std::make_unique<DeviceSideStream>(device);
}

}  // namespace dapd
