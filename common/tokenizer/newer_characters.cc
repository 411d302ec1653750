#include "common/tokenizer/newer_characters.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <iterator>

namespace dapd {
namespace {

struct Newer {
  int32_t first;
  int32_t last;
  uint32_t category;
};

// tests/oracle/test_tokenizer.py compares all characters with `tokenizers`.
constexpr Newer kNewer[] = {
    {0x897, 0x897, U_GC_MN_MASK},     {0xCF3, 0xCF3, U_GC_MN_MASK},
    {0xECE, 0xECE, U_GC_MN_MASK},     {0x1B4E, 0x1B4F, U_GC_PO_MASK},
    {0x1B7F, 0x1B7F, U_GC_PO_MASK},   {0x1C89, 0x1C89, U_GC_LU_MASK},
    {0x1C8A, 0x1C8A, U_GC_LL_MASK},   {0x2427, 0x2429, U_GC_SO_MASK},
    {0x2FFC, 0x2FFF, U_GC_SO_MASK},   {0x31E4, 0x31E5, U_GC_SO_MASK},
    {0x31EF, 0x31EF, U_GC_SO_MASK},   {0xA7CB, 0xA7CC, U_GC_LU_MASK},
    {0xA7CD, 0xA7CD, U_GC_LL_MASK},   {0xA7DA, 0xA7DA, U_GC_LU_MASK},
    {0xA7DB, 0xA7DB, U_GC_LL_MASK},   {0xA7DC, 0xA7DC, U_GC_LU_MASK},
    {0x105C0, 0x105F3, U_GC_LO_MASK}, {0x10D40, 0x10D49, U_GC_ND_MASK},
    {0x10D4A, 0x10D4D, U_GC_LO_MASK}, {0x10D4E, 0x10D4E, U_GC_LM_MASK},
    {0x10D4F, 0x10D4F, U_GC_LO_MASK}, {0x10D50, 0x10D65, U_GC_LU_MASK},
    {0x10D69, 0x10D6D, U_GC_MN_MASK}, {0x10D6E, 0x10D6E, U_GC_PO_MASK},
    {0x10D6F, 0x10D6F, U_GC_LM_MASK}, {0x10D70, 0x10D85, U_GC_LL_MASK},
    {0x10D8E, 0x10D8F, U_GC_SO_MASK}, {0x10EC2, 0x10EC4, U_GC_LO_MASK},
    {0x10EFC, 0x10EFF, U_GC_MN_MASK}, {0x1123F, 0x11240, U_GC_LO_MASK},
    {0x11241, 0x11241, U_GC_MN_MASK}, {0x11380, 0x11389, U_GC_LO_MASK},
    {0x1138B, 0x1138B, U_GC_LO_MASK}, {0x1138E, 0x1138E, U_GC_LO_MASK},
    {0x11390, 0x113B5, U_GC_LO_MASK}, {0x113B7, 0x113B7, U_GC_LO_MASK},
    {0x113B8, 0x113C0, U_GC_MN_MASK}, {0x113C2, 0x113C2, U_GC_MN_MASK},
    {0x113C5, 0x113C5, U_GC_MN_MASK}, {0x113C7, 0x113CA, U_GC_MN_MASK},
    {0x113CC, 0x113D0, U_GC_MN_MASK}, {0x113D1, 0x113D1, U_GC_LO_MASK},
    {0x113D2, 0x113D2, U_GC_MN_MASK}, {0x113D3, 0x113D3, U_GC_LO_MASK},
    {0x113D4, 0x113D5, U_GC_PO_MASK}, {0x113D7, 0x113D8, U_GC_PO_MASK},
    {0x113E1, 0x113E2, U_GC_MN_MASK}, {0x116D0, 0x116E3, U_GC_ND_MASK},
    {0x11B00, 0x11B09, U_GC_PO_MASK}, {0x11BC0, 0x11BE0, U_GC_LO_MASK},
    {0x11BE1, 0x11BE1, U_GC_PO_MASK}, {0x11BF0, 0x11BF9, U_GC_ND_MASK},
    {0x11F00, 0x11F01, U_GC_MN_MASK}, {0x11F02, 0x11F02, U_GC_LO_MASK},
    {0x11F03, 0x11F03, U_GC_MN_MASK}, {0x11F04, 0x11F10, U_GC_LO_MASK},
    {0x11F12, 0x11F33, U_GC_LO_MASK}, {0x11F34, 0x11F3A, U_GC_MN_MASK},
    {0x11F3E, 0x11F42, U_GC_MN_MASK}, {0x11F43, 0x11F4F, U_GC_PO_MASK},
    {0x11F50, 0x11F59, U_GC_ND_MASK}, {0x11F5A, 0x11F5A, U_GC_MN_MASK},
    {0x1342F, 0x1342F, U_GC_LO_MASK}, {0x13440, 0x13440, U_GC_MN_MASK},
    {0x13441, 0x13446, U_GC_LO_MASK}, {0x13447, 0x13455, U_GC_MN_MASK},
    {0x13460, 0x143FA, U_GC_LO_MASK}, {0x16100, 0x1611D, U_GC_LO_MASK},
    {0x1611E, 0x1612F, U_GC_MN_MASK}, {0x16130, 0x16139, U_GC_ND_MASK},
    {0x16D40, 0x16D42, U_GC_LM_MASK}, {0x16D43, 0x16D6A, U_GC_LO_MASK},
    {0x16D6B, 0x16D6C, U_GC_LM_MASK}, {0x16D6D, 0x16D6F, U_GC_PO_MASK},
    {0x16D70, 0x16D79, U_GC_ND_MASK}, {0x18CFF, 0x18CFF, U_GC_LO_MASK},
    {0x1B132, 0x1B132, U_GC_LO_MASK}, {0x1B155, 0x1B155, U_GC_LO_MASK},
    {0x1CC00, 0x1CCEF, U_GC_SO_MASK}, {0x1CCF0, 0x1CCF9, U_GC_ND_MASK},
    {0x1CD00, 0x1CEB3, U_GC_SO_MASK}, {0x1D2C0, 0x1D2D3, U_GC_NO_MASK},
    {0x1DF25, 0x1DF2A, U_GC_LL_MASK}, {0x1E030, 0x1E06D, U_GC_LM_MASK},
    {0x1E08F, 0x1E08F, U_GC_MN_MASK}, {0x1E4D0, 0x1E4EA, U_GC_LO_MASK},
    {0x1E4EB, 0x1E4EB, U_GC_LM_MASK}, {0x1E4EC, 0x1E4EF, U_GC_MN_MASK},
    {0x1E4F0, 0x1E4F9, U_GC_ND_MASK}, {0x1E5D0, 0x1E5ED, U_GC_LO_MASK},
    {0x1E5EE, 0x1E5EF, U_GC_MN_MASK}, {0x1E5F0, 0x1E5F0, U_GC_LO_MASK},
    {0x1E5F1, 0x1E5FA, U_GC_ND_MASK}, {0x1E5FF, 0x1E5FF, U_GC_PO_MASK},
    {0x1F6DC, 0x1F6DC, U_GC_SO_MASK}, {0x1F774, 0x1F776, U_GC_SO_MASK},
    {0x1F77B, 0x1F77F, U_GC_SO_MASK}, {0x1F7D9, 0x1F7D9, U_GC_SO_MASK},
    {0x1F8B2, 0x1F8BB, U_GC_SO_MASK}, {0x1F8C0, 0x1F8C1, U_GC_SO_MASK},
    {0x1FA75, 0x1FA77, U_GC_SO_MASK}, {0x1FA87, 0x1FA89, U_GC_SO_MASK},
    {0x1FA8F, 0x1FA8F, U_GC_SO_MASK}, {0x1FAAD, 0x1FAAF, U_GC_SO_MASK},
    {0x1FABB, 0x1FABF, U_GC_SO_MASK}, {0x1FAC6, 0x1FAC6, U_GC_SO_MASK},
    {0x1FACE, 0x1FACF, U_GC_SO_MASK}, {0x1FADA, 0x1FADC, U_GC_SO_MASK},
    {0x1FADF, 0x1FADF, U_GC_SO_MASK}, {0x1FAE8, 0x1FAE9, U_GC_SO_MASK},
    {0x1FAF7, 0x1FAF8, U_GC_SO_MASK}, {0x1FBCB, 0x1FBEF, U_GC_SO_MASK},
    {0x2B739, 0x2B739, U_GC_LO_MASK}, {0x2EBF0, 0x2EE5D, U_GC_LO_MASK},
    {0x31350, 0x323AF, U_GC_LO_MASK},
};

struct NewerCapitals {
  int32_t first;
  int32_t last;
  int32_t to_lower;  // added to the code point
};

constexpr NewerCapitals kNewerCapitals[] = {
    {0x1C89, 0x1C89, 1},
    {0xA7CB, 0xA7CB, -42343},
    {0xA7CC, 0xA7CC, 1},
    {0xA7CE, 0xA7CE, 1},
    {0xA7D2, 0xA7D2, 1},
    {0xA7D4, 0xA7D4, 1},
    {0xA7DA, 0xA7DA, 1},
    {0xA7DC, 0xA7DC, -42561},
    {0x10D50, 0x10D65, 32},
    {0x16EA0, 0x16EB8, 27},
};

// Returns null for a character of Unicode 14, and for a character that is not
// assigned.
const Newer* FindNewer(int32_t c) {
  const Newer* found =
      std::lower_bound(std::begin(kNewer),
                       std::end(kNewer),
                       c,
                       [](const Newer& range, int32_t character) {
                         return range.last < character;
                       });
  return found != std::end(kNewer) && found->first <= c ? found : nullptr;
}

// Returns whether the character came after Unicode 14 or is not assigned.
bool IsNew(int32_t c) {
  constexpr int32_t kFirstNewer = kNewer[0].first;
  if (c < kFirstNewer) return false;
  UVersionInfo age = {};
  u_charAge(c, age);
  return age[0] == 0 || age[0] > 14;
}

}  // namespace

uint32_t CategoryMask(int32_t c) {
  if (!IsNew(c)) return U_GET_GC_MASK(c);
  const Newer* newer = FindNewer(c);
  return newer == nullptr ? 0 : newer->category;
}

int32_t OldStandIn(int32_t c) {
  if (!IsNew(c)) return c;
  const Newer* newer = FindNewer(c);
  if (newer == nullptr) return 0x10FFFE;  // never assigned
  switch (newer->category) {
    case U_GC_LU_MASK:
      return 0x10400;
    case U_GC_LL_MASK:
      return 0x10428;
    case U_GC_LM_MASK:
      return 0x16F93;
    case U_GC_LO_MASK:
      return 0x10000;
    case U_GC_MN_MASK:
      return 0x101FD;
    case U_GC_ND_MASK:
      return 0x104A0;
    case U_GC_NO_MASK:
      return 0x10107;
    case U_GC_PO_MASK:
      return 0x10100;
    default:
      return 0x10137;
  }
}

int32_t LowerOfNewer(int32_t c) {
  for (const NewerCapitals& range : kNewerCapitals) {
    if (c >= range.first && c <= range.last) return c + range.to_lower;
  }
  return c;
}

}  // namespace dapd
