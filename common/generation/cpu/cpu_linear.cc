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

// Returns room that begins at a cache line, as products by tiles need it.
template <typename Value>
Value* RoomOfLines(std::vector<Value>& memory, int64_t count) {
  constexpr size_t kLine = 64;
  const size_t bytes = static_cast<size_t>(count) * sizeof(Value);
  size_t space = bytes + kLine;
  void* begin = Room(memory, static_cast<int64_t>(space / sizeof(Value)));
  return static_cast<Value*>(std::align(kLine, bytes, begin, space));
}

// Returns the threads for `rows` rows of a product with `matrix`.
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
  // A float32 panel does not pad its depth.
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
  // Everything is float32, like in lora.h: x is not rounded further.
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
                        const Destination& to) {
  const CpuMatrix& weight = linear.weight;
  const bool has_update = lora != nullptr && !lora->updates.empty();
  // This comes before x is packed, because both use the same memory.
  if (has_update) PackUpdates(*lora, x, rows);
  const void* packed = Pack(weight, x, rows);
  const bool dot = UsesDot(weight);
  ParallelFor(
      ThreadsFor(weight, rows), weight.num_panels(), [&](int64_t panel) {
        const int64_t column = panel * kPanelWidth;
        const size_t part = weight.PartOf(panel);
        const int update = has_update ? lora->update_of_part[part] : -1;
        const bool is_done =
            !round_ && linear.bias.empty() && update < 0 && !to.adds;
        // The destination's rows are so far apart that few of them fit into a
        // cache at once, so unfinished sums are kept side by side elsewhere.
        thread_local std::vector<float> sums, updates;
        float* y =
            is_done ? to.rows + column : RoomOfLines(sums, rows * kPanelWidth);
        weight.MultiplyPanel(kernels_,
                             panel,
                             packed,
                             dot,
                             rows,
                             y,
                             is_done ? to.stride : kPanelWidth);
        if (is_done) return;
        CombinedRows combined = {
            .rows = rows,
            .size = std::min(kPanelWidth, to.width - column),
            .y = y,
            .y_stride = kPanelWidth,
            .round = round_,
            .out = to.rows + column,
            .out_stride = to.stride};
        if (!linear.bias.empty()) combined.bias = linear.bias.data() + column;
        if (update >= 0) {
          const auto i = static_cast<size_t>(update);
          float* added = RoomOfLines(updates, rows * kPanelWidth);
          lora->updates[i].b.MultiplyPanel(kernels_,
                                           panel - weight.first_panel(part),
                                           packed_low_[i].data(),
                                           /*dot=*/false,
                                           rows,
                                           added,
                                           kPanelWidth);
          combined.update = added;
          combined.update_stride = kPanelWidth;
          combined.scale = lora->scale;
        }
        if (to.adds) combined.residual = combined.out;
        kernels_.combine(combined);
      });
}

void CpuMultiplier::Multiply(const CpuLinear& linear,
                             const CpuLora* lora,
                             const float* x,
                             int64_t rows,
                             float* out) {
  const int64_t width = linear.weight.padded_outs();
  Run(linear, lora, x, rows, {.rows = out, .stride = width, .width = width});
}

void CpuMultiplier::MultiplyAndAdd(const CpuLinear& linear,
                                   const CpuLora* lora,
                                   const float* x,
                                   int64_t rows,
                                   int64_t width,
                                   float* residual) {
  Run(linear,
      lora,
      x,
      rows,
      {.rows = residual, .stride = width, .width = width, .adds = true});
}

}  // namespace dapd
