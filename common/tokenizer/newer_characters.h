// The characters that came after Unicode 14, as Hugging Face's `tokenizers`
// know them (Unicode 16), so that words do not depend on which Unicode the ICU
// of the machine knows: 14 is what each ICU from 70 on has.
#pragma once

#include <cstdint>

namespace dapd {

// A mask of ICU's U_GC_*_MASK for the general category, in which all symbols,
// all marks and all punctuation count as one; 0 if the character is not
// assigned.
uint32_t CategoryMask(int32_t c);

// A character of Unicode 14 with that category for one that came later; any
// other as it is. It is of another plane than those that the expressions of
// tokenizers name.
int32_t OldStandIn(int32_t c);

// Such a character in lower case, by Unicode 17.
int32_t LowerOfNewer(int32_t c);

}  // namespace dapd
