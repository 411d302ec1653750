// Knows the characters that came after Unicode 14, as Hugging Face's
// `tokenizers` (Unicode 16) does. Words then do not depend on the Unicode
// version of the machine's ICU: every ICU from version 70 on has Unicode 14.
#pragma once

#include <cstdint>

namespace dapd {

// Returns one of ICU's masks U_GC_*_MASK for the general category, where all
// symbols, all marks and all punctuation count as one category; 0 if the
// character is not assigned.
uint32_t CategoryMask(int32_t c);

// Returns a character of Unicode 14 with the same category for a character that
// came later, and any other character unchanged. The result is outside the
// planes that the expressions of tokenizers name.
int32_t OldStandIn(int32_t c);

// Returns such a character in lower case, by Unicode 17.
int32_t LowerOfNewer(int32_t c);

}  // namespace dapd
