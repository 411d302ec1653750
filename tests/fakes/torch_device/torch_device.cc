#include "tests/fakes/torch_device/torch_device.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace dapd {
namespace {

DeviceWork work;
int64_t limit = 0;

at::Device TheDevice() { return {at::kCUDA, 0}; }

void CountLaunch(const std::string& name) { ++work.launches[name]; }

// --- Memory ------------------------------------------------------------------

struct Block {
  void* data = nullptr;
  size_t bytes = 0;
};

void FreeBlock(void* context) {
  auto* block = static_cast<Block*>(context);
  work.live_bytes -= static_cast<int64_t>(block->bytes);
  std::free(block->data);
  delete block;
}

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const auto size = static_cast<int64_t>(bytes);
    if (limit > 0 && work.live_bytes + size > limit) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "the device is out of memory");
    }
    ++work.allocations;
    work.largest_allocation = std::max(work.largest_allocation, size);
    work.live_bytes += size;
    work.peak_bytes = std::max(work.peak_bytes, work.live_bytes);
    auto* block = new Block{std::malloc(std::max<size_t>(bytes, 1)), bytes};
    // What nobody has written is not a number.
    std::memset(block->data, 0xFF, bytes);
    return {block->data, block, &FreeBlock, TheDevice()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

std::map<const char*, size_t>& PinnedBlocks() {
  static std::map<const char*, size_t> blocks;
  return blocks;
}

void FreePinned(void* data) {
  PinnedBlocks().erase(static_cast<const char*>(data));
  std::free(data);
}

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* data = std::malloc(std::max<size_t>(bytes, 1));
    PinnedBlocks()[static_cast<const char*>(data)] = std::max<size_t>(bytes, 1);
    return {data, data, &FreePinned, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &FreePinned; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

bool IsPinned(const void* data) {
  const auto* at = static_cast<const char*>(data);
  auto block = PinnedBlocks().upper_bound(at);
  if (block == PinnedBlocks().begin()) return false;
  --block;
  return at < block->first + block->second;
}

DeviceAllocator device_allocator;
PinnedAllocator pinned_allocator;

struct Registration {
  Registration() {
    c10::SetAllocator(c10::DeviceType::CUDA, &device_allocator, 1);
  }
} registration;

// LibTorch looks for them by this name.
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
    return &pinned_allocator;
  }
  c10::DeviceIndex deviceCount() const override { return 1; }
  int getNumGPUs() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  void deviceSynchronize(c10::DeviceIndex) const override { ++work.waits; }
};

// --- Streams and events ------------------------------------------------------

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
  void synchronizeStream(const c10::Stream&) const override { ++work.waits; }
  void synchronizeEvent(void*) const override { ++work.waits; }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    ++work.waits;
  }

 private:
  char* event_ = nullptr;
};

// --- Tensors -----------------------------------------------------------------

// The same memory as the host sees it.
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

// A result of the host's as the device's.
at::Tensor OnDevice(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cuda()) return tensor;
  at::Tensor result = at::empty_strided(
      tensor.sizes(), tensor.strides(), tensor.options().device(TheDevice()));
  if (tensor.numel() > 0) OnHost(result).copy_(tensor);
  return result;
}

// An out argument that LibTorch's operation gave another size.
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

// Operations after which the host has a number or a size of the result's.
const std::set<std::string>& WaitingOperations() {
  static const std::set<std::string> names = {"aten::equal",
                                              "aten::nonzero",
                                              "aten::masked_select",
                                              "aten::_unique2",
                                              "aten::bincount"};
  return names;
}

// Every operation that has no kernel below.
void RunOnHost(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = operation.schema();
  CountLaunch(schema.name());
  if (WaitingOperations().contains(schema.name())) ++work.waits;
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
    // The argument that the result is.
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
      &device_allocator,
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
                                   &device_allocator,
                                   c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   dtype.value_or(at::kFloat),
                                   format);
}

