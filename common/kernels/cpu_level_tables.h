// How the kernels of a CpuLevel are chosen, in one way for all of them. A
// source that is compiled once per level gives, in the namespace of its level,
// a function that makes a table of that level's kernels. Such a function is
// compiled for its level like the kernels are: on a processor that lacks the
// level's instructions, calling it may end the process by SIGILL, even if none
// of its kernels is called. Therefore a table is made by its level's function
// alone, and only when that level is asked for.
// tests/deploy/test_cpu_levels.py reads in the objects that nothing else calls
// these functions.
#pragma once

#include <mutex>

#include "common/base/check.h"
#include "common/kernels/cpu_features.h"

namespace dapd {

// The functions that make a table. Null at a level that has no kernels of its
// own: it takes those of the level below.
template <typename Table>
struct CpuLevelMakers {
  using Make = Table (*)();
  Make baseline;  // never null
  Make avx2 = nullptr;
  Make avx512 = nullptr;
  Make avx512_bf16 = nullptr;
  Make amx = nullptr;
};

// Thread-safe. The tables live as long as this does.
template <typename Table>
class CpuLevelTables {
 public:
  explicit CpuLevelTables(const CpuLevelMakers<Table>& makers)
      : tables_{{makers.baseline},
                {makers.avx2},
                {makers.avx512},
                {makers.avx512_bf16},
                {makers.amx}} {}

  // The table of `level`. The process ends if this machine lacks the level.
  const Table& Of(CpuLevel level) {
    Check(level <= MachineCpuLevel(),
          "kernels were asked for whose instructions this processor lacks");
    auto index = static_cast<int>(level);
    while (tables_[index].make == nullptr) --index;
    OneLevel& one = tables_[index];
    std::call_once(one.made, [&one] { one.table = one.make(); });
    return one.table;
  }

 private:
  struct OneLevel {
    typename CpuLevelMakers<Table>::Make make;
    std::once_flag made;
    Table table{};
  };
  OneLevel tables_[5];  // by CpuLevel
};

}  // namespace dapd
