#include "common/tensor/host_tensor.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace dapd {
namespace {

TEST(HostTensorTest, StorageOfEverySizeIsAlignedAndWritable) {
  for (const int64_t size : {0L, 1L, 64L, 4095L, 9L << 20, (16L << 20) + 1}) {
    const auto tensor = HostTensor::Allocate(DType::kUInt8, {size});
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(
        reinterpret_cast<uintptr_t>(tensor->data.get()) % kTensorAlignment, 0U);
    std::memset(tensor->data.get(), 1, static_cast<size_t>(size));
  }
}

TEST(HostTensorTest, RecurringStorageIsHandedOutAgainOnceItIsLetGo) {
  const auto allocate = [](int64_t size) {
    return *HostTensor::AllocateRecurring(DType::kUInt8, {size});
  };
  constexpr int64_t kSize = 20 << 20;
  HostTensor first = allocate(kSize);
  const char* storage = first.data.get();
  HostTensor second = allocate(kSize);
  EXPECT_NE(second.data.get(), storage) << "the first is still in use";
  first = {};
  const HostTensor other = allocate(2 * kSize);
  std::memset(other.data.get(), 1, 2 * kSize);
  const HostTensor third = allocate(kSize);
  EXPECT_EQ(third.data.get(), storage);
  EXPECT_EQ(third.num_bytes(), kSize);
}

// The values have every exponent, with mantissas at both ends and between.
TEST(AllFiniteTest, AgreesWithTheStandardLibrary) {
  std::mt19937 random(5);
  for (uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (const uint32_t mantissa :
         {0U, 1U, 0x7fffffU, static_cast<uint32_t>(random() % 0x800000)}) {
      for (const uint32_t sign : {0U, 1U}) {
        const uint32_t bits = sign << 31 | exponent << 23 | mantissa;
        HostTensor tensor = *HostTensor::Allocate(DType::kFloat32, {37});
        std::memset(tensor.data.get(), 0, 37 * sizeof(float));
        std::memcpy(tensor.data.get() + random() % 37 * 4, &bits, 4);
        EXPECT_EQ(AllFinite(tensor), std::isfinite(std::bit_cast<float>(bits)))
            << std::hex << bits;
      }
    }
  }
}

TEST(AllFiniteTest, TheHalvesHaveTheirOwnExponents) {
  struct Case {
    DType dtype;
    uint16_t bits;
    bool finite;
  };
  for (const Case& c : {Case{DType::kBFloat16, 0x7f7f, true},
                        Case{DType::kBFloat16, 0x7f80, false},
                        Case{DType::kBFloat16, 0xff81, false},
                        Case{DType::kFloat16, 0x7bff, true},
                        Case{DType::kFloat16, 0x7c00, false},
                        Case{DType::kFloat16, 0xfe00, false}}) {
    HostTensor tensor = *HostTensor::Allocate(c.dtype, {1});
    std::memcpy(tensor.data.get(), &c.bits, 2);
    EXPECT_EQ(AllFinite(tensor), c.finite) << std::hex << c.bits;
  }
}

}  // namespace
}  // namespace dapd