at::Tensor& Copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.is_cuda() && from.is_cuda()) {
    CountLaunch("aten::copy_");
  } else {
    ++(to.is_cuda() ? work.to_device : work.to_host);
    const bool is_pinned = IsPinned((to.is_cuda() ? from : to).data_ptr());
    if (!is_pinned) ++work.pageable_copies;
    if (!non_blocking || (!is_pinned && !to.is_cuda())) ++work.waits;
  }
  at::Tensor host = OnHost(to);
  if (host.numel() > 0) host.copy_(OnHost(from).expand_as(host));
  return to;
}

at::Scalar ReadNumber(const at::Tensor& tensor) {
  ++work.waits;
  ++work.to_host;
  return OnHost(tensor).item();
}

at::Tensor MultiplyTo(const at::Tensor& a,
                      const at::Tensor& b,
                      at::ScalarType dtype) {
  CountLaunch("aten::mm");
  return OnDevice(OnHost(a).to(dtype).mm(OnHost(b).to(dtype)));
}

at::Tensor& MultiplyInto(const at::Tensor& a,
                         const at::Tensor& b,
                         at::ScalarType dtype,
                         at::Tensor& out) {
  CountLaunch("aten::mm");
  OnHost(out).copy_(OnHost(a).to(dtype).mm(OnHost(b).to(dtype)));
  return out;
}

// --- Attention ---------------------------------------------------------------

std::vector<int32_t> Offsets(const std::optional<at::Tensor>& tensor) {
  TORCH_CHECK(tensor.has_value() && tensor->is_cuda() &&
                  tensor->scalar_type() == at::kInt && tensor->dim() == 1 &&
                  tensor->is_contiguous(),
              "[torch_device] offsets are int32 on the device, contiguous");
  const at::Tensor host = OnHost(*tensor);
  const int32_t* data = host.const_data_ptr<int32_t>();
  return {data, data + host.numel()};
}

struct Range {
  int64_t begin = 0;
  int64_t tokens = 0;
};

// The queries and the keys of each sequence.
std::vector<std::pair<Range, Range>> SequencesOf(
    const std::optional<at::Tensor>& q_offsets,
    const std::optional<at::Tensor>& k_offsets,
    const std::optional<at::Tensor>& k_used,
    int64_t max_q,
    int64_t max_k,
    int64_t num_q,
    int64_t num_k) {
  const std::vector<int32_t> q = Offsets(q_offsets);
  const std::vector<int32_t> k = Offsets(k_offsets);
  TORCH_CHECK(q.size() == k.size() && q.size() >= 2,
              "[torch_device] as many offsets of queries as of keys");
  const std::vector<int32_t> used =
      k_used.has_value() ? Offsets(k_used) : std::vector<int32_t>();
  std::vector<std::pair<Range, Range>> sequences;
  for (size_t i = 0; i + 1 < q.size(); ++i) {
    const Range queries{q[i], q[i + 1] - q[i]};
    const Range keys{k[i], used.empty() ? k[i + 1] - k[i] : used.at(i)};
    TORCH_CHECK(queries.begin >= 0 && queries.tokens >= 0 &&
                    queries.begin + queries.tokens <= num_q &&
                    keys.begin >= 0 && keys.tokens >= 0 &&
                    keys.begin + keys.tokens <= num_k,
                "[torch_device] a sequence lies outside of its rows");
    TORCH_CHECK(queries.tokens <= max_q && keys.tokens <= max_k,
                "[torch_device] a sequence is longer than the longest");
    sequences.emplace_back(queries, keys);
  }
  return sequences;
}

void CheckHeads(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  for (const at::Tensor* each : {&q, &k, &v}) {
    TORCH_CHECK(each->is_cuda() && each->stride(-1) == 1 &&
                    each->scalar_type() == q.scalar_type() &&
                    each->size(-1) == q.size(-1),
                "[torch_device] heads on the device, contiguous, one dtype");
  }
  TORCH_CHECK(k.sizes() == v.sizes() && q.size(-2) % k.size(-2) == 0,
              "[torch_device] key-value heads divide the query heads");
}

