// A term of objective.terms as YAML and back. Fields, with their defaults
// (docs/objective.md says what each means):
//
//   name, student, weight
//   teacher, teacher_weights    a target of one pass; or
//   target                      {anchor: PASS, delta: [{..PASS, factor: 1}],
//                                recentre: false, soft_clip: .inf, strength: 1}
//                               {first: PASS, second: PASS, trim: 0.05,
//                                regimes: {NAME: {pass: first, factor: 1}}}
//                               one_hot
//                               with PASS = view: NAME, weights: NAME
//   divergence: forward_kl, beta: 0.5, clip: 0.05 (.inf of one_hot)
//   support: full, top_k: 100, tail: true
//   reduction: micro_token, skip_tokens: 0
//   importance: none, importance_cap: 2
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

#include "common/terms/term.h"

namespace dapd {

// Returns an empty text if the term was read, otherwise what is wrong with it.
std::string ReadTerm(const YAML::Node& node, Term* term);

// Writes the term in one line. ReadTerm gives the same term again.
std::string FormatTerm(const Term& term);

}  // namespace dapd
