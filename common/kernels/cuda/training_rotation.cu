#include <limits>

#include "common/kernels/cuda/training_launch.cuh"
#include "common/kernels/cuda/training_vectors.cuh"
#include "common/kernels/decode_attention_math.h"
#include "common/kernels/decode_layer_math.h"
#include "common/kernels/training_row_math.h"

namespace dapd {
namespace {

// Consecutive heads of a row that a team of lanes processes together. The team
// loads the angles and the norm's weights once, and begins all loads before it
// uses the first loaded value. In the backward pass, where a head needs twice
// as much data, a team takes one head.
constexpr int kTeamHeads = 2;

// Small blocks fit better into the registers.
constexpr int kThreads = 128;

// The part of a head that a lane holds, or of the norm or angles at the same
// place: the pairs (i, i + head_dim / 2) for kNumbers consecutive i.
template <typename T, int kNumbers>
struct HeadPart {
  NumberVector<T, kNumbers> half[2];

  // `size` is the size of half a head.
  __device__ void Load(bool is_in, const T* from, int size) {
    LoadIf(is_in, from, half[0]);
    LoadIf(is_in, from + size, half[1]);
  }

  __device__ void StoreAt(bool is_in, T* to, int size) const {
    StoreIf(is_in, to, half[0]);
    StoreIf(is_in, to + size, half[1]);
  }

  // Calls f with references to every pair and to the pairs at the same place in
  // `others`.
  template <typename F, typename... Parts>
  __device__ void ForPairs(const F& f, const Parts&... others) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int k = 0; k < kNumbers / 2; ++k) {
        f(half[i].pair[k], others.half[i].pair[k]...);
      }
    }
  }
};

// The place where a team works, and its lane.
template <typename T, int kNumbers, int kLanes>
struct TeamPlace {
  int heads;  // existing heads of the team; 0 for a lane outside the head
  int dim;
  int half;
  int column;  // the lane's first number of a head
  // Offsets of the lane's first number of the team's first head in args.x,
  // args.y and the angles.
  int64_t x;
  int64_t y;
  int64_t angles;

  __device__ TeamPlace(const RotateRowsArgs& args, int team_heads)
      : dim(static_cast<int>(args.head_dim)),
        half(dim / 2),
        column(static_cast<int>(threadIdx.x % kLanes) * kNumbers) {
    const unsigned team =
        blockIdx.x * (kThreads / kLanes) + threadIdx.x / kLanes;
    const auto all = static_cast<unsigned>(args.heads);
    const unsigned teams = (all + team_heads - 1) / team_heads;  // per row
    const unsigned row = team / teams;
    const unsigned head = (team - row * teams) * team_heads;
    const bool is_there = row < args.rows && column < half;
    heads = is_there ? min(static_cast<int>(all - head), team_heads) : 0;
    x = row * args.x_stride + head * dim + column;
    y = (static_cast<int64_t>(row) * all + head) * dim + column;
    angles = static_cast<int64_t>(row) * dim + column;
  }
};

// The angles by which a lane's pairs are rotated.
template <typename T, int kNumbers>
struct Angles {
  NumberVector<T, kNumbers> cosine;
  NumberVector<T, kNumbers> sine;

  __device__ Angles(const RotateRowsArgs& args, bool is_in, int64_t at) {
    LoadIf(is_in, static_cast<const T*>(args.cosine) + at, cosine);
    LoadIf(is_in, static_cast<const T*>(args.sine) + at, sine);
  }
};

// Applies Rotate (decode_layer_math.h) to two pairs.
template <typename T>
__device__ void Turn(NumberPair<T>& first,
                     NumberPair<T>& second,
                     NumberPair<T> cosine,
                     NumberPair<T> sine) {
  const NumberPair<T> turned =
      Sum(Product(first, cosine), Product(second, Negative(sine)));
  second = Sum(Product(second, cosine), Product(first, sine));
  first = turned;
}

