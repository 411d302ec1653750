// What becomes of an answer's tokens once all of them are there: units and
// degrees are left out, words that are no mathematics are told from those that
// are.
#pragma once

#include <string>
#include <vector>

#include "common/data/grading/latex_lexer.h"

namespace dapd {

// Makes words, as units are, of the letters of `text`, what stands in a \text{}
// behind `before`: "m", or "m/s^2", behind what is measured, and any one letter
// but "i" and "e" behind a number or degrees.
void MarkUnits(const std::vector<LatexToken>& before,
               std::vector<LatexToken>* text);

// "^\circ" and "^{\circ}" behind what is measured in degrees.
void DropDegrees(std::vector<LatexToken>* tokens);

// Drops units ("12 km", "3 m^2", "5 \text{ apples}", "3 cm, 4 cm") and sentence
// ends.
void DropUnits(std::vector<LatexToken>* tokens);

// What is left of words inside mathematics are products of letters; but prose
// in front of a "=" is one name ("\text{Area} = 5").
std::vector<LatexToken> SplitWords(const std::vector<LatexToken>& tokens);

// The letters of a text answer; empty if the tokens are more than words.
std::string LettersOf(const std::vector<LatexToken>& tokens);

// Whether there is a \text{}, or a word too long for a product of letters.
bool HasProse(const std::vector<LatexToken>& tokens);

}  // namespace dapd
