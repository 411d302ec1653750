#include "common/model/fast/packed_projections.h"

#include "common/model/fast/pass_products.h"

namespace dapd {
namespace {

// Returns x [N, in] together with `room` columns behind every row, [N, in +
// room]: in x's own memory if that has the columns, else as a copy.
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

// Computes y = x w^T + bias, summed in float32 and rounded only to the dtype of
// y. `whole` as in PackedPass.
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

// Returns the columns of an adapter in `linear` that take part.
int64_t ColumnsOf(const PackedLinear& linear, const PackedPass& pass) {
  return pass.with_adapter ? linear.lora : 0;
}

// Returns [x, x A^T] W^T + bias, or its sum over the ranks. x [N, in] is best
// in memory with room for x A^T.
at::Tensor StackedProduct(const PackedLinear& linear,
                          const PackedPass& pass,
                          const SumOfParts& sum,
                          const at::Tensor& x) {
  const int64_t rows = x.size(0);
  const int64_t columns = ColumnsOf(linear, pass);
  const int64_t block = pass.block > 0 ? pass.block : rows;
  const at::Tensor wide = Widened(x, columns);
  const at::Tensor weight = linear.weight.narrow(1, 0, linear.in + columns);
  // The bias is added once, to the sum over the ranks.
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
                   pass.whole);
    }
    at::Tensor result = y.narrow(0, row, block);
    MultiplyInto(result, own, weight, bias, pass.whole);
  }
  if (!sum) return y;
  y = sum(y);
  if (linear.bias.defined()) y.add_(linear.bias);
  return y;
}

}  // namespace

int64_t PackedProjections::RoomFor(LayerProduct product,
                                   const at::Tensor& /*like*/) const {
  return ColumnsOf(linears_[static_cast<size_t>(product)], pass_);
}

std::vector<at::Tensor> PackedProjections::Multiply(
    LayerProduct product, const at::Tensor& x, at::Tensor* /*low_rank*/) const {
  const PackedLinear& linear = linears_[static_cast<size_t>(product)];
  const bool is_part =
      product == LayerProduct::kO || product == LayerProduct::kDown;
  const at::Tensor stacked =
      StackedProduct(linear, pass_, is_part ? pass_.sum : nullptr, x);
  if (linear.rows.size() == 1) return {stacked};
  return stacked.split_with_sizes(linear.rows, 1);
}

}  // namespace dapd
