#include "common/base/return_freed_memory.h"

#include <malloc.h>

namespace dapd {

void ReturnFreedMemory() { ::malloc_trim(/*pad=*/0); }

}  // namespace dapd
