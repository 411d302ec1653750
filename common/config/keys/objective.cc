#include "common/config/keys/key_rows.h"
#include "common/config/preset_terms.h"

namespace dapd {

std::vector<ConfigKey> ObjectiveKeys(Config& c) {
  return {
      Text("objective.preset",
           &c.objective.preset,
           "Method: its terms, and the defaults of other keys that it "
           "replaces; docs/objective.md has both.",
           PresetNames()),
      Any("objective.terms",
          &c.objective.terms,
          "Replaces the preset's terms: a list of {name, student, teacher, "
          "teacher_weights, weight, divergence, clip, ...}; docs/objective.md "
          "has every field."),
      Range("objective.temperature",
            &c.objective.temperature,
            kMillionth,
            100,
            "Temperature T of both distributions of every term."),
      Range("objective.lambda",
            &c.objective.lambda,
            0,
            1,
            "Share of the reference-guided direction."),
      Above("objective.kappa",
            &c.objective.kappa,
            0,
            kMillion,
            "Sum of the preset's weights; for dopd, whose two terms share the "
            "tokens, the weight of each."),
      Range("objective.reference_guided.beta_inference",
            &c.objective.reference_guided.beta_inference,
            0,
            kMillion,
            "Weight of the Inference Anchor, relative to the entangled term, "
            "in the reference-guided direction."),
      Range("objective.reference_guided.beta_privileged",
            &c.objective.reference_guided.beta_privileged,
            0,
            kMillion,
            "Weight of the Privileged Anchor, relative to the entangled term, "
            "in the reference-guided direction."),
      Range("objective.rollout_guided.beta_inference",
            &c.objective.rollout_guided.beta_inference,
            0,
            kMillion,
            "Weight of the Inference Anchor, relative to the entangled term, "
            "in the rollout-guided direction."),
      Range("objective.rollout_guided.beta_privileged",
            &c.objective.rollout_guided.beta_privileged,
            0,
            kMillion,
            "Weight of the Privileged Anchor, relative to the entangled term, "
            "in the rollout-guided direction."),
      OneOf("objective.divergence",
            &c.objective.divergence,
            "Divergence of a preset's terms; not of dopd's and sdpo's, which "
            "have their own.")
          .CountsUnlessDefault(),
      Range("objective.beta",
            &c.objective.beta,
            0,
            1,
            "Share of the target in the mixture of jensen_shannon; above 0 and "
            "below 1.")
          .CountsUnlessDefault(),
      Above("objective.component_clip",
            &c.objective.component_clip,
            0,
            kInfinity,
            "The most that each vocabulary entry contributes; .inf: no clip."),
      OneOf(
          "objective.support",
          &c.objective.support,
          "Tokens of the vocabulary over which the divergence of a preset's "
          "terms is taken; of dopd's, those of its reverse KL; not of sdpo's.")
          .CountsUnlessDefault(),
      Range("objective.top_k",
            &c.objective.top_k,
            1,
            kMillion,
            "Number of tokens of a support that is not full.")
          .CountsUnlessDefault(),
      Any("objective.tail",
          &c.objective.tail,
          "Whether the rest of the vocabulary is one more entry of such a "
          "support; otherwise both distributions are normalised over it.")
          .CountsUnlessDefault(),
      OneOf("objective.reduction",
            &c.objective.reduction,
            "How the tokens of a micro-batch are averaged into the value of a "
            "preset's terms.")
          .CountsUnlessDefault(),
      Range("objective.skip_tokens",
            &c.objective.skip_tokens,
            0,
            kMillion,
            "Scored tokens at the beginning of every answer that a preset's "
            "terms leave out.")
          .CountsUnlessDefault(),
      OneOf("objective.teacher_weights",
            &c.objective.teacher_weights,
            "Weights that read the teacher's views of opsd, opsd_v1, "
            "privileged_anchor, sdft, purified_opsd and dopd.")
          .CountsUnlessDefault(),
      Any("objective.purified.recentre",
          &c.objective.purified.recentre,
          "purified_opsd: whether the mean over the vocabulary is subtracted "
          "from the difference of reference and probe.")
          .CountsUnlessDefault(),
      Range("objective.purified.soft_clip",
            &c.objective.purified.soft_clip,
            kMillionth,
            kInfinity,
            "purified_opsd: c in c tanh(difference / c), which bounds the "
            "difference; .inf: no bound.")
          .CountsUnlessDefault(),
      Range(
          "objective.purified.beta",
          &c.objective.purified.beta,
          kMillionth,
          kMillion,
          "purified_opsd: divisor of the difference before it moves the base.")
          .CountsUnlessDefault(),
      Range("objective.dopd.likely_factor",
            &c.objective.dopd.likely_factor,
            0,
            kMillion,
            "dopd: factor of the tokens that both passes find likely, and of "
            "those where the student is surer (beta_l).")
          .CountsUnlessDefault(),
      Range("objective.dopd.unlikely_factor",
            &c.objective.dopd.unlikely_factor,
            0,
            kMillion,
            "dopd: factor of the tokens that both find unlikely (beta_w).")
          .CountsUnlessDefault(),
      Range("objective.dopd.trim",
            &c.objective.dopd.trim,
            0,
            0.5,
            "dopd: share of the largest values that each mean over a "
            "micro-batch leaves out.")
          .CountsUnlessDefault(),
      OneOf("objective.sdpo.divergence",
            &c.objective.sdpo.divergence,
            "sdpo: divergence of its term, Jensen-Shannon with objective.beta, "
            "or the reverse KL that its authors use with feedback.",
            {DivergenceKind::kJensenShannon, DivergenceKind::kReverseKl}),
      Range("objective.sdpo.top_k",
            &c.objective.sdpo.top_k,
            1,
            kMillion,
            "sdpo: number of the student's most probable tokens over which its "
            "term is measured, with the rest as one more entry."),
      OneOf("objective.sdpo.feedback",
            &c.objective.sdpo.feedback,
            "sdpo: when sibling_rollout contains what prompts.feedback_wrong, "
            "feedback_unboxed and feedback_truncated say of the answer: never, "
            "only without a right sibling, or always."),
      OneOf("objective.self_rollout",
            &c.objective.self_rollout,
            "How the Self view shows a rollout: a second copy after the first, "
            "or inside the privileged prompt."),
      Range("objective.max_reference_tokens",
            &c.objective.max_reference_tokens,
            1,
            kMillion,
            "Maximum number of scored tokens of a reference solution."),
  };
}

}  // namespace dapd