template <typename T, int kNumbers, int kLanes>
__global__ __launch_bounds__(kThreads) void RotateRowsKernel(
    RotateRowsArgs args) {
  const TeamPlace<T, kNumbers, kLanes> place(args, kTeamHeads);
  const bool has_norm = args.norm != nullptr;
  HeadPart<T, kNumbers> heads[kTeamHeads];
#pragma unroll
  for (int j = 0; j < kTeamHeads; ++j) {
    heads[j].Load(j < place.heads,
                  static_cast<const T*>(args.x) + place.x + j * place.dim,
                  place.half);
  }
  const Angles<T, kNumbers> angles(args, place.heads > 0, place.angles);
  HeadPart<T, kNumbers> norm;
  norm.Load(place.heads > 0 && has_norm,
            static_cast<const T*>(args.norm) + place.column,
            place.half);
#pragma unroll
  for (int j = 0; j < kTeamHeads; ++j) {
    HeadPart<T, kNumbers>& head = heads[j];
    if (has_norm) {
      float squares = 0.0F;
      head.ForPairs([&](auto a) { squares = AddProducts(a, a, squares); });
      const float scale =
          NormScale(ButterflySum<kLanes>(squares), args.head_dim, args.eps);
      head.ForPairs([&](auto& a, auto w) { a = NormalizedPair(a, scale, w); },
                    norm);
    }
#pragma unroll
    for (int k = 0; k < kNumbers / 2; ++k) {
      Turn(head.half[0].pair[k],
           head.half[1].pair[k],
           angles.cosine.pair[k],
           angles.sine.pair[k]);
    }
    head.StoreAt(j < place.heads,
                 static_cast<T*>(args.y) + place.y + j * place.dim,
                 place.half);
  }
}

// The gradient of a lane's part of a head, in float32.
template <typename T, int kNumbers>
struct HeadGradient {
  HeadPart<float, kNumbers> part;

  // Sets the gradient before the rotation from `grad`, the gradient of the
  // result.
  __device__ HeadGradient(const HeadPart<T, kNumbers>& grad,
                          const Angles<T, kNumbers>& angles) {
#pragma unroll
    for (int k = 0; k < kNumbers / 2; ++k) {
      const NumberPair<T> a = grad.half[0].pair[k];
      const NumberPair<T> b = grad.half[1].pair[k];
      const NumberPair<T> c = angles.cosine.pair[k];
      const NumberPair<T> s = angles.sine.pair[k];
      const PairGradient one =
          RotateBack(First(a), First(b), First(c), First(s));
      const PairGradient two =
          RotateBack(Second(a), Second(b), Second(c), Second(s));
      part.half[0].pair[k] = RoundedPair<float>(one.first, two.first);
      part.half[1].pair[k] = RoundedPair<float>(one.second, two.second);
    }
  }

  // Turns it into the gradient of the norm's input x.
  template <int kLanes>
  __device__ void PullThroughNorm(const HeadPart<T, kNumbers>& x,
                                  const HeadPart<T, kNumbers>& norm,
                                  const RotateRowsArgs& args) {
    float squares = 0.0F;
    float products = 0.0F;
    part.ForPairs(
        [&](auto& g, auto a, auto w) {
          g = RoundedPair<float>(First(g) * First(w), Second(g) * Second(w));
          squares = AddProducts(a, a, squares);
          products = AddProducts(g, a, products);
        },
        x,
        norm);
    squares = ButterflySum<kLanes>(squares);
    products = ButterflySum<kLanes>(products);
    const float r = NormScale(squares, args.head_dim, args.eps);
    const float mean = NormMean(products, r, args.head_dim);
    part.ForPairs(
        [&](auto& g, auto a) {
          g = RoundedPair<float>(NormGradient(First(g), First(a), r, mean),
                                 NormGradient(Second(g), Second(a), r, mean));
        },
        x);
  }

