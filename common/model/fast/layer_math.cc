#include "common/model/fast/layer_math.h"

#include <type_traits>

#include "common/kernels/decode_attention_math.h"
#include "common/kernels/training_rows.h"
#include "common/model/cpu_kernels.h"
#include "common/model/fast/device_rows.h"
#include "common/model/reference/decoder_layer.h"
#include "common/tensor/torch_bridge.h"

namespace dapd {
namespace {

template <typename T>
void CheckNumber(const at::Tensor& x) {
  constexpr at::ScalarType kNumber =
      std::is_same_v<T, BFloat16> ? at::kBFloat16 : at::kFloat;
  TORCH_CHECK(x.scalar_type() == kNumber,
              "[layer_math] ",
              x.scalar_type(),
              " among ",
              kNumber);
}

template <typename T>
const T* Read(const at::Tensor& x) {
  CheckNumber<T>(x);
  return static_cast<const T*>(x.const_data_ptr());
}
template <typename T>
T* Write(const at::Tensor& x) {
  CheckNumber<T>(x);
  return static_cast<T*>(x.mutable_data_ptr());
}

template <typename T>
HeadRows<T> ShapeOf(const at::Tensor& heads,
                    const at::Tensor& norm,
                    double eps,
                    const RotaryAngles& angles) {
  return {.rows = heads.size(0),
          .heads = heads.size(1),
          .head_dim = heads.size(2),
          .norm = norm.defined() ? Read<T>(norm) : nullptr,
          .eps = static_cast<float>(eps),
          .cos = Read<T>(angles.cos),
          .sin = Read<T>(angles.sin)};
}

// Returns an uninitialised tensor like x, [rows, columns], whose memory has
// `room` more columns.
at::Tensor WithRoom(const at::Tensor& x, int64_t room) {
  return at::empty({x.size(0), x.size(1) + room}, x.options())
      .narrow(1, 0, x.size(1));
}

// Returns the device's kernels if they take rows of this size, which may be
// parts of wider ones; else null.
const DeviceRows* WideRowsFor(const at::Tensor& x) {
  constexpr int64_t kVector = 8;
  int64_t side_by_side = 1;  // numbers of a row
  for (int64_t dim = x.dim() - 1; dim > 0; --dim) {
    if (x.stride(dim) != side_by_side) return nullptr;
    side_by_side *= x.size(dim);
  }
  const bool fits = x.size(-1) % kVector == 0 && x.stride(0) % kVector == 0 &&
                    x.storage_offset() % kVector == 0;
  return fits ? DeviceRowsFor(x) : nullptr;
}
const DeviceRows* RowsFor(const at::Tensor& x) {
  return x.is_contiguous() ? WideRowsFor(x) : nullptr;
}
const DeviceRows* NormRowsFor(const at::Tensor& x) {
  return x.dim() == 2 && x.size(1) <= kCudaMaxNormSize ? RowsFor(x) : nullptr;
}
const DeviceRows* HeadRowsFor(const at::Tensor& heads) {
  return heads.size(2) <= kMaxHeadDim ? WideRowsFor(heads) : nullptr;
}

at::Tensor NormOnDevice(const DeviceRows& rows,
                        const at::Tensor& x,
                        const at::Tensor& weight,
                        double eps,
                        int64_t room,
                        const at::Tensor& sum) {
  const at::Tensor y = WithRoom(x, room);
  const NormRowsArgs args{
      .rows = x.size(0),
      .size = x.size(1),
      .eps = static_cast<float>(eps),
      .x = x.const_data_ptr(),
      .delta = sum.defined() ? sum.const_data_ptr() : nullptr,
      .sum = sum.defined() ? sum.mutable_data_ptr() : nullptr,
      .weight = weight.const_data_ptr(),
      .y = y.mutable_data_ptr(),
      .y_stride = x.size(1) + room};
  CheckLaunch(rows.norm(&args, NumberOf(x), /*stream=*/nullptr), "a norm");
  return y;
}

RotateRowsArgs RotateArgs(const at::Tensor& heads,
                          const at::Tensor& norm,
                          double eps,
                          const RotaryAngles& angles,
                          const at::Tensor& y) {
  return {.rows = heads.size(0),
          .heads = heads.size(1),
          .head_dim = heads.size(2),
          .eps = static_cast<float>(eps),
          .x = heads.const_data_ptr(),
          .x_stride = heads.stride(0),
          .norm = norm.defined() ? norm.const_data_ptr() : nullptr,
          .cosine = angles.cos.const_data_ptr(),
          .sine = angles.sin.const_data_ptr(),
          .y = y.mutable_data_ptr()};
}

GatedRowsArgs GatedArgs(const at::Tensor& gate,
                        const at::Tensor& up,
                        const at::Tensor& out,
                        int64_t out_stride) {
  return {.rows = gate.size(0),
          .size = gate.size(1),
          .gate = const_cast<void*>(gate.const_data_ptr()),
          .up = const_cast<void*>(up.const_data_ptr()),
          .in_stride = gate.stride(0),
          .out = const_cast<void*>(out.const_data_ptr()),
          .out_stride = out_stride};
}

// Returns the gradient of x in float32, where `grad` is the gradient of
// RmsNorm(x, weight).
at::Tensor NormBackward(const at::Tensor& grad,
                        const at::Tensor& x,
                        const at::Tensor& weight,
                        double eps) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor scale = at::rsqrt(wide.square().mean(-1, true) + eps);
  const at::Tensor normed = wide * scale;
  at::Tensor g = (grad * weight).to(at::kFloat);
  return g.sub_(normed * (g * normed).mean(-1, true)).mul_(scale);
}

}  // namespace

