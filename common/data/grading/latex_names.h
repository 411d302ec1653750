// What LaTeX's commands, and words and characters in their place, mean in an
// answer.
#pragma once

#include <set>
#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

using LatexNames = std::set<absl::string_view>;

// Commands that change the looks only.
const LatexNames& Decorations();
// Commands whose argument is prose, or letters in another type.
const LatexNames& TextCommands();
// Those of them in which units are written.
const LatexNames& UprightCommands();
// Words of plain notation that are commands.
const LatexNames& FunctionWords();
const LatexNames& GreekLetters();

// The spelling of which the parser knows: "frac" of "dfrac".
std::string CanonicalCommand(const std::string& name);
// Of commands that stand for a symbol, "<=" of "leq"; empty for others.
std::string SymbolOfCommand(const std::string& name);

// `text` with signs of Unicode as LaTeX spells them, and without spacing that
// separates what belongs together.
std::string ReplaceCharacters(absl::string_view text);

}  // namespace dapd
