#include "common/data/grading/latex_names.h"

#include <utility>

#include "absl/strings/str_replace.h"

namespace dapd {

const LatexNames& Decorations() {
  static const auto& names = *new LatexNames{
      "left",         "right",     "big",      "bigl",   "bigr",  "Big",
      "Bigl",         "Bigr",      "bigg",     "Bigg",   "quad",  "qquad",
      "limits",       "rm",        "mleft",    "mright", "it",    "bf",
      "displaystyle", "textstyle", "ldots",    "dots",   "cdots", "hfill",
      "boldsymbol",   "phantom",   "nolimits", "bm"};
  return names;
}

const LatexNames& TextCommands() {
  static const auto& names = *new LatexNames{"text",
                                             "textbf",
                                             "textit",
                                             "textrm",
                                             "textnormal",
                                             "mathrm",
                                             "mathbf",
                                             "mathit",
                                             "operatorname",
                                             "mbox",
                                             "hbox",
                                             "mathsf",
                                             "mathtt",
                                             "emph",
                                             "textsf",
                                             "texttt",
                                             "boxed",
                                             "fbox"};
  return names;
}

const LatexNames& UprightCommands() {
  static const auto& names =
      *new LatexNames{"text", "textrm", "textnormal", "mathrm", "mbox", "hbox"};
  return names;
}

const LatexNames& FunctionWords() {
  static const auto& names = *new LatexNames{
      "sqrt", "sin",      "cos",    "tan",    "cot",    "sec", "csc", "sinh",
      "cosh", "tanh",     "arcsin", "arccos", "arctan", "log", "ln",  "exp",
      "frac", "infinity", "infty",  "pi",     "cup",    "cap"};
  return names;
}

std::string CanonicalCommand(const std::string& name) {
  for (const auto& [from, to] : {std::pair("dfrac", "frac"),
                                 std::pair("tfrac", "frac"),
                                 std::pair("cfrac", "frac"),
                                 std::pair("dbinom", "binom"),
                                 std::pair("tbinom", "binom"),
                                 std::pair("asin", "arcsin"),
                                 std::pair("acos", "arccos"),
                                 std::pair("atan", "arctan"),
                                 std::pair("infinity", "infty"),
                                 std::pair("varnothing", "emptyset"),
                                 std::pair("lg", "log"),
                                 std::pair("union", "cup"),
                                 std::pair("degree", "circ"),
                                 std::pair("bmod", "mod"),
                                 std::pair("lvert", "vert"),
                                 std::pair("rvert", "vert"),
                                 std::pair("mid", "vert")}) {
    if (name == from) return to;
  }
  return name;
}

std::string SymbolOfCommand(const std::string& name) {
  for (const auto& [command, symbol] :
       {std::pair("le", "<="),       std::pair("leq", "<="),
        std::pair("leqslant", "<="), std::pair("ge", ">="),
        std::pair("geq", ">="),      std::pair("geqslant", ">="),
        std::pair("ne", "!="),       std::pair("neq", "!="),
        std::pair("lt", "<"),        std::pair("gt", ">"),
        std::pair("cdot", "*"),      std::pair("times", "*"),
        std::pair("ast", "*"),       std::pair("div", "/"),
        std::pair("colon", ":"),     std::pair("approx", "~="),
        std::pair("equiv", "="),     std::pair("lbrace", "\\{"),
        std::pair("rbrace", "\\}"),  std::pair("lbrack", "["),
        std::pair("rbrack", "]"),    std::pair("vert", "|")}) {
    if (name == command) return symbol;
  }
  return "";
}

const LatexNames& GreekLetters() {
  static const auto& names = *new LatexNames{
      "alpha", "beta",  "gamma", "delta", "epsilon", "varepsilon", "zeta",
      "eta",   "theta", "iota",  "kappa", "lambda",  "mu",         "nu",
      "xi",    "rho",   "sigma", "tau",   "upsilon", "phi",        "varphi",
      "chi",   "psi",   "omega", "Gamma", "Delta",   "Theta",      "Lambda",
      "Sigma", "Phi",   "Psi",   "Omega", "ell",     "hbar",       "Pi"};
  return names;
}

std::string ReplaceCharacters(absl::string_view text) {
  return absl::StrReplaceAll(text,
                             {{"\xE2\x88\x92", "-"},         // minus
                              {"\xE2\x80\x93", "-"},         // en dash
                              {"\xC3\x97", "*"},             // times
                              {"\xC2\xB7", "*"},             // middle dot
                              {"\xC3\xB7", "/"},             // division
                              {"\xCF\x80", "\\pi "},         // pi
                              {"\xE2\x88\x9A", "\\sqrt "},   // root
                              {"\xC2\xB0", "^\\circ "},      // degree
                              {"\xE2\x88\x9E", "\\infty "},  // infinity
                              {"\xE2\x89\xA4", "\\le "},
                              {"\xE2\x89\xA5", "\\ge "},
                              {"\xE2\x89\xA0", "\\ne "},
                              {"\xC2\xB2", "^{2}"},  // superscripts
                              {"\xC2\xB3", "^{3}"},
                              {"\xC2\xBD", "\\frac{1}{2}"},  // a half
                              {"\xE2\x88\x85", "\\emptyset "},
                              {"\xE2\x84\x9D", "\\mathbb{R}"},
                              {"\xE2\x88\xAA", "\\cup "},
                              {"\xE2\x88\x88", "\\in "},
                              {"\xC2\xB1", "\\pm "},
                              {"\xE2\x89\x88", "\\approx "},
                              {"\xE2\x82\xAC", ""},  // euro
                              {"\xC2\xA3", ""},      // pound
                              {"\xC2\xA0", " "},
                              {"**", "^"},
                              {"{,}", ","},
                              {"\\!", ""}});
}

}  // namespace dapd
