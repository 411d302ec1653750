// Says where sentences end, for all that looks for claims in a text: the probe
// (claim_probe.h) and the places where a claim could begin (claim_places.h).
#pragma once

#include <cctype>
#include <cstddef>

#include "absl/strings/string_view.h"

namespace dapd {

// Returns whether the byte at `at` ends a sentence: a newline, or one of . ! ?
// at the end of the text or in front of white space, so that 3.5 is no end.
inline bool EndsSentence(absl::string_view text, size_t at) {
  const char c = text[at];
  if (c == '\n') return true;
  if (c != '.' && c != '!' && c != '?') return false;
  return at + 1 == text.size() ||
         std::isspace(static_cast<unsigned char>(text[at + 1])) != 0;
}

}  // namespace dapd
