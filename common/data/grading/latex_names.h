// Defines the meaning of LaTeX commands in an answer, and of the words and
// characters that replace them.
#pragma once

#include <set>
#include <string>

#include "absl/strings/string_view.h"

namespace dapd {

using LatexNames = std::set<absl::string_view>;

// Returns commands that change only the appearance.
const LatexNames& Decorations();
// Returns commands whose argument is prose, or letters in another font.
const LatexNames& TextCommands();
// Returns the text commands in which units are written.
const LatexNames& UprightCommands();
// Returns words of plain notation that stand for commands.
const LatexNames& FunctionWords();
const LatexNames& GreekLetters();

// Returns the spelling that the parser knows: "frac" for "dfrac".
std::string CanonicalCommand(const std::string& name);
// Returns the symbol that a command stands for, "<=" for "leq"; empty for other
// commands.
std::string SymbolOfCommand(const std::string& name);

// Returns `text` with LaTeX spellings in place of Unicode characters, and
// without spacing inside symbols and numbers.
std::string ReplaceCharacters(absl::string_view text);

}  // namespace dapd