at::Tensor Norm(const at::Tensor& x,
                const at::Tensor& weight,
                double eps,
                int64_t room) {
  if (const DeviceRows* rows = NormRowsFor(x)) {
    return NormOnDevice(*rows, x, weight, eps, room, /*sum=*/{});
  }
  if (!HasCpuKernels(x)) return RmsNorm(x, weight, eps);
  at::Tensor y = at::empty_like(x);
  const int64_t size = x.size(-1);
  WithNumberOf(x, [&]<typename T>(T) {
    NormRows(at::get_num_threads(),
             {.rows = x.numel() / size,
              .size = size,
              .weight = Read<T>(weight),
              .eps = static_cast<float>(eps)},
             Read<T>(x),
             Write<T>(y));
  });
  return y;
}

at::Tensor AddAndNorm(const at::Tensor& x,
                      const at::Tensor& weight,
                      double eps,
                      int64_t room,
                      at::Tensor* sum) {
  if (const DeviceRows* rows = NormRowsFor(x);
      rows != nullptr && sum->is_contiguous()) {
    return NormOnDevice(*rows, x, weight, eps, room, *sum);
  }
  sum->add_(x);
  return Norm(*sum, weight, eps, room);
}

void AddNormBackward(const at::Tensor& grad,
                     const at::Tensor& x,
                     const at::Tensor& weight,
                     double eps,
                     at::Tensor* grad_x) {
  if (const DeviceRows* rows = NormRowsFor(x);
      rows != nullptr && grad.is_contiguous() && grad_x->is_contiguous()) {
    const NormRowsBackwardArgs args{.rows = x.size(0),
                                    .size = x.size(1),
                                    .eps = static_cast<float>(eps),
                                    .grad = grad.const_data_ptr(),
                                    .x = x.const_data_ptr(),
                                    .weight = weight.const_data_ptr(),
                                    .grad_x = grad_x->mutable_data_ptr()};
    CheckLaunch(rows->norm_backward(&args, NumberOf(x), /*stream=*/nullptr),
                "a norm's gradient");
    return;
  }
  if (!HasCpuKernels(x)) {
    grad_x->add_(NormBackward(grad, x, weight, eps));
    return;
  }
  const int64_t size = x.size(-1);
  WithNumberOf(x, [&]<typename T>(T) {
    AddNormBackwardRows(at::get_num_threads(),
                        {.rows = x.numel() / size,
                         .size = size,
                         .weight = Read<T>(weight),
                         .eps = static_cast<float>(eps)},
                        Read<T>(grad),
                        Read<T>(x),
                        Write<T>(*grad_x));
  });
}

