// Returns freed memory to the operating system.
#pragma once

namespace dapd {

// glibc keeps freed memory, more of it the larger the freed blocks were. Call
// this after a large temporary object is freed, such as weights before they are
// packed. It takes milliseconds.
void ReturnFreedMemory();

}  // namespace dapd
