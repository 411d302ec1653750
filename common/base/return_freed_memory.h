// Memory that was freed and is still this process's.
#pragma once

namespace dapd {

// Gives the system the memory that this process has freed. glibc keeps it by
// itself: the more, the larger what was freed at once. For after a large
// temporary thing, such as weights before they are packed; takes milliseconds.
void ReturnFreedMemory();

}  // namespace dapd