at::Tensor NormAndRotate(const at::Tensor& heads,
                         const at::Tensor& norm,
                         double eps,
                         const RotaryAngles& angles) {
  if (const DeviceRows* rows = HeadRowsFor(heads)) {
    const at::Tensor turned = at::empty(heads.sizes(), heads.options());
    const RotateRowsArgs args = RotateArgs(heads, norm, eps, angles, turned);
    CheckLaunch(rows->rotate(&args, NumberOf(heads), /*stream=*/nullptr),
                "a rotation");
    return turned;
  }
  if (!HasCpuKernels(heads)) {
    return ApplyRotary(norm.defined() ? RmsNorm(heads, norm, eps) : heads,
                       angles);
  }
  at::Tensor turned = at::empty(heads.sizes(), heads.options());
  const at::Tensor dense = heads.contiguous();
  WithNumberOf(heads, [&]<typename T>(T) {
    NormAndRotateRows(at::get_num_threads(),
                      ShapeOf<T>(heads, norm, eps, angles),
                      Read<T>(dense),
                      Write<T>(turned));
  });
  return turned;
}

at::Tensor NormAndRotateBackward(at::Tensor grad,
                                 const at::Tensor& heads,
                                 const at::Tensor& norm,
                                 double eps,
                                 const RotaryAngles& angles) {
  if (const DeviceRows* rows = HeadRowsFor(heads)) {
    grad = grad.contiguous();
    const RotateRowsArgs args = RotateArgs(heads, norm, eps, angles, grad);
    CheckLaunch(
        rows->rotate_backward(&args, NumberOf(heads), /*stream=*/nullptr),
        "a rotation's gradient");
    return grad;
  }
  if (HasCpuKernels(heads)) {
    WithNumberOf(heads, [&]<typename T>(T) {
      NormAndRotateBackwardRows(at::get_num_threads(),
                                ShapeOf<T>(heads, norm, eps, angles),
                                Read<T>(heads),
                                Write<T>(grad));
    });
    return grad;
  }
  // A rotation's transpose turns back.
  const at::Tensor turned = ApplyRotary(grad, {angles.cos, -angles.sin});
  if (!norm.defined()) return turned;
  return NormBackward(turned, heads, norm, eps).to(heads.scalar_type());
}

at::Tensor GatedProduct(const at::Tensor& gate,
                        const at::Tensor& up,
                        int64_t room) {
  if (const DeviceRows* rows = WideRowsFor(gate);
      rows != nullptr && up.strides() == gate.strides()) {
    const at::Tensor y = WithRoom(gate, room);
    const GatedRowsArgs args = GatedArgs(gate, up, y, gate.size(1) + room);
    CheckLaunch(rows->gated(&args, NumberOf(gate), /*stream=*/nullptr),
                "a gated product");
    return y;
  }
  if (!HasCpuKernels(gate)) return at::silu(gate).mul_(up);
  at::Tensor y = at::empty(gate.sizes(), gate.options());
  const at::Tensor dense_gate = gate.contiguous();
  const at::Tensor dense_up = up.contiguous();
  WithNumberOf(gate, [&]<typename T>(T) {
    GatedRows(at::get_num_threads(),
              Read<T>(dense_gate),
              Read<T>(dense_up),
              gate.numel(),
              Write<T>(y));
  });
  return y;
}

void GatedProductBackward(const at::Tensor& grad,
                          at::Tensor* gate,
                          at::Tensor* up) {
  if (const DeviceRows* rows = RowsFor(*gate);
      rows != nullptr && grad.is_contiguous()) {
    const GatedRowsArgs args = GatedArgs(*gate, *up, grad, gate->size(1));
    CheckLaunch(rows->gated_backward(&args, NumberOf(grad), /*stream=*/nullptr),
                "a gated product's gradient");
    return;
  }
  if (HasCpuKernels(grad)) {
    WithNumberOf(grad, [&]<typename T>(T) {
      GatedBackwardRows(at::get_num_threads(),
                        Read<T>(grad),
                        grad.numel(),
                        Write<T>(*gate),
                        Write<T>(*up));
    });
    return;
  }
  const at::Tensor grad_gate = at::silu_backward(grad * *up, *gate);
  *up = at::silu(*gate).mul_(grad);
  *gate = grad_gate;
}

}  // namespace dapd
