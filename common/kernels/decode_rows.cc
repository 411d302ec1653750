// The element-wise kernels of decode_kernels.h. This file is compiled once per
// CPU level.
#include "common/kernels/decode_kernel_cpu_levels.h"
#include "common/kernels/simd.h"

namespace dapd::DAPD_CPU_LEVEL_NAMESPACE {
namespace {

// Calls a function template with `round` as its argument.
#define DAPD_DISPATCH_ROUND(function, ...) \
  return round ? function<true>(__VA_ARGS__) : function<false>(__VA_ARGS__)

float MaxOf(const float* values, int64_t size) {
  Floats largest = LoadPart(values, size, values[0]);
  for (int64_t i = kLanes; i < size; i += kLanes) {
    const Floats v = LoadPart(values + i, size - i, values[0]);
    largest = v > largest ? v : largest;
  }
  return Largest(largest);
}

template <bool kRound>
void RmsNormOf(
    const float* x, const float* weight, int64_t size, float eps, float* out) {
  Floats squares = {};
  for (int64_t i = 0; i < size; i += kLanes) {
    const Floats v = LoadPart(x + i, size - i, 0.0F);
    squares += v * v;
  }
  const float scale =
      1.0F / __builtin_sqrtf(Sum(squares) / static_cast<float>(size) + eps);
  for (int64_t i = 0; i < size; i += kLanes) {
    const Floats v = LoadPart(x + i, size - i, 0.0F);
    const Floats w = LoadPart(weight + i, size - i, 0.0F);
    StorePart(
        Rounded<kRound>(w * Rounded<kRound>(v * scale)), size - i, out + i);
  }
}

void RmsNorm(const float* x,
             const float* weight,
             int64_t size,
             float eps,
             bool round,
             float* out) {
  DAPD_DISPATCH_ROUND(RmsNormOf, x, weight, size, eps, out);
}

template <bool kRound>
void RotateOf(float* head, const float* cos, const float* sin, int64_t size) {
  const int64_t half = size / 2;
  for (int64_t i = 0; i < half; i += kLanes) {
    const int64_t left = half - i;
    const Floats first = LoadPart(head + i, left, 0.0F);
    const Floats second = LoadPart(head + half + i, left, 0.0F);
    const Floats c = LoadPart(cos + i, left, 0.0F);
    const Floats s = LoadPart(sin + i, left, 0.0F);
    StorePart(Rounded<kRound>(Rounded<kRound>(first * c) -
                              Rounded<kRound>(second * s)),
              left,
              head + i);
    StorePart(Rounded<kRound>(Rounded<kRound>(second * c) +
                              Rounded<kRound>(first * s)),
              left,
              head + half + i);
  }
}

void Rotate(
    float* head, const float* cos, const float* sin, int64_t size, bool round) {
  DAPD_DISPATCH_ROUND(RotateOf, head, cos, sin, size);
}

template <bool kRound>
void GatedOf(const float* gate, const float* up, int64_t size, float* out) {
  for (int64_t i = 0; i < size; i += kLanes) {
    const Floats g = LoadPart(gate + i, size - i, 0.0F);
    const Floats u = LoadPart(up + i, size - i, 0.0F);
    const Floats silu = Rounded<kRound>(g / (1.0F + Exp(-g)));
    StorePart(Rounded<kRound>(silu * u), size - i, out + i);
  }
}

void Gated(
    const float* gate, const float* up, int64_t size, bool round, float* out) {
  DAPD_DISPATCH_ROUND(GatedOf, gate, up, size, out);
}

// A null pointer stays null, since no offset may be added to it.
const float* LineOf(const float* lines, int64_t offset) {
  return lines == nullptr ? nullptr : lines + offset;
}

template <bool kRound>
void CombineOf(const CombinedRows& rows) {
  for (int64_t row = 0; row < rows.rows; ++row) {
    const float* y = rows.y + row * rows.y_stride;
    const float* update = LineOf(rows.update, row * rows.update_stride);
    const float* residual = LineOf(rows.residual, row * rows.out_stride);
    float* out = rows.out + row * rows.out_stride;
    for (int64_t i = 0; i < rows.size; i += kLanes) {
      const int64_t left = rows.size - i;
      Floats value = LoadPart(y + i, left, 0.0F);
      if (rows.bias != nullptr) value += LoadPart(rows.bias + i, left, 0.0F);
      value = Rounded<kRound>(value);
      if (update != nullptr) {
        value = Rounded<kRound>(value +
                                LoadPart(update + i, left, 0.0F) * rows.scale);
      }
      if (residual != nullptr) {
        value = Rounded<kRound>(LoadPart(residual + i, left, 0.0F) + value);
      }
      StorePart(value, left, out + i);
    }
  }
}

void Combine(const CombinedRows& rows) {
  return rows.round ? CombineOf<true>(rows) : CombineOf<false>(rows);
}

void Softmax(float* scores, int64_t length, int64_t padded, float scale) {
  const float largest = MaxOf(scores, length);
  Floats sums = {};
  for (int64_t i = 0; i < length; i += kLanes) {
    const int64_t left = length - i;
    Floats p = Exp((LoadPart(scores + i, left, largest) - largest) * scale);
    for (int64_t lane = left; lane < kLanes; ++lane) p[lane] = 0.0F;
    sums += p;
    StorePart(p, left, scores + i);
  }
  const float inverse = 1.0F / Sum(sums);
  for (int64_t i = 0; i < length; i += kLanes) {
    StorePart(LoadPart(scores + i, length - i, 0.0F) * inverse,
              length - i,
              scores + i);
  }
  for (int64_t i = length; i < padded; ++i) scores[i] = 0.0F;
}

bool ChunkMaxima(const float* logits, int64_t size, float* maxima) {
  // The sum stays 0 as long as every logit is finite.
  Floats witness = {};
  for (int64_t begin = 0; begin < size; begin += kMaximaChunk) {
    const int64_t count =
        size - begin < kMaximaChunk ? size - begin : kMaximaChunk;
    maxima[begin / kMaximaChunk] = MaxOf(logits + begin, count);
    for (int64_t i = begin; i < begin + count; i += kLanes) {
      witness += LoadPart(logits + i, begin + count - i, 0.0F) * 0.0F;
    }
  }
  return Sum(witness) == 0.0F;
}

double SumExp(const float* logits, int64_t size, float largest) {
  // Sums are float32 within a stretch and double across stretches.
  constexpr int64_t kStretch = 1024;
  double sum = 0.0;
  for (int64_t begin = 0; begin < size; begin += kStretch) {
    const int64_t end = size - begin < kStretch ? size : begin + kStretch;
    Floats sums = {};
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      sums += Exp(Load<Floats>(logits + i) - largest);
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      sum += static_cast<double>(sums[lane]);
    }
    if (i < end) {
      const Floats rest = Exp(LoadPart(logits + i, end - i, largest) - largest);
      for (int64_t lane = 0; lane < end - i; ++lane) {
        sum += static_cast<double>(rest[lane]);
      }
    }
  }
  return sum;
}

}  // namespace

void AddRowKernels(DecodeKernels* kernels) {
  kernels->rms_norm = RmsNorm;
  kernels->rotate = Rotate;
  kernels->gated = Gated;
  kernels->combine = Combine;
  kernels->softmax = Softmax;
  kernels->chunk_maxima = ChunkMaxima;
  kernels->sum_exp = SumExp;
}

}  // namespace dapd::DAPD_CPU_LEVEL_NAMESPACE