// Scores [H, q, k] of a sequence, scaled, -inf where a query does not look; the
// queries are the last of the keys. All arguments float32, [tokens, heads, D].
at::Tensor Scores(const at::Tensor& q, const at::Tensor& k) {
  const int64_t behind = k.size(0) - q.size(0);
  const at::Tensor hidden =
      at::ones({q.size(0), k.size(0)}, at::kBool).triu(behind + 1);
  return (at::matmul(q.transpose(0, 1), k.permute({1, 2, 0})) /
          std::sqrt(static_cast<double>(q.size(2))))
      .masked_fill(hidden, -INFINITY);
}

// Rows `range` as float32 with `heads` heads.
at::Tensor Wide(const at::Tensor& rows, const Range& range, int64_t heads) {
  return rows.narrow(0, range.begin, range.tokens)
      .to(at::kFloat)
      .repeat_interleave(heads / rows.size(1), 1);
}

// q [N, H, D]; k, v [M, K, D]. Fills out [N, H, D] and logsumexp [H, N].
void RunAttention(const at::Tensor& q,
                  const at::Tensor& k,
                  const at::Tensor& v,
                  const std::vector<std::pair<Range, Range>>& sequences,
                  at::Tensor out,
                  at::Tensor logsumexp) {
  const int64_t heads = q.size(1);
  for (const auto& [queries, keys] : sequences) {
    if (queries.tokens == 0) continue;
    const at::Tensor scores =
        Scores(Wide(q, queries, heads), Wide(k, keys, heads));
    // A row that looks at nothing gives zeros.
    const at::Tensor weights = at::nan_to_num(at::softmax(scores, -1), 0.0);
    out.narrow(0, queries.begin, queries.tokens)
        .copy_(at::matmul(weights, Wide(v, keys, heads).transpose(0, 1))
                   .transpose(0, 1));
    logsumexp.narrow(1, queries.begin, queries.tokens)
        .copy_(at::logsumexp(scores, -1));
  }
}

struct Gradients {
  at::Tensor q, k, v;
};

Gradients RunAttentionBackward(
    const at::Tensor& grad,
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    const at::Tensor& logsumexp,
    const std::vector<std::pair<Range, Range>>& sequences) {
  const int64_t heads = q.size(1);
  Gradients found{at::zeros_like(q), at::zeros_like(k), at::zeros_like(v)};
  const auto add =
      [&](at::Tensor to, const Range& range, const at::Tensor& from) {
        // [H, tokens, D] -> [tokens, K, D], summed over a group.
        to.narrow(0, range.begin, range.tokens)
            .add_(from.transpose(0, 1)
                      .unflatten(1, {to.size(1), heads / to.size(1)})
                      .sum(2));
      };
  for (const auto& [queries, keys] : sequences) {
    if (queries.tokens == 0) continue;
    const at::Tensor wide_q = Wide(q, queries, heads);
    const at::Tensor wide_k = Wide(k, keys, heads);
    const at::Tensor wide_v = Wide(v, keys, heads);
    const at::Tensor g = Wide(grad, queries, heads).transpose(0, 1);
    const at::Tensor p = at::exp(
        Scores(wide_q, wide_k) -
        logsumexp.narrow(1, queries.begin, queries.tokens).unsqueeze(2));
    const at::Tensor dp = at::matmul(g, wide_v.permute({1, 2, 0}));
    const at::Tensor ds = p * (dp - (p * dp).sum(-1, true)) /
                          std::sqrt(static_cast<double>(q.size(2)));
    add(found.q, queries, at::matmul(ds, wide_k.transpose(0, 1)));
    add(found.k, keys, at::matmul(ds.transpose(1, 2), wide_q.transpose(0, 1)));
    add(found.v, keys, at::matmul(p.transpose(1, 2), g));
  }
  return found;
}

