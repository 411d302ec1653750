// Processes an answer's tokens once all of them are there: leaves out units and
// degrees, and separates words that are mathematics from words that are not.
#pragma once

#include <string>
#include <vector>

#include "common/data/grading/latex_lexer.h"

namespace dapd {

// Turns letters of `text`, the content of a \text{} behind `before`, into
// words, as units are: "m" or "m/s^2" behind a measured value, and any single
// letter except "i" and "e" behind a number or degrees.
void MarkUnits(const std::vector<LatexToken>& before,
               std::vector<LatexToken>* text);

// Drops "^\circ" and "^{\circ}" behind a value in degrees.
void DropDegrees(std::vector<LatexToken>* tokens);

// Drops units ("12 km", "3 m^2", "5 \text{ apples}", "3 cm, 4 cm") and sentence
// ends.
void DropUnits(std::vector<LatexToken>* tokens);

// Splits the remaining words inside mathematics into letters, which form
// products; prose in front of a "=" becomes one name ("\text{Area} = 5").
std::vector<LatexToken> SplitWords(const std::vector<LatexToken>& tokens);

// Returns the letters of a text answer; empty if the tokens are more than
// words.
std::string LettersOf(const std::vector<LatexToken>& tokens);

// Returns whether there is a \text{}, or a word that is too long for a product
// of letters.
bool HasProse(const std::vector<LatexToken>& tokens);

}  // namespace dapd
