#include "common/model/fast/layer_math.h"

#include <type_traits>

#include "common/kernels/bfloat16.h"
#include "common/kernels/training_rows.h"
#include "common/model/reference/decoder_layer.h"

namespace dapd {
namespace {

bool HasKernels(const at::Tensor& x) {
  return x.is_cpu() &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

// body(T{}) with T the kernels' name for x's dtype.
template <typename Body>
void WithNumberOf(const at::Tensor& x, const Body& body) {
  if (x.scalar_type() == at::kBFloat16) {
    body(BFloat16{});
  } else {
    body(float{});
  }
}

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

// The gradient of x in float32, where `grad` is that of RmsNorm(x, weight).
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

at::Tensor Norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (!HasKernels(x)) return RmsNorm(x, weight, eps);
  at::Tensor y = at::empty_like(x);
  const int64_t size = x.size(-1);
  WithNumberOf(x, [&]<typename T>(T) {
    NormRows(at::get_num_threads(),
             Read<T>(x),
             Read<T>(weight),
             x.numel() / size,
             size,
             static_cast<float>(eps),
             Write<T>(y));
  });
  return y;
}

void AddNormBackward(const at::Tensor& grad,
                     const at::Tensor& x,
                     const at::Tensor& weight,
                     double eps,
                     at::Tensor* grad_x) {
  if (!HasKernels(x)) {
    grad_x->add_(NormBackward(grad, x, weight, eps));
    return;
  }
  const int64_t size = x.size(-1);
  WithNumberOf(x, [&]<typename T>(T) {
    AddNormBackwardRows(at::get_num_threads(),
                        Read<T>(grad),
                        Read<T>(x),
                        Read<T>(weight),
                        x.numel() / size,
                        size,
                        static_cast<float>(eps),
                        Write<T>(*grad_x));
  });
}

at::Tensor NormAndRotate(const at::Tensor& heads,
                         const at::Tensor& norm,
                         double eps,
                         const RotaryAngles& angles) {
  if (!HasKernels(heads)) {
    return ApplyRotary(norm.defined() ? RmsNorm(heads, norm, eps) : heads,
                       angles);
  }
  at::Tensor turned = at::empty_like(heads);
  WithNumberOf(heads, [&]<typename T>(T) {
    NormAndRotateRows(at::get_num_threads(),
                      ShapeOf<T>(heads, norm, eps, angles),
                      Read<T>(heads),
                      Write<T>(turned));
  });
  return turned;
}

at::Tensor NormAndRotateBackward(at::Tensor grad,
                                 const at::Tensor& heads,
                                 const at::Tensor& norm,
                                 double eps,
                                 const RotaryAngles& angles) {
  if (HasKernels(heads)) {
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

at::Tensor GatedProduct(const at::Tensor& gate, const at::Tensor& up) {
  if (!HasKernels(gate)) return at::silu(gate).mul_(up);
  at::Tensor y = at::empty_like(gate);
  WithNumberOf(gate, [&]<typename T>(T) {
    GatedRows(at::get_num_threads(),
              Read<T>(gate),
              Read<T>(up),
              gate.numel(),
              Write<T>(y));
  });
  return y;
}

void GatedProductBackward(const at::Tensor& grad,
                          at::Tensor* gate,
                          at::Tensor* up) {
  if (HasKernels(grad)) {
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
