// The part of cuda_runtime.h in which the lanes of a warp meet: votes and
// shuffles. Include cuda_runtime.h instead.
#pragma once

#include <cstdint>
#include <cstring>

namespace dapd::fake {

// A line of a kernel's source.
struct Site {
  const char* file = "";
  int line = 0;

  bool operator==(const Site&) const = default;
};

enum class WarpOperation { kShuffle, kBallot, kSync };

// The lanes of `mask` meet. Each gets the bits that lane `source` brought; for
// a ballot it gets the lanes that brought a value other than 0.
uint64_t MeetLanes(WarpOperation operation,
                   unsigned mask,
                   uint64_t bits,
                   int source,
                   Site site);
int LaneIndex();

template <typename T>
T ShuffleFrom(int source, unsigned mask, T value, Site site) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = MeetLanes(WarpOperation::kShuffle, mask, bits, source, site);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// Implements mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32, with `sums`
// as c and d.
void MultiplyTile(const uint32_t (&a)[4],
                  const uint32_t (&b)[2],
                  float (&sums)[4],
                  const char* file = __builtin_FILE(),
                  int line = __builtin_LINE());

// Implements four wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 over 64
// rows of `a` and 32 rows of `b`, 128 bytes each, for the calling thread's
// sums. It finds a number where the device would: bits 4 to 6 of an address are
// permuted by bits 7 to 9. How operands are described to the device is not
// simulated.
void MultiplyBoxes(const void* a, const void* b, float (&sums)[16]);

// Implements ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16: each lane brings
// the row that it names.
void TransposeTiles(const uint32_t (&row)[4],
                    uint32_t (&tiles)[4],
                    const char* file = __builtin_FILE(),
                    int line = __builtin_LINE());

}  // namespace dapd::fake

// The last two parameters of the following functions are the place of the call.

inline void __syncwarp(unsigned mask = 0xFFFFFFFFU,
                       const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  dapd::fake::MeetLanes(
      dapd::fake::WarpOperation::kSync, mask, 0, 0, {file, line});
}
inline unsigned __ballot_sync(unsigned mask,
                              int predicate,
                              const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
  return static_cast<unsigned>(
      dapd::fake::MeetLanes(dapd::fake::WarpOperation::kBallot,
                            mask,
                            predicate != 0 ? 1 : 0,
                            0,
                            {file, line}));
}
inline int __any_sync(unsigned mask,
                      int predicate,
                      const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  return __ballot_sync(mask, predicate, file, line) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask,
                      int predicate,
                      const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  return __ballot_sync(mask, predicate, file, line) == mask ? 1 : 0;
}

// Shuffles stay within groups of `width` lanes; a lane that would read outside
// of its group gets its own value back, as on a GPU.
template <typename T>
T __shfl_sync(unsigned mask,
              T value,
              int from,
              int width = 32,
              const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) {
  const int group = dapd::fake::LaneIndex() / width * width;
  return dapd::fake::ShuffleFrom(
      group + (from & (width - 1)), mask, value, {file, line});
}
template <typename T>
T __shfl_xor_sync(unsigned mask,
                  T value,
                  int lanes,
                  int width = 32,
                  const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  const int lane = dapd::fake::LaneIndex();
  const int from = lane ^ lanes;
  return dapd::fake::ShuffleFrom(
      from / width > lane / width ? lane : from, mask, value, {file, line});
}
template <typename T>
T __shfl_up_sync(unsigned mask,
                 T value,
                 unsigned lanes,
                 int width = 32,
                 const char* file = __builtin_FILE(),
                 int line = __builtin_LINE()) {
  const int lane = dapd::fake::LaneIndex();
  const int from = lane - static_cast<int>(lanes);
  return dapd::fake::ShuffleFrom(
      from < lane / width * width ? lane : from, mask, value, {file, line});
}
template <typename T>
T __shfl_down_sync(unsigned mask,
                   T value,
                   unsigned lanes,
                   int width = 32,
                   const char* file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
  const int lane = dapd::fake::LaneIndex();
  const int from = lane + static_cast<int>(lanes);
  return dapd::fake::ShuffleFrom(
      from / width > lane / width ? lane : from, mask, value, {file, line});
}
