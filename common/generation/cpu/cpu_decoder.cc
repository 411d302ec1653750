#include "common/generation/cpu/cpu_decoder.h"

#include <algorithm>
#include <cmath>

#include "common/kernels/parallel_for.h"
#include "common/model/rope.h"

namespace dapd {
namespace {

// Tokens of a prompt that attend together: few, so that little is computed that
// the causal mask hides; many, so that a panel of keys is read once for all of
// them.
constexpr int64_t kAttentionTile = 16;

void Resize(std::vector<float>& memory, int64_t count) {
  if (static_cast<int64_t>(memory.size()) < count) {
    memory.resize(static_cast<size_t>(count));
  }
}

// Returns the threads for an element-wise operation over rows of `size`
// numbers.
int ThreadsForRows(int64_t rows, int64_t size) {
  constexpr double kNanosecondsEach = 0.5;
  return ThreadsWorth(at::get_num_threads(),
                      kNanosecondsEach * static_cast<double>(rows * size));
}

const CpuLora* LoraOf(const CpuAdapter* adapter,
                      size_t layer,
                      LayerProduct linear) {
  return adapter == nullptr
             ? nullptr
             : &adapter->layers[layer][static_cast<size_t>(linear)];
}

}  // namespace

CpuDecoder::CpuDecoder(std::shared_ptr<const CpuModel> model,
                       const DecodeKernels& kernels)
    : model_(std::move(model)),
      kernels_(kernels),
      round_(model_->dtype == at::kBFloat16),
      multiplier_(kernels, round_) {}

void CpuDecoder::Normalize(const std::vector<float>& weight) {
  const int64_t hidden = model_->config.hidden_size;
  const auto eps = static_cast<float>(model_->config.rms_norm_eps);
  ParallelFor(ThreadsForRows(static_cast<int64_t>(rows_.size()), hidden),
              static_cast<int64_t>(rows_.size()),
              [&](int64_t row) {
                kernels_.rms_norm(x_.data() + row * hidden,
                                  weight.data(),
                                  hidden,
                                  eps,
                                  round_,
                                  norm_.data() + row * hidden);
              });
}

void CpuDecoder::RotateAndStore(const CpuLayer& layer, int64_t index) {
  const ModelConfig& config = model_->config;
  const int64_t dim = config.head_dim;
  const CpuMatrix& qkv =
      layer.linears[static_cast<size_t>(LayerProduct::kQkv)].weight;
  const int64_t stride = qkv.padded_outs();
  const auto eps = static_cast<float>(config.rms_norm_eps);
  ParallelFor(
      ThreadsForRows(static_cast<int64_t>(rows_.size()), stride),
      static_cast<int64_t>(rows_.size()),
      [&](int64_t row) {
        const Row& where = rows_[static_cast<size_t>(row)];
        float* base = qkv_.data() + row * stride;
        const auto turn = [&](float* head, const std::vector<float>& norm) {
          if (!norm.empty()) {
            kernels_.rms_norm(head, norm.data(), dim, eps, round_, head);
          }
          kernels_.rotate(head,
                          cos_.data() + row * dim,
                          sin_.data() + row * dim,
                          dim,
                          round_);
        };
        for (int64_t head = 0; head < config.num_heads; ++head) {
          turn(base + head * dim, layer.q_norm);
        }
        float* keys = base + qkv.first_panel(1) * kPanelWidth;
        const float* values = base + qkv.first_panel(2) * kPanelWidth;
        for (int64_t head = 0; head < config.num_kv_heads; ++head) {
          turn(keys + head * dim, layer.k_norm);
          where.cache->Write(index,
                             head,
                             where.position,
                             keys + head * dim,
                             values + head * dim);
        }
      });
}

// Computes one key-value head of `num_rows` rows of one sequence.
void CpuDecoder::AttendRows(int64_t index,
                            int64_t kv_head,
                            int64_t first_row,
                            int64_t num_rows) {
  const ModelConfig& config = model_->config;
  const int64_t dim = config.head_dim;
  const int64_t group = config.num_heads / config.num_kv_heads;
  const int64_t stride = model_->layers[0]
                             .linears[static_cast<size_t>(LayerProduct::kQkv)]
                             .weight.padded_outs();
  const Row& last = rows_[static_cast<size_t>(first_row + num_rows - 1)];
  const int64_t length = last.position + 1;
  const int64_t width = CpuKvCache::PaddedWidth(length);
  const int64_t depth = CpuKvCache::PaddedDepth(length);
  const int64_t out_stride = CpuKvCache::PaddedWidth(dim);
  const int64_t count = num_rows * group;
  thread_local std::vector<float> queries, scores, packed, out;
  Resize(queries, count * dim);
  Resize(scores, count * width);
  Resize(packed, count * std::max(CpuKvCache::PaddedDepth(dim), depth));
  Resize(out, count * out_stride);

  for (int64_t row = 0; row < num_rows; ++row) {
    std::copy_n(
        qkv_.data() + (first_row + row) * stride + kv_head * group * dim,
        group * dim,
        queries.data() + row * group * dim);
  }
  kernels_.pack_float32(queries.data(),
                        dim,
                        count,
                        dim,
                        CpuKvCache::PaddedDepth(dim),
                        packed.data());
  last.cache->MultiplyKeys(
      kernels_, index, kv_head, packed.data(), count, length, scores.data());
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  for (int64_t i = 0; i < count; ++i) {
    const Row& where = rows_[static_cast<size_t>(first_row + i / group)];
    kernels_.softmax(
        scores.data() + i * width, where.position + 1, width, scale);
  }
  kernels_.pack_float32(
      scores.data(), width, count, depth, depth, packed.data());
  last.cache->MultiplyValues(
      kernels_, index, kv_head, packed.data(), count, length, out.data());
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t head = (first_row + row) * config.num_heads + kv_head * group;
    kernels_.combine({.rows = group,
                      .size = dim,
                      .y = out.data() + row * group * out_stride,
                      .y_stride = out_stride,
                      .round = round_,
                      .out = attended_.data() + head * dim,
                      .out_stride = dim});
  }
}

