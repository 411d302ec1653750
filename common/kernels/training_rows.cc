#include "common/kernels/training_rows.h"

#include <algorithm>

#include "common/kernels/cpu_level_tables.h"
#include "common/kernels/parallel_for.h"
#include "common/kernels/training_row_cpu_levels.h"

namespace dapd {
namespace {

// Numbers that a thread takes at a time: enough to be worth the scheduling, and
// few enough that all threads end at about the same time.
constexpr int64_t kGrain = 32768;

// Calls body(first, last) over disjoint ranges of rows of `size` numbers.
template <typename Body>
void ForRowRanges(int num_threads,
                  int64_t rows,
                  int64_t size,
                  const Body& body) {
  const int64_t step = std::max<int64_t>(1, kGrain / size);
  ParallelFor(num_threads, (rows + step - 1) / step, [&](int64_t i) {
    body(i * step, std::min(rows, (i + 1) * step));
  });
}

}  // namespace

const TrainingRowKernel& TrainingRows() {
  static CpuLevelTables<TrainingRowKernel> tables({
    .baseline = baseline::MakeTrainingRowKernel,
#if defined(__x86_64__)
    .avx2 = avx2::MakeTrainingRowKernel,
    .avx512 = avx512::MakeTrainingRowKernel,
    .avx512_bf16 = avx512_bf16::MakeTrainingRowKernel,
#endif
  });
  static const TrainingRowKernel& rows = tables.Of(CpuLevelInUse());
  return rows;
}

template <typename T>
void NormRows(int num_threads, const NormShape<T>& shape, const T* x, T* y) {
  const TrainingRowsOf<T>& kernel = TrainingRows().Of<T>();
  const int64_t size = shape.size;
  ForRowRanges(num_threads, shape.rows, size, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * size;
      kernel.norm(x + at, shape.weight, size, shape.eps, y + at);
    }
  });
}

template <typename T>
void AddNormBackwardRows(int num_threads,
                         const NormShape<T>& shape,
                         const T* grad,
                         const T* x,
                         T* grad_x) {
  const TrainingRowsOf<T>& kernel = TrainingRows().Of<T>();
  const int64_t size = shape.size;
  ForRowRanges(num_threads, shape.rows, size, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = row * size;
      kernel.add_norm_backward(
          grad + at, x + at, shape.weight, size, shape.eps, grad_x + at);
    }
  });
}

template <typename T>
void NormAndRotateRows(int num_threads,
                       const HeadRows<T>& shape,
                       const T* x,
                       T* y) {
  const TrainingRowsOf<T>& kernel = TrainingRows().Of<T>();
  const int64_t dim = shape.head_dim;
  ForRowRanges(num_threads,
               shape.rows,
               shape.heads * dim,
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin * shape.heads; i < end * shape.heads;
                      ++i) {
                   const int64_t angle = i / shape.heads * dim;
                   const T* head = x + i * dim;
                   if (shape.norm != nullptr) {
                     kernel.norm(head, shape.norm, dim, shape.eps, y + i * dim);
                     head = y + i * dim;
                   }
                   kernel.rotate(head,
                                 shape.cos + angle,
                                 shape.sin + angle,
                                 dim,
                                 1.0F,
                                 y + i * dim);
                 }
               });
}

template <typename T>
void NormAndRotateBackwardRows(int num_threads,
                               const HeadRows<T>& shape,
                               const T* x,
                               T* grad) {
  const TrainingRowsOf<T>& kernel = TrainingRows().Of<T>();
  const int64_t dim = shape.head_dim;
  ForRowRanges(
      num_threads,
      shape.rows,
      shape.heads * dim,
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin * shape.heads; i < end * shape.heads; ++i) {
          const int64_t angle = i / shape.heads * dim;
          T* head = grad + i * dim;
          // A rotation's transpose turns back.
          kernel.rotate(
              head, shape.cos + angle, shape.sin + angle, dim, -1.0F, head);
          if (shape.norm != nullptr) {
            kernel.norm_backward(x + i * dim, shape.norm, dim, shape.eps, head);
          }
        }
      });
}

template <typename T>
void GatedRows(
    int num_threads, const T* gate, const T* up, int64_t count, T* y) {
  const TrainingRowsOf<T>& kernel = TrainingRows().Of<T>();
  ForRowRanges(num_threads, count, 1, [&](int64_t begin, int64_t end) {
    kernel.gated(gate + begin, up + begin, end - begin, y + begin);
  });
}

template <typename T>
void GatedBackwardRows(
    int num_threads, const T* grad, int64_t count, T* gate, T* up) {
  const TrainingRowsOf<T>& kernel = TrainingRows().Of<T>();
  ForRowRanges(num_threads, count, 1, [&](int64_t begin, int64_t end) {
    kernel.gated_backward(grad + begin, end - begin, gate + begin, up + begin);
  });
}

// clang-format off
#define DAPD_INSTANTIATE(T)                                                   \
  template void NormRows(int, const NormShape<T>&, const T*, T*);             \
  template void AddNormBackwardRows(int, const NormShape<T>&, const T*, const T*, T*); \
  template void NormAndRotateRows(int, const HeadRows<T>&, const T*, T*);     \
  template void NormAndRotateBackwardRows(int, const HeadRows<T>&, const T*, T*); \
  template void GatedRows(int, const T*, const T*, int64_t, T*);              \
  template void GatedBackwardRows(int, const T*, int64_t, T*, T*);
// clang-format on

DAPD_INSTANTIATE(float)
DAPD_INSTANTIATE(BFloat16)

}  // namespace dapd
