#include "common/generation/cpu/cpu_linear.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/kernels/parallel_for.h"

namespace dapd {
namespace {

template <typename Value>
Value* Room(std::vector<Value>& memory, int64_t count) {
  if (static_cast<int64_t>(memory.size()) < count) {
    memory.resize(static_cast<size_t>(count));
  }
  return memory.data();
}

// The same, from the beginning of a cache line on, as products by tiles want
// it.
uint16_t* RoomOfLines(std::vector<uint16_t>& memory, int64_t count) {
  constexpr size_t kLine = 64;
  size_t space = static_cast<size_t>(count) * sizeof(uint16_t) + kLine;
  void* begin = Room(memory, static_cast<int64_t>(space / sizeof(uint16_t)));
  return static_cast<uint16_t*>(std::align(
      kLine, static_cast<size_t>(count) * sizeof(uint16_t), begin, space));
}

// Threads for `rows` rows of a product with `matrix`.
int ThreadsFor(const CpuMatrix& matrix, int64_t rows) {
  return ThreadsWorth(
      at::get_num_threads(),
      ProductNanoseconds(
          static_cast<double>(rows * matrix.depth() * matrix.padded_outs()),
          static_cast<double>(matrix.bytes())));
}

}  // namespace

CpuLinear FuseLinear(std::span<const at::Tensor> weights,
                     std::span<const at::Tensor> biases) {
  CpuLinear linear;
  linear.weight = CpuMatrix(weights);
  for (size_t part = 0; part < biases.size(); ++part) {
    if (!biases[part].defined()) continue;
    linear.bias.resize(static_cast<size_t>(linear.weight.padded_outs()), 0.0F);
    const at::Tensor bias = biases[part].to(at::kFloat).contiguous();
    std::copy_n(
        bias.const_data_ptr<float>(),
        bias.numel(),
        linear.bias.begin() + linear.weight.first_panel(part) * kPanelWidth);
  }
  return linear;
}

CpuLora FuseLora(std::span<const LoraPair> pairs,
                 double scale,
                 CpuLora recycled) {
  CpuLora lora;
  lora.scale = static_cast<float>(scale);
  std::vector<at::Tensor> a;
  for (const LoraPair& pair : pairs) {
    if (!pair.a.defined()) {
      lora.update_of_part.push_back(-1);
      continue;
    }
    const size_t index = lora.updates.size();
    lora.update_of_part.push_back(static_cast<int>(index));
    a.push_back(pair.a);
    CpuMatrix old = index < recycled.updates.size()
                        ? std::move(recycled.updates[index].b)
                        : CpuMatrix();
    lora.updates.push_back(
        {CpuMatrix(std::span(&pair.b, 1), std::move(old)), 0});
  }
  if (a.empty()) return lora;
  lora.a = CpuMatrix(a, std::move(recycled.a));
  for (size_t i = 0; i < a.size(); ++i) {
    lora.updates[i].first_column = lora.a.first_panel(i) * kPanelWidth;
  }
  return lora;
}

const void* CpuMultiplier::Pack(const CpuMatrix& matrix,
                                const float* x,
                                int64_t rows) {
  const int64_t count = rows * matrix.packed_depth();
  const int64_t depth = matrix.depth();
  // A float32 panel knows no padding of its depth.
  const int64_t padded = matrix.is_bfloat16() ? matrix.packed_depth() : depth;
  if (UsesDot(matrix)) {
    uint16_t* packed = RoomOfLines(packed_pairs_, count);
    kernels_.pack_bfloat16(x, depth, rows, depth, padded, packed);
    return packed;
  }
  float* packed = Room(packed_, count);
  kernels_.pack_float32(x, depth, rows, depth, padded, packed);
  return packed;
}

void CpuMultiplier::PackUpdates(const CpuLora& lora,
                                const float* x,
                                int64_t rows) {
  const int64_t width = lora.a.padded_outs();
  float* low = Room(low_, rows * width);
  // Float32 throughout, as in lora.h: x is not rounded further.
  const int64_t depth = lora.a.depth();
  const int64_t padded = lora.a.is_bfloat16() ? lora.a.packed_depth() : depth;
  float* packed = Room(packed_, rows * padded);
  kernels_.pack_float32(x, depth, rows, depth, padded, packed);
  const int threads = ThreadsFor(lora.a, rows);
  ParallelFor(threads, lora.a.num_panels(), [&](int64_t panel) {
    lora.a.MultiplyPanel(kernels_,
                         panel,
                         packed,
                         /*dot=*/false,
                         rows,
                         low + panel * kPanelWidth,
                         width);
  });
  packed_low_.resize(std::max(packed_low_.size(), lora.updates.size()));
  for (size_t i = 0; i < lora.updates.size(); ++i) {
    const CpuLora::Update& update = lora.updates[i];
    const int64_t rank = update.b.depth();
    const int64_t depth =
        update.b.is_bfloat16() ? update.b.packed_depth() : rank;
    kernels_.pack_float32(low + update.first_column,
                          width,
                          rows,
                          rank,
                          depth,
                          Room(packed_low_[i], rows * depth));
  }
}

void CpuMultiplier::Run(const CpuLinear& linear,
                        const CpuLora* lora,
                        const float* x,
                        int64_t rows,
                        float* out,
                        float* residual,
                        int64_t width) {
  const CpuMatrix& weight = linear.weight;
  const int64_t out_stride = weight.padded_outs();
  const bool has_update = lora != nullptr && !lora->updates.empty();
  // Before x: both pack into the same memory.
  if (has_update) PackUpdates(*lora, x, rows);
  const void* packed = Pack(weight, x, rows);
  const bool dot = UsesDot(weight);
  float* updates = has_update ? Room(update_, rows * out_stride) : nullptr;
  const int threads = ThreadsFor(weight, rows);
  ParallelFor(threads, weight.num_panels(), [&](int64_t panel) {
    const int64_t column = panel * kPanelWidth;
    float* y = out + column;
    weight.MultiplyPanel(kernels_, panel, packed, dot, rows, y, out_stride);
    const float* update = nullptr;
    if (has_update) {
      size_t part = 0;
      while (weight.first_panel(part + 1) <= panel) ++part;
      const int index = lora->update_of_part[part];
      if (index >= 0) {
        const auto i = static_cast<size_t>(index);
        lora->updates[i].b.MultiplyPanel(kernels_,
                                         panel - weight.first_panel(part),
                                         packed_low_[i].data(),
                                         /*dot=*/false,
                                         rows,
                                         updates + column,
                                         out_stride);
        update = updates + column;
      }
    }
    const float* bias =
        linear.bias.empty() ? nullptr : linear.bias.data() + column;
    if (!round_ && bias == nullptr && update == nullptr &&
        residual == nullptr) {
      return;
    }
    for (int64_t row = 0; row < rows; ++row) {
      float* target = residual == nullptr ? y + row * out_stride
                                          : residual + row * width + column;
      kernels_.combine(y + row * out_stride,
                       bias,
                       update == nullptr ? nullptr : update + row * out_stride,
                       lora == nullptr ? 0.0F : lora->scale,
                       residual == nullptr ? nullptr : target,
                       residual == nullptr
                           ? kPanelWidth
                           : std::min(kPanelWidth, width - column),
                       round_,
                       target);
    }
  });
}

void CpuMultiplier::Multiply(const CpuLinear& linear,
                             const CpuLora* lora,
                             const float* x,
                             int64_t rows,
                             float* out) {
  Run(linear, lora, x, rows, out, nullptr, 0);
}

void CpuMultiplier::MultiplyAndAdd(const CpuLinear& linear,
                                   const CpuLora* lora,
                                   const float* x,
                                   int64_t rows,
                                   int64_t width,
                                   float* residual) {
  float* product = Room(product_, rows * linear.weight.padded_outs());
  Run(linear, lora, x, rows, product, residual, width);
}

}  // namespace dapd