// rng_state and an empty one.
std::pair<at::Tensor, at::Tensor> RandomState() {
  const auto options = at::TensorOptions(at::kLong).device(TheDevice());
  return {at::empty({2}, options), at::empty({}, options)};
}

void CheckFlash(const at::Tensor& q) {
  TORCH_CHECK(q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf,
              "[torch_device] flash attention computes in half precision only");
  TORCH_CHECK(q.size(2) % 8 == 0 && q.size(2) <= 256,
              "[torch_device] head dimensions up to 256, multiples of 8");
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>
FlashForward(const at::Tensor& q,
             const at::Tensor& k,
             const at::Tensor& v,
             const std::optional<at::Tensor>& q_offsets,
             const std::optional<at::Tensor>& k_offsets,
             int64_t max_q,
             int64_t max_k,
             double dropout,
             bool is_causal,
             bool /*return_debug_mask*/,
             std::optional<double> /*scale*/,
             std::optional<int64_t> /*window_size_left*/,
             std::optional<int64_t> /*window_size_right*/,
             const std::optional<at::Tensor>& k_used,
             const std::optional<at::Tensor>& /*alibi_slopes*/) {
  CheckFlash(q);
  CheckHeads(q, k, v);
  TORCH_CHECK(dropout == 0.0 && is_causal, "[torch_device] not played");
  // With one query the kernel splits the keys by the size of the batch.
  TORCH_CHECK(max_q > 1, "[torch_device] bits that depend on the batch");
  CountLaunch("aten::_flash_attention_forward");
  at::Tensor out = at::empty_like(q);
  at::Tensor logsumexp =
      at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat));
  RunAttention(
      OnHost(q),
      OnHost(k),
      OnHost(v),
      SequencesOf(
          q_offsets, k_offsets, k_used, max_q, max_k, q.size(0), k.size(0)),
      OnHost(out),
      OnHost(logsumexp));
  const auto [state, unused] = RandomState();
  return {out, logsumexp, state, unused, at::empty({0}, q.options())};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> FlashBackward(
    const at::Tensor& grad,
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    const at::Tensor& /*out*/,
    const at::Tensor& logsumexp,
    const at::Tensor& q_offsets,
    const at::Tensor& k_offsets,
    int64_t max_q,
    int64_t max_k,
    double /*dropout*/,
    bool is_causal,
    const at::Tensor& /*rng_state*/,
    const at::Tensor& /*unused*/,
    std::optional<double> /*scale*/,
    std::optional<int64_t> /*window_size_left*/,
    std::optional<int64_t> /*window_size_right*/) {
  CheckFlash(q);
  CheckHeads(q, k, v);
  TORCH_CHECK(is_causal && grad.stride(-1) == 1, "[torch_device] not played");
  CountLaunch("aten::_flash_attention_backward");
  const Gradients found = RunAttentionBackward(
      OnHost(grad),
      OnHost(q),
      OnHost(k),
      OnHost(v),
      OnHost(logsumexp),
      SequencesOf(
          q_offsets, k_offsets, {}, max_q, max_k, q.size(0), k.size(0)));
  return {OnDevice(found.q), OnDevice(found.k), OnDevice(found.v)};
}

// CausalFromBottomRight of LibTorch's CustomMaskType.
constexpr int64_t kFromBottomRight = 2;

std::tuple<at::Tensor,
           at::Tensor,
           at::Tensor,
           at::Tensor,
           c10::SymInt,
           c10::SymInt>