void CpuDecoder::Attend(int64_t index, std::span<const TokenRun> runs) {
  struct Task {
    int64_t first_row;
    int64_t num_rows;
  };
  std::vector<Task> tasks;
  double attended = 0.0;  // pairs of a token and a visible token, about
  int64_t row = 0;
  for (const TokenRun& run : runs) {
    const auto count = static_cast<int64_t>(run.ids.size());
    attended += static_cast<double>(count * (run.cache->length() + count));
    for (int64_t i = 0; i < count; i += kAttentionTile) {
      tasks.push_back({row + i, std::min(kAttentionTile, count - i)});
    }
    row += count;
  }
  const ModelConfig& config = model_->config;
  const int64_t heads = config.num_kv_heads;
  const double products =
      attended * static_cast<double>(2 * config.num_heads * config.head_dim);
  const double bytes = sizeof(float) * attended *
                       static_cast<double>(2 * heads * config.head_dim);
  ParallelFor(
      ThreadsWorth(at::get_num_threads(), ProductNanoseconds(products, bytes)),
      static_cast<int64_t>(tasks.size()) * heads,
      [&](int64_t i) {
        const Task& task = tasks[static_cast<size_t>(i / heads)];
        AttendRows(index, i % heads, task.first_row, task.num_rows);
      });
}

void CpuDecoder::PlaceRows(std::span<const TokenRun> runs) {
  const ModelConfig& config = model_->config;
  rows_.clear();
  std::vector<int32_t> ids;
  std::vector<int64_t> positions;
  for (const TokenRun& run : runs) {
    for (size_t i = 0; i < run.ids.size(); ++i) {
      const int64_t position = run.cache->length() + static_cast<int64_t>(i);
      rows_.push_back({run.cache, position});
      positions.push_back(position);
      ids.push_back(run.ids[i]);
    }
  }
  const auto rows = static_cast<int64_t>(rows_.size());
  Resize(x_, rows * config.hidden_size);
  Resize(norm_, rows * config.hidden_size);
  Resize(attended_, rows * config.num_heads * config.head_dim);
  Resize(gated_, rows * config.intermediate_size);
  ParallelFor(ThreadsForRows(rows, config.hidden_size), rows, [&](int64_t row) {
    model_->Embed(ids[static_cast<size_t>(row)],
                  x_.data() + row * config.hidden_size);
  });
  const RotaryAngles angles =
      MakeRotaryAngles(config, at::tensor(positions, at::kLong), model_->dtype);
  const at::Tensor cos = angles.cos.to(at::kFloat).contiguous();
  const at::Tensor sin = angles.sin.to(at::kFloat).contiguous();
  cos_.assign(cos.const_data_ptr<float>(),
              cos.const_data_ptr<float>() + cos.numel());
  sin_.assign(sin.const_data_ptr<float>(),
              sin.const_data_ptr<float>() + sin.numel());
}

