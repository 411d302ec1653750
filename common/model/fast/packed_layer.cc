#include "common/model/fast/packed_layer.h"

#include <utility>

#include "common/model/fast/layer_math.h"
#include "common/model/fast/pass_products.h"

namespace dapd {
namespace {

// x [N, in] in memory that has `room` columns behind every row, with these.
at::Tensor Widened(const at::Tensor& x, int64_t room) {
  const int64_t rows = x.size(0);
  const int64_t in = x.size(1);
  if (room == 0) return x;
  if (x.stride(0) == in + room) {
    return x.as_strided({rows, in + room}, {in + room, 1});
  }
  at::Tensor wide = at::empty({rows, in + room}, x.options());
  wide.narrow(1, 0, in).copy_(x);
  return wide;
}

// y = x w^T + bias, summed in float32 and rounded to the dtype of y only.
// `whole`: PackedPass's.
void MultiplyInto(at::Tensor& y,
                  const at::Tensor& x,
                  const at::Tensor& w,
                  const at::Tensor& bias,
                  int64_t whole) {
  const at::ScalarType dtype = y.scalar_type();
  if (whole > 0) {
    MultiplyAsWhole(x, w, bias, whole, y);
  } else if (dtype == x.scalar_type() && bias.defined()) {
    at::addmm_out(y, bias, x, w.t());
  } else if (dtype == x.scalar_type()) {
    at::mm_out(y, x, w.t());
  } else if (x.is_cuda()) {
    at::mm_out(y, x, w.t(), dtype);
  } else {
    at::mm_out(y, x.to(dtype), w.to(dtype).t());
  }
}

// Of [N, columns] the heads from `first` on, [N, heads, D].
at::Tensor Heads(const at::Tensor& stacked,
                 int64_t first,
                 int64_t heads,
                 int64_t head_dim) {
  return stacked.narrow(1, first * head_dim, heads * head_dim)
      .unflatten(1, {heads, head_dim});
}

}  // namespace

at::Tensor ResidualStream::Norm(const at::Tensor& weight,
                                double eps,
                                int64_t room) {
  if (!delta.defined()) return dapd::Norm(x, weight, eps, room);
  const at::Tensor added = std::exchange(delta, at::Tensor());
  return AddAndNorm(added, weight, eps, room, &x);
}

int64_t PackedLayer::Columns(const PackedLinear& linear) const {
  return pass_.with_adapter ? linear.lora : 0;
}

at::Tensor PackedLayer::Multiply(const PackedLinear& linear,
                                 const at::Tensor& x,
                                 const SumOfParts& sum) const {
  const int64_t rows = x.size(0);
  const int64_t columns = Columns(linear);
  const int64_t block = pass_.block > 0 ? pass_.block : rows;
  const at::Tensor wide = Widened(x, columns);
  const at::Tensor weight = linear.weight.narrow(1, 0, linear.in + columns);
  // Of ranks the sum gets the bias.
  const at::Tensor bias = sum ? at::Tensor() : linear.bias;
  at::Tensor y =
      at::empty({rows, weight.size(0)},
                x.options().dtype(sum ? at::kFloat : x.scalar_type()));
  for (int64_t row = 0; row < rows; row += block) {
    const at::Tensor own = wide.narrow(0, row, block);
    if (columns > 0) {
      at::Tensor low_rank = own.narrow(1, linear.in, columns);
      MultiplyInto(low_rank,
                   own.narrow(1, 0, linear.in),
                   linear.lora_a,
                   /*bias=*/{},
                   pass_.whole);
    }
    at::Tensor result = y.narrow(0, row, block);
    MultiplyInto(result, own, weight, bias, pass_.whole);
  }
  if (!sum) return y;
  y = sum(y);
  if (linear.bias.defined()) y.add_(linear.bias);
  return y;
}

at::Tensor PackedLayer::Attended(Attend attend, ResidualStream* stream) const {
  const double eps = config_.rms_norm_eps;
  const int64_t heads = config_.num_heads;
  const int64_t kv_heads = config_.num_kv_heads;
  const int64_t dim = config_.head_dim;
  const PackedLinear& linear = linears_[0];
  const at::Tensor qkv = Multiply(
      linear,
      stream->Norm(
          weights_.norm(NormPlace::kBeforeAttention), eps, Columns(linear)));
  AttentionStatistics unused;
  return attend(NormAndRotate(Heads(qkv, 0, heads, dim),
                              weights_.norm(NormPlace::kQueries),
                              eps,
                              angles_),
                NormAndRotate(Heads(qkv, heads, kv_heads, dim),
                              weights_.norm(NormPlace::kKeys),
                              eps,
                              angles_),
                Heads(qkv, heads + kv_heads, kv_heads, dim),
                &unused);
}

at::Tensor PackedLayer::Gated(ResidualStream* stream) const {
  const PackedLinear& linear = linears_[2];
  const at::Tensor both =
      Multiply(linear,
               stream->Norm(weights_.norm(NormPlace::kBeforeMlp),
                            config_.rms_norm_eps,
                            Columns(linear)));
  const int64_t size = config_.intermediate_size;
  return GatedProduct(both.narrow(1, 0, size),
                      both.narrow(1, size, size),
                      Columns(linears_[3]));
}

void PackedLayer::Forward(Attend attend, ResidualStream* stream) const {
  {
    const at::Tensor attended = Attended(attend, stream);
    stream->delta = Multiply(
        linears_[1], attended.reshape({attended.size(0), -1}), pass_.sum);
  }
  stream->delta = Multiply(linears_[3], Gated(stream), pass_.sum);
}

}  // namespace dapd