EfficientForward(const at::Tensor& q,
                 const at::Tensor& k,
                 const at::Tensor& v,
                 const std::optional<at::Tensor>& bias,
                 const std::optional<at::Tensor>& q_offsets,
                 const std::optional<at::Tensor>& k_offsets,
                 std::optional<int64_t> max_q,
                 std::optional<int64_t> max_k,
                 double /*dropout*/,
                 int64_t mask_type,
                 bool /*compute_log_sumexp*/,
                 std::optional<double> /*scale*/,
                 const std::optional<at::Tensor>& k_used,
                 std::optional<int64_t> /*window_size*/) {
  CheckHeads(q, k, v);
  TORCH_CHECK(q.dim() == 4 && q.size(0) == 1 && k.size(0) == 1 &&
                  q.size(2) == k.size(2) && mask_type == kFromBottomRight &&
                  !bias.has_value(),
              "[torch_device] one batch, as many key-value heads as queries'");
  CountLaunch("aten::_efficient_attention_forward");
  at::Tensor out = at::empty_like(q);
  at::Tensor logsumexp =
      at::empty({q.size(2), q.size(1)}, q.options().dtype(at::kFloat));
  RunAttention(OnHost(q).squeeze(0),
               OnHost(k).squeeze(0),
               OnHost(v).squeeze(0),
               SequencesOf(q_offsets,
                           k_offsets,
                           k_used,
                           max_q.value(),
                           max_k.value(),
                           q.size(1),
                           k.size(1)),
               OnHost(out).squeeze(0),
               OnHost(logsumexp));
  const auto [seed, offset] = RandomState();
  return {out, logsumexp, seed, offset, *max_q, *max_k};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> EfficientBackward(
    const at::Tensor& grad,
    const at::Tensor& q,
    const at::Tensor& k,
    const at::Tensor& v,
    const std::optional<at::Tensor>& /*bias*/,
    const at::Tensor& /*out*/,
    const std::optional<at::Tensor>& q_offsets,
    const std::optional<at::Tensor>& k_offsets,
    int64_t max_q,
    int64_t max_k,
    const at::Tensor& logsumexp,
    double /*dropout*/,
    const at::Tensor& /*philox_seed*/,
    const at::Tensor& /*philox_offset*/,
    int64_t mask_type,
    bool /*bias_requires_grad*/,
    std::optional<double> /*scale*/,
    std::optional<int64_t> /*num_splits_key*/,
    std::optional<int64_t> /*window_size*/,
    bool /*shared_storage_dqdkdv*/) {
  CheckHeads(q, k, v);
  TORCH_CHECK(mask_type == kFromBottomRight, "[torch_device] not played");
  CountLaunch("aten::_efficient_attention_backward");
  const Gradients found = RunAttentionBackward(
      OnHost(grad).squeeze(0),
      OnHost(q).squeeze(0),
      OnHost(k).squeeze(0),
      OnHost(v).squeeze(0),
      OnHost(logsumexp),
      SequencesOf(
          q_offsets, k_offsets, {}, max_q, max_k, q.size(1), k.size(1)));
  return {OnDevice(found.q.unsqueeze(0)),
          OnDevice(found.k.unsqueeze(0)),
          OnDevice(found.v.unsqueeze(0)),
          at::Tensor()};
}

}  // namespace

int64_t DeviceWork::num_launches() const {
  int64_t count = 0;
  for (const auto& [name, times] : launches) count += times;
  return count;
}

int64_t DeviceWork::Launches(const std::string& name) const {
  const auto found = launches.find(name);
  return found == launches.end() ? 0 : found->second;
}

const DeviceWork& WorkOfDevice() { return work; }

void ResetWorkOfDevice() {
  const int64_t live = work.live_bytes;
  work = {.live_bytes = live, .peak_bytes = live};
}

void LimitDeviceMemory(int64_t bytes) { limit = bytes; }

C10_REGISTER_GUARD_IMPL(CUDA, Guard);

}  // namespace dapd

namespace at {
using dapd::CUDAHooks;
REGISTER_CUDA_HOOKS(CUDAHooks);
}  // namespace at

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
  library.impl("_flash_attention_forward", &dapd::FlashForward);
  library.impl("_flash_attention_backward", &dapd::FlashBackward);
  library.impl("_efficient_attention_forward", &dapd::EfficientForward);
  library.impl("_efficient_attention_backward", &dapd::EfficientBackward);
}
