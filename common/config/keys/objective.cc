#include "common/config/keys/key_rows.h"

namespace dapd {

std::vector<ConfigKey> ObjectiveKeys(Config& c) {
  return {
      Text("objective.preset",
           &c.objective.preset,
           "Named list of terms.",
           {"dapd"}),
      Any("objective.terms",
          &c.objective.terms,
          "Replaces the preset's terms: a list of {name, student, teacher, "
          "teacher_weights, weight, divergence, clip, ...}; docs/objective.md "
          "has every field."),
      Above("objective.temperature",
            &c.objective.temperature,
            0,
            100,
            "T of both distributions of every term."),
      Range("objective.lambda",
            &c.objective.lambda,
            0,
            1,
            "Share of the reference-guided direction."),
      Above("objective.kappa",
            &c.objective.kappa,
            0,
            kMillion,
            "Sum of the preset's weights."),
      Range("objective.reference_guided.beta_inference",
            &c.objective.reference_guided.beta_inference,
            0,
            kMillion,
            "Inference anchor, reference-guided."),
      Range("objective.reference_guided.beta_privileged",
            &c.objective.reference_guided.beta_privileged,
            0,
            kMillion,
            "Privileged anchor, reference-guided."),
      Range("objective.rollout_guided.beta_inference",
            &c.objective.rollout_guided.beta_inference,
            0,
            kMillion,
            "Inference anchor, rollout-guided."),
      Range("objective.rollout_guided.beta_privileged",
            &c.objective.rollout_guided.beta_privileged,
            0,
            kMillion,
            "Privileged anchor, rollout-guided."),
      Above("objective.component_clip",
            &c.objective.component_clip,
            0,
            kInfinity,
            "Clip of each vocabulary entry's contribution; .inf: none."),
      Text("objective.self_rollout",
           &c.objective.self_rollout,
           "How the Self view shows a rollout: a second copy behind the first, "
           "or inside the privileged prompt.",
           {"append", "template"}),
      Range("objective.max_reference_tokens",
            &c.objective.max_reference_tokens,
            1,
            kMillion,
            "Scored tokens of a reference solution, at most."),
  };
}

}  // namespace dapd