void CpuDecoder::AddAttention(const CpuAdapter* adapter,
                              size_t index,
                              std::span<const TokenRun> runs) {
  const ModelConfig& config = model_->config;
  const CpuLayer& layer = model_->layers[index];
  const auto rows = static_cast<int64_t>(rows_.size());
  const CpuLinear& qkv = layer.linears[static_cast<size_t>(LayerProduct::kQkv)];
  Normalize(layer.input_norm);
  Resize(qkv_, rows * qkv.weight.padded_outs());
  multiplier_.Multiply(qkv,
                       LoraOf(adapter, index, LayerProduct::kQkv),
                       norm_.data(),
                       rows,
                       qkv_.data());
  RotateAndStore(layer, static_cast<int64_t>(index));
  Attend(static_cast<int64_t>(index), runs);
  multiplier_.MultiplyAndAdd(
      layer.linears[static_cast<size_t>(LayerProduct::kO)],
      LoraOf(adapter, index, LayerProduct::kO),
      attended_.data(),
      rows,
      config.hidden_size,
      x_.data());
}

void CpuDecoder::AddMlp(const CpuAdapter* adapter, size_t index) {
  const ModelConfig& config = model_->config;
  const CpuLayer& layer = model_->layers[index];
  const auto rows = static_cast<int64_t>(rows_.size());
  const CpuLinear& gate_up =
      layer.linears[static_cast<size_t>(LayerProduct::kGateUp)];
  const int64_t stride = gate_up.weight.padded_outs();
  Normalize(layer.post_attention_norm);
  Resize(gate_up_, rows * stride);
  multiplier_.Multiply(gate_up,
                       LoraOf(adapter, index, LayerProduct::kGateUp),
                       norm_.data(),
                       rows,
                       gate_up_.data());
  ParallelFor(ThreadsForRows(rows, stride), rows, [&](int64_t row) {
    const float* gate = gate_up_.data() + row * stride;
    kernels_.gated(gate,
                   gate + gate_up.weight.first_panel(1) * kPanelWidth,
                   config.intermediate_size,
                   round_,
                   gated_.data() + row * config.intermediate_size);
  });
  multiplier_.MultiplyAndAdd(
      layer.linears[static_cast<size_t>(LayerProduct::kDown)],
      LoraOf(adapter, index, LayerProduct::kDown),
      gated_.data(),
      rows,
      config.hidden_size,
      x_.data());
}

void CpuDecoder::Forward(const CpuAdapter* adapter,
                         std::span<const TokenRun> runs) {
  PlaceRows(runs);
  for (size_t index = 0; index < model_->layers.size(); ++index) {
    AddAttention(adapter, index, runs);
    AddMlp(adapter, index);
  }
  for (const TokenRun& run : runs) {
    run.cache->Advance(static_cast<int64_t>(run.ids.size()));
  }
}

const float* CpuDecoder::Logits(std::span<const int64_t> rows) {
  const int64_t hidden = model_->config.hidden_size;
  const auto eps = static_cast<float>(model_->config.rms_norm_eps);
  const auto count = static_cast<int64_t>(rows.size());
  for (int64_t i = 0; i < count; ++i) {
    kernels_.rms_norm(x_.data() + rows[static_cast<size_t>(i)] * hidden,
                      model_->final_norm.data(),
                      hidden,
                      eps,
                      round_,
                      norm_.data() + i * hidden);
  }
  Resize(logits_, count * logits_stride());
  multiplier_.Multiply(
      model_->head, nullptr, norm_.data(), count, logits_.data());
  return logits_.data();
}

}  // namespace dapd
