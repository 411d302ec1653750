#include "common/generation/cuda/cuda_decode_step.h"

#include "common/kernels/cuda/decode_attention.h"
#include "common/kernels/cuda/sampling.h"
#include "common/kernels/cuda/skinny_product.h"

namespace dapd {
namespace {

int64_t Width(const CudaLinear& linear) { return linear.in + linear.lora; }

}  // namespace

void CudaDecodeStep::Norm(Pass* pass,
                          const void* weight,
                          void* out,
                          int64_t out_stride) {
  pass->norm.weight = weight;
  pass->norm.out = out;
  pass->norm.out_stride = out_stride;
  pass->outcome.Cuda(
      "norm", DapdCudaResidualNorm(&pass->norm, spec_.number, pass->stream));
}

void CudaDecodeStep::Launch(Pass* pass, const CudaProduct& product) {
  if (bulk_products_ && IsBulk(product)) {
    pass->outcome.Cuda("product", DapdCudaBulkProduct(&product, pass->stream));
  } else if (IsSkinny(product)) {
    pass->outcome.Cuda("product",
                       DapdCudaSkinnyProduct(&product, pass->stream));
  } else {
    pass->outcome.Text(gemm_.Multiply(product, pass->stream));
  }
}

void CudaDecodeStep::Multiply(
    Pass* pass, const CudaLinear& linear, void* x, void* y, bool float_result) {
  CudaProduct product{.rows = pass->bucket.rows,
                      .inner = linear.in,
                      .cols = linear.lora,
                      .x = x,
                      .x_stride = Width(linear),
                      .w = linear.lora_a,
                      .w_stride = linear.in,
                      .y = memory_.Offset(x, linear.in),
                      .y_stride = Width(linear),
                      .number = spec_.number};
  if (linear.lora > 0) Launch(pass, product);
  // The product in front writes only the adapter's columns.
  if (linear.lora > 0) product.early = linear.in;
  product.inner = Width(linear);
  product.cols = linear.out;
  product.w = linear.weight;
  product.w_stride = Width(linear);
  product.y = y;
  product.y_stride = linear.out;
  product.float_result = float_result;
  Launch(pass, product);
}

void CudaDecodeStep::Gather(
    Pass* pass, float* all, int64_t rows, int64_t width, int64_t stride) {
  gathers_.clear();
  for (int64_t row = 0; row < rows; ++row) {
    float* const first = all + row * stride;
    gathers_.push_back({.part = first + spec_.ranks.rank * width,
                        .all = first,
                        .bytes = width * static_cast<int64_t>(sizeof(float))});
  }
  char error[kNcclErrorBytes] = "";
  const int code =
      DapdNcclLaunchAllGather(&spec_.ranks,
                              gathers_.data(),
                              static_cast<int64_t>(gathers_.size()),
                              pass->stream,
                              error);
  pass->outcome.Nccl(code, error);
}

void CudaDecodeStep::MultiplyDelta(Pass* pass,
                                   const CudaLinear& linear,
                                   void* x) {
  pass->norm.bias = linear.bias;
  if (spec_.ranks.size == 1) {
    Multiply(pass, linear, x, memory_.delta);
    pass->norm.delta = memory_.delta;
    return;
  }
  const int64_t part = pass->bucket.rows * spec_.hidden;
  Multiply(pass,
           linear,
           x,
           memory_.parts + spec_.ranks.rank * part,
           /*float_result=*/true);
  Gather(pass, memory_.parts, 1, part, part);
  pass->norm.parts = memory_.parts;
  pass->norm.num_parts = spec_.ranks.size;
}

void CudaDecodeStep::MultiplyHead(Pass* pass) {
  const bool splits = SplitsHead(spec_.vocab, spec_.ranks);
  const int64_t width = splits ? spec_.vocab / spec_.ranks.size : spec_.vocab;
  const int64_t first = splits ? spec_.ranks.rank * width : 0;
  const CudaProduct head{.rows = pass->bucket.rows,
                         .inner = spec_.hidden,
                         .cols = width,
                         .x = memory_.final_hidden,
                         .x_stride = spec_.hidden,
                         .w = memory_.Offset(spec_.head, first * spec_.hidden),
                         .w_stride = spec_.hidden,
                         .y = memory_.logits + first,
                         .y_stride = spec_.vocab,
                         .number = spec_.number,
                         .float_result = true};
  Launch(pass, head);
  if (splits) {
    Gather(pass, memory_.logits, pass->bucket.rows, width, spec_.vocab);
  }
}

void CudaDecodeStep::RunAttention(Pass* pass, const CudaDecoderLayer& layer) {
  Norm(pass, layer.input_norm, memory_.attention_input, Width(layer.qkv));
  Multiply(pass, layer.qkv, memory_.attention_input, memory_.qkv);
  const QkvArgs qkv{.rows = pass->rows,
                    .qkv = memory_.qkv,
                    .bias = layer.qkv.bias,
                    .q_norm = layer.q_norm,
                    .k_norm = layer.k_norm,
                    .cosine = spec_.cosine,
                    .sine = spec_.sine,
                    .cache = pass->cache,
                    .heads = spec_.heads,
                    .kv_heads = spec_.kv_heads,
                    .head_dim = spec_.head_dim,
                    .eps = spec_.eps};
  pass->outcome.Cuda("qkv", DapdCudaQkv(&qkv, spec_.number, pass->stream));
  const DecodeAttentionArgs attention{.rows = pass->rows,
                                      .q = memory_.qkv,
                                      .cache = pass->cache,
                                      .out = memory_.attended,
                                      .scratch = memory_.attention_scratch,
                                      .counters = memory_.attention_counters,
                                      .q_stride = layer.qkv.out,
                                      .out_stride = Width(layer.o),
                                      .heads = spec_.heads,
                                      .kv_heads = spec_.kv_heads,
                                      .head_dim = spec_.head_dim,
                                      .max_tokens = pass->bucket.max_tokens};
  pass->outcome.Cuda(
      "attention",
      DapdCudaDecodeAttention(&attention, spec_.number, pass->stream));
  MultiplyDelta(pass, layer.o, memory_.attended);
}

void CudaDecodeStep::RunMlp(Pass* pass, const CudaDecoderLayer& layer) {
  Norm(
      pass, layer.post_attention_norm, memory_.mlp_input, Width(layer.gate_up));
  Multiply(pass, layer.gate_up, memory_.mlp_input, memory_.gate_up);
  const SwiGluArgs gate{.num_rows = pass->bucket.rows,
                        .gate_up = memory_.gate_up,
                        .bias = layer.gate_up.bias,
                        .out = memory_.gated,
                        .intermediate = spec_.intermediate,
                        .out_stride = Width(layer.down)};
  pass->outcome.Cuda("swiglu",
                     DapdCudaSwiGlu(&gate, spec_.number, pass->stream));
  MultiplyDelta(pass, layer.down, memory_.gated);
}

CudaOutcome CudaDecodeStep::Run(const DecodeBucket& bucket,
                                cudaStream_t stream) {
  Pass pass{
      .bucket = bucket,
      .rows = {bucket.rows, memory_.slot_of_row, memory_.positions},
      .cache = {memory_.pages, memory_.pages_per_slot, 0, spec_.kv_float8},
      .norm = {.num_rows = bucket.rows,
               .x = memory_.x,
               .hidden = spec_.hidden,
               .eps = spec_.eps},
      .stream = stream};
  const EmbeddingArgs embedding{.rows = pass.rows,
                                .tokens = memory_.tokens,
                                .embedding = spec_.embedding,
                                .x = memory_.x,
                                .hidden = spec_.hidden};
  pass.outcome.Cuda("embedding",
                    DapdCudaEmbedding(&embedding, spec_.number, stream));
  for (const CudaDecoderLayer& layer : layers_) {
    RunAttention(&pass, layer);
    RunMlp(&pass, layer);
    ++pass.cache.layer;
  }
  Norm(&pass, spec_.final_norm, memory_.final_hidden, spec_.hidden);
  MultiplyHead(&pass);
  if (!pass.outcome.ok()) return pass.outcome;
  return Sample(bucket.rows,
                memory_.logits,
                stream,
                SplitsHead(spec_.vocab, spec_.ranks));
}

CudaOutcome CudaDecodeStep::Sample(int64_t rows,
                                   const float* logits,
                                   cudaStream_t stream,
                                   bool behind_a_gather) {
  const SampleArgs args{.num_rows = rows,
                        .slot_of_row = memory_.slot_of_row,
                        .positions = memory_.positions,
                        .tokens = memory_.tokens,
                        .sequences = memory_.sequences,
                        .sampled = memory_.sampled,
                        .logits = logits,
                        .scratch = memory_.sample_scratch,
                        .vocab = spec_.vocab,
                        .num_tokens = spec_.num_tokens,
                        .end_tokens = spec_.end_tokens,
                        .num_end_tokens = spec_.num_end_tokens,
                        .behind_a_gather = behind_a_gather};
  CudaOutcome outcome;
  outcome.Cuda("sampling", DapdCudaSample(&args, stream));
  return outcome;
}

}  // namespace dapd
