#include "tests/fakes/torch_device/torch_device.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "tests/fakes/torch_device/device_memory.h"

namespace dapd {
namespace {

// LibTorch looks for the class by this name.
class CUDAHooks final : public at::CUDAHooksInterface {
 public:
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasCuBLASLt() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  at::Device getDeviceFromPtr(void*) const override { return TheDevice(); }
  bool isPinnedPtr(const void* data) const override { return IsPinned(data); }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return &PinnedMemory();
  }
  c10::DeviceIndex deviceCount() const override { return 1; }
  int getNumGPUs() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  void deviceSynchronize(c10::DeviceIndex) const override { ++Work().waits; }
};

// Handles streams and events.
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  static constexpr c10::DeviceType static_type = c10::DeviceType::CUDA;
  Guard() = default;
  explicit Guard(c10::DeviceType) {}
  c10::DeviceType type() const override { return static_type; }
  c10::Device exchangeDevice(c10::Device) const override { return TheDevice(); }
  c10::Device getDevice() const override { return TheDevice(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  void* getStreamNativeHandle(const c10::Stream) const override {
    return nullptr;
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event,
              const c10::Stream&,
              const c10::DeviceIndex,
              const c10::EventFlag) const override {
    *event = this->event_;
  }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override { ++Work().waits; }
  void synchronizeEvent(void*) const override { ++Work().waits; }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    ++Work().waits;
  }

 private:
  char* event_ = nullptr;
};

}  // namespace

C10_REGISTER_GUARD_IMPL(CUDA, Guard);

}  // namespace dapd

namespace at {
using dapd::CUDAHooks;
REGISTER_CUDA_HOOKS(CUDAHooks);
}  // namespace at
