#include "tests/fakes/device_rows_on_host.h"

#include <cmath>
#include <utility>
#include <vector>

#include "common/kernels/decode_layer_math.h"
#include "common/kernels/training_row_math.h"
#include "common/model/fast/device_rows.h"

namespace dapd {
namespace {

using T = BFloat16;

int64_t row_bytes = 0;
int64_t row_launches = 0;

// Counts a launch and its numbers.
void Count(int64_t numbers) {
  ++row_launches;
  row_bytes += numbers * static_cast<int64_t>(sizeof(T));
}

const T* Read(const void* data) { return static_cast<const T*>(data); }
T* Write(void* data) { return static_cast<T*>(data); }

float ScaleOf(const T* x, int64_t size, float eps) {
  float sum = 0.0F;
  for (int64_t i = 0; i < size; ++i) sum += ToFloat(x[i]) * ToFloat(x[i]);
  return NormScale(sum, size, eps);
}

int Norm(const NormRowsArgs* args, CudaNumber, void*) {
  const int64_t size = args->size;
  for (int64_t row = 0; row < args->rows; ++row) {
    const T* x = Read(args->x) + row * size;
    if (args->delta != nullptr) {
      T* sum = Write(args->sum) + row * size;
      for (int64_t i = 0; i < size; ++i) {
        sum[i] = AddResidual(x[i], Read(args->delta)[row * size + i], 0.0F);
      }
      x = sum;
    }
    const float scale = ScaleOf(x, size, args->eps);
    for (int64_t i = 0; i < size; ++i) {
      Write(args->y)[row * args->y_stride + i] =
          Normalized(ToFloat(x[i]), scale, Read(args->weight)[i]);
    }
  }
  Count((args->delta == nullptr ? 2 : 4) * args->rows * size + size);
  return 0;
}

// `pull` is the gradient of y times the weight.
void NormGradients(const T* x,
                   const std::vector<float>& pull,
                   float eps,
                   std::vector<float>* grad) {
  const auto size = static_cast<int64_t>(pull.size());
  const float r = ScaleOf(x, size, eps);
  float products = 0.0F;
  for (int64_t i = 0; i < size; ++i) products += pull[i] * ToFloat(x[i]);
  const float mean = NormMean(products, r, size);
  for (int64_t i = 0; i < size; ++i) {
    (*grad)[i] = NormGradient(pull[i], ToFloat(x[i]), r, mean);
  }
}

int NormBackward(const NormRowsBackwardArgs* args, CudaNumber, void*) {
  const int64_t size = args->size;
  std::vector<float> pull(static_cast<size_t>(size));
  std::vector<float> grad(pull.size());
  for (int64_t row = 0; row < args->rows; ++row) {
    const int64_t begin = row * size;
    for (int64_t i = 0; i < size; ++i) {
      pull[i] =
          ToFloat(Read(args->grad)[begin + i]) * ToFloat(Read(args->weight)[i]);
    }
    NormGradients(Read(args->x) + begin, pull, args->eps, &grad);
    for (int64_t i = 0; i < size; ++i) {
      T& to = Write(args->grad_x)[begin + i];
      to = FromFloat<T>(ToFloat(to) + grad[i]);
    }
  }
  Count(4 * args->rows * size + size);
  return 0;
}

// `head` counts over all rows.
const T* HeadOf(const RotateRowsArgs& args, int64_t head) {
  return Read(args.x) + head / args.heads * args.x_stride +
         head % args.heads * args.head_dim;
}

int RotateForward(const RotateRowsArgs* args, CudaNumber, void*) {
  const int64_t dim = args->head_dim;
  for (int64_t head = 0; head < args->rows * args->heads; ++head) {
    const T* x = HeadOf(*args, head);
    std::vector<T> values(x, x + dim);
    if (args->norm != nullptr) {
      const float scale = ScaleOf(x, dim, args->eps);
      for (int64_t i = 0; i < dim; ++i) {
        values[i] = Normalized(ToFloat(x[i]), scale, Read(args->norm)[i]);
      }
    }
    const int64_t angle = head / args->heads * dim;
    for (int64_t i = 0; i < dim / 2; ++i) {
      const RotatedPair pair = Rotate(ToFloat(values[i]),
                                      ToFloat(values[i + dim / 2]),
                                      Read(args->cosine)[angle + i],
                                      Read(args->sine)[angle + i]);
      Write(args->y)[head * dim + i] = FromFloat<T>(pair.first);
      Write(args->y)[head * dim + i + dim / 2] = FromFloat<T>(pair.second);
    }
  }
  Count((2 * args->heads + 1) * args->rows * dim);
  return 0;
}

int RotateGradients(const RotateRowsArgs* args, CudaNumber, void*) {
  const int64_t dim = args->head_dim;
  std::vector<float> pull(static_cast<size_t>(dim));
  std::vector<float> grad(pull.size());
  for (int64_t head = 0; head < args->rows * args->heads; ++head) {
    T* y = Write(args->y) + head * dim;
    const int64_t angle = head / args->heads * dim;
    for (int64_t i = 0; i < dim / 2; ++i) {
      const PairGradient pair =
          RotateBack(ToFloat(y[i]),
                     ToFloat(y[i + dim / 2]),
                     ToFloat(Read(args->cosine)[angle + i]),
                     ToFloat(Read(args->sine)[angle + i]));
      pull[i] = pair.first;
      pull[i + dim / 2] = pair.second;
    }
    if (args->norm != nullptr) {
      for (int64_t i = 0; i < dim; ++i) pull[i] *= ToFloat(Read(args->norm)[i]);
      NormGradients(HeadOf(*args, head), pull, args->eps, &grad);
      pull.swap(grad);
    }
    for (int64_t i = 0; i < dim; ++i) y[i] = FromFloat<T>(pull[i]);
  }
  Count(((args->norm == nullptr ? 2 : 3) * args->heads + 1) * args->rows * dim);
  return 0;
}

int Gate(const GatedRowsArgs* args, CudaNumber, void*) {
  for (int64_t i = 0; i < args->rows * args->size; ++i) {
    const int64_t from = i / args->size * args->in_stride + i % args->size;
    Write(args->out)[i / args->size * args->out_stride + i % args->size] =
        Gated<T>(ToFloat(Read(args->gate)[from]),
                 ToFloat(Read(args->up)[from]));
  }
  Count(3 * args->rows * args->size);
  return 0;
}

int GateGradients(const GatedRowsArgs* args, CudaNumber, void*) {
  for (int64_t i = 0; i < args->rows * args->size; ++i) {
    const int64_t at = i / args->size * args->out_stride + i % args->size;
    const int64_t in = i / args->size * args->in_stride + i % args->size;
    const GatedGradients found = GatedBackward(ToFloat(Read(args->out)[at]),
                                               ToFloat(Read(args->gate)[in]),
                                               ToFloat(Read(args->up)[in]));
    Write(args->gate)[in] = FromFloat<T>(found.gate);
    Write(args->up)[in] = FromFloat<T>(found.up);
  }
  Count(5 * args->rows * args->size);
  return 0;
}

constexpr DeviceRows kRows = {
    Norm, NormBackward, RotateForward, RotateGradients, Gate, GateGradients};

}  // namespace

namespace fake {

int64_t TakeRowBytes() { return std::exchange(row_bytes, 0); }
int64_t TakeRowLaunches() { return std::exchange(row_launches, 0); }

}  // namespace fake

const DeviceRows* DeviceRowsFor(const at::Tensor& x) {
  return x.is_cuda() && x.scalar_type() == at::kBFloat16 ? &kRows : nullptr;
}

CudaNumber NumberOf(const at::Tensor& /*x*/) { return CudaNumber::kBFloat16; }

}  // namespace dapd