  __device__ HeadPart<T, kNumbers> Rounded() const {
    HeadPart<T, kNumbers> rounded;
    rounded.ForPairs(
        [](auto& to, auto g) { to = RoundedPair<T>(First(g), Second(g)); },
        part);
    return rounded;
  }
};

template <typename T, int kNumbers, int kLanes>
__global__ __launch_bounds__(kThreads) void RotateRowsBackwardKernel(
    RotateRowsArgs args) {
  const TeamPlace<T, kNumbers, kLanes> place(args, /*team_heads=*/1);
  const bool is_there = place.heads > 0;
  const bool has_norm = args.norm != nullptr;
  T* const y = static_cast<T*>(args.y) + place.y;
  HeadPart<T, kNumbers> grad;
  HeadPart<T, kNumbers> x;
  HeadPart<T, kNumbers> norm;
  grad.Load(is_there, y, place.half);
  x.Load(is_there && has_norm,
         static_cast<const T*>(args.x) + place.x,
         place.half);
  const Angles<T, kNumbers> angles(args, is_there, place.angles);
  norm.Load(is_there && has_norm,
            static_cast<const T*>(args.norm) + place.column,
            place.half);
  HeadGradient<T, kNumbers> pull(grad, angles);
  if (has_norm) pull.template PullThroughNorm<kLanes>(x, norm, args);
  pull.Rounded().StoreAt(is_there, y, place.half);
}

struct Forward {
  static constexpr int kHeads = kTeamHeads;
  template <typename T, int kNumbers, int kLanes>
  static constexpr auto kKernel = RotateRowsKernel<T, kNumbers, kLanes>;
};
struct Backward {
  static constexpr int kHeads = 1;
  template <typename T, int kNumbers, int kLanes>
  static constexpr auto kKernel = RotateRowsBackwardKernel<T, kNumbers, kLanes>;
};

template <typename Pass, typename T, int kNumbers, int kLanes>
int LaunchTeams(const RotateRowsArgs& args, void* stream) {
  if (args.rows == 0) return 0;
  const int64_t teams = args.rows * NumBlocks(args.heads, Pass::kHeads);
  // Teams are counted in 32 bits: a division of larger numbers takes as long as
  // the rest of the kernel.
  if (teams > std::numeric_limits<int32_t>::max()) {
    return static_cast<int>(cudaErrorInvalidValue);
  }
  return LaunchOn<Pass::template kKernel<T, kNumbers, kLanes>>(
      stream,
      Begin::kInTurn,
      dim3(NumBlocks(teams, kThreads / kLanes)),
      kThreads,
      args);
}

// A lane loads 16 bytes of each half of a head if the head can be cut that way.
// A team has as many lanes as a head of 128 or of kMaxHeadDim numbers needs.
template <typename Pass>
int Launch(const RotateRowsArgs& args, CudaNumber number, void* stream) {
  return LaunchFor(number, [&](auto t) {
    using T = decltype(t);
    constexpr int kWide = 16 / sizeof(T);
    const int64_t half = args.head_dim / 2;
    if (half % kWide != 0) {
      constexpr int kNarrow = 4;  // sizes are multiples of 8
      return LaunchTeams<Pass, T, kNarrow, kMaxHeadDim / 2 / kNarrow>(args,
                                                                      stream);
    }
    if (half > 64) {
      return LaunchTeams<Pass, T, kWide, kMaxHeadDim / 2 / kWide>(args, stream);
    }
    return LaunchTeams<Pass, T, kWide, 64 / kWide>(args, stream);
  });
}

}  // namespace

extern "C" int DapdCudaRotateRows(const RotateRowsArgs* args,
                                  CudaNumber number,
                                  void* stream) {
  return Launch<Forward>(*args, number, stream);
}

extern "C" int DapdCudaRotateRowsBackward(const RotateRowsArgs* args,
                                          CudaNumber number,
                                          void* stream) {
  return Launch<Backward>(*args, number, stream);
}

}  // namespace dapd
