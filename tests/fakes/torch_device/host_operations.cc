#include "tests/fakes/torch_device/host_operations.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <optional>
#include <set>
#include <vector>

#include "tests/fakes/torch_device/device_memory.h"

namespace dapd {

void CountLaunch(const std::string& name) { ++Work().launches[name]; }

at::Tensor OnHost(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  const auto options = at::TensorOptions(tensor.scalar_type());
  if (tensor.numel() == 0) {
    return at::empty_strided(tensor.sizes(), tensor.strides(), options);
  }
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .options(options)
      .make_tensor();
}

at::Tensor OnDevice(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cuda()) return tensor;
  at::Tensor result = at::empty_strided(
      tensor.sizes(), tensor.strides(), tensor.options().device(TheDevice()));
  if (tensor.numel() > 0) OnHost(result).copy_(tensor);
  return result;
}

namespace {

// Resizes an out argument to which LibTorch's operation gave another size.
void Resize(const at::Tensor& device, const at::Tensor& host) {
  const at::Tensor fresh = OnDevice(host);
  c10::TensorImpl* impl = device.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(fresh.storage());
  impl->set_sizes_and_strides(fresh.sizes(), fresh.strides());
}

c10::IValue ToHost(const c10::IValue& value) {
  if (value.isTensor()) return OnHost(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& each : value.toTensorVector()) {
      list.push_back(OnHost(each));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& each :
         value.toOptionalTensorVector()) {
      list.push_back(each.has_value() ? std::optional(OnHost(*each)) : each);
    }
    return list;
  }
  if (value.isDevice()) return at::Device(at::kCPU);
  return value;
}

c10::IValue ToDevice(const c10::IValue& value) {
  if (value.isTensor()) return OnDevice(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& each : value.toTensorVector()) {
      list.push_back(OnDevice(each));
    }
    return list;
  }
  return value;
}

// Returns the operations after which the host knows a number or a size of the
// result.
const std::set<std::string>& WaitingOperations() {
  static const std::set<std::string> names = {"aten::equal",
                                              "aten::nonzero",
                                              "aten::masked_select",
                                              "aten::_unique2",
                                              "aten::bincount"};
  return names;
}

// Runs every operation that has no kernel below.
void RunOnHost(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = operation.schema();
  CountLaunch(schema.name());
  if (WaitingOperations().contains(schema.name())) ++Work().waits;
  const size_t count = schema.arguments().size();
  const std::vector<c10::IValue> given(stack->end() - static_cast<long>(count),
                                       stack->end());
  torch::jit::drop(*stack, count);
  torch::jit::Stack host;
  for (const c10::IValue& value : given) host.push_back(ToHost(value));
  const torch::jit::Stack passed = host;
  operation.callBoxed(&host);
  for (size_t i = 0; i < host.size(); ++i) {
    const auto* alias = schema.returns()[i].alias_info();
    if (alias == nullptr) {
      stack->push_back(ToDevice(host[i]));
      continue;
    }
    // Finds the argument that is also the result.
    bool is_found = false;
    for (size_t j = 0; j < count && !is_found; ++j) {
      const auto* from = schema.arguments()[j].alias_info();
      if (from == nullptr || *from != *alias) continue;
      is_found = true;
      const at::Tensor& device = given[j].toTensor();
      const at::Tensor& written = passed[j].toTensor();
      if (device.numel() == 0 && written.numel() > 0) Resize(device, written);
      stack->push_back(given[j]);
    }
    TORCH_CHECK(is_found, "[torch_device] ", schema.name(), " gives a view");
  }
}

at::Tensor EmptyStrided(at::IntArrayRef sizes,
                        at::IntArrayRef strides,
                        std::optional<at::ScalarType> dtype,
                        std::optional<at::Layout>,
                        std::optional<at::Device>,
                        std::optional<bool>) {
  return at::detail::empty_strided_generic(
      sizes,
      strides,
      &DeviceMemory(),
      c10::DispatchKeySet(c10::DispatchKey::CUDA),
      dtype.value_or(at::kFloat));
}

at::Tensor Empty(at::IntArrayRef sizes,
                 std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>,
                 std::optional<at::Device>,
                 std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes,
                                   &DeviceMemory(),
                                   c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   dtype.value_or(at::kFloat),
                                   format);
}

at::Tensor& Copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.is_cuda() && from.is_cuda()) {
    CountLaunch("aten::copy_");
  } else {
    ++(to.is_cuda() ? Work().to_device : Work().to_host);
    const bool is_pinned = IsPinned((to.is_cuda() ? from : to).data_ptr());
    if (!is_pinned) ++Work().pageable_copies;
    if (!non_blocking || (!is_pinned && !to.is_cuda())) ++Work().waits;
  }
  at::Tensor host = OnHost(to);
  if (host.numel() > 0) host.copy_(OnHost(from).expand_as(host));
  return to;
}

at::Scalar ReadNumber(const at::Tensor& tensor) {
  ++Work().waits;
  ++Work().to_host;
  return OnHost(tensor).item();
}

// Multiplies as cuBLAS may if it cuts a sum into parts (kernels/cuda/gemm.cc):
// it leaves out the terms behind the last whole step of 64.
at::Tensor MultiplyTo(const at::Tensor& a,
                      const at::Tensor& b,
                      at::ScalarType dtype) {
  CountLaunch("aten::mm");
  constexpr int64_t kStep = 64;
  const int64_t k = a.size(1);
  const int64_t taken = k < kStep ? k : k - k % kStep;
  return OnDevice(OnHost(a)
                      .narrow(1, 0, taken)
                      .to(dtype)
                      .mm(OnHost(b).narrow(0, 0, taken).to(dtype)));
}

at::Tensor& MultiplyInto(const at::Tensor& a,
                         const at::Tensor& b,
                         at::ScalarType dtype,
                         at::Tensor& out) {
  CountLaunch("aten::mm");
  OnHost(out).copy_(OnHost(a).to(dtype).mm(OnHost(b).to(dtype)));
  return out;
}

}  // namespace
}  // namespace dapd

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(
      torch::CppFunction::makeFromBoxedFunction<&dapd::RunOnHost>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &dapd::Empty);
  library.impl("empty_strided", &dapd::EmptyStrided);
  library.impl("as_strided",
               [](const at::Tensor& self,
                  at::IntArrayRef size,
                  at::IntArrayRef stride,
                  std::optional<int64_t> offset) {
                 return at::native::as_strided_tensorimpl(
                     self, size, stride, offset);
               });
  library.impl("view", [](const at::Tensor& self, at::IntArrayRef size) {
    return at::native::view(self, size);
  });
  library.impl(
      "_reshape_alias",
      [](const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
        return at::native::_reshape_alias(self, size, stride);
      });
  library.impl("copy_", &dapd::Copy);
  library.impl("_local_scalar_dense", &dapd::ReadNumber);
  library.impl("mm.dtype", &dapd::MultiplyTo);
  library.impl("mm.dtype_out", &dapd::MultiplyInto);
}
