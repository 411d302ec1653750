// Chooses the kernels of a CpuLevel. A source that is compiled once per level
// defines, in the namespace of its level, a function that makes a table of that
// level's kernels. This function is itself compiled for its level: on a
// processor without the level's instructions a call may end the process by
// SIGILL, even if none of the kernels is called. Therefore only that function
// makes the table, and only when the level is asked for.
// tests/deploy/test_cpu_levels.py checks in the object files that nothing else
// calls these functions.
#pragma once

#include <mutex>

#include "common/base/check.h"
#include "common/kernels/cpu_features.h"

namespace dapd {

// The functions that make a table. A level without kernels of its own has null
// here and takes the kernels of the level below.
template <typename Table>
struct CpuLevelMakers {
  using Make = Table (*)();
  Make baseline;  // never null
  Make avx2 = nullptr;
  Make avx512 = nullptr;
  Make avx512_bf16 = nullptr;
  Make amx = nullptr;
};

// Thread-safe. The tables live as long as this object.
template <typename Table>
class CpuLevelTables {
 public:
  explicit CpuLevelTables(const CpuLevelMakers<Table>& makers)
      : tables_{{makers.baseline},
                {makers.avx2},
                {makers.avx512},
                {makers.avx512_bf16},
                {makers.amx}} {}

  // Returns the table of `level`. The process ends if this machine lacks the
  // level.
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
