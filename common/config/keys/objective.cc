#include "common/config/keys/key_rows.h"
#include "common/config/preset_terms.h"

namespace dapd {

std::vector<ConfigKey> ObjectiveKeys(Config& c) {
  return {
      Text("objective.preset",
           &c.objective.preset,
           "Training method: a set of terms, and other defaults for some keys. "
           "docs/objective.md lists both for every method.",
           PresetNames()),
      Any("objective.terms",
          &c.objective.terms,
          "Terms that replace the preset's terms: a list of {name, student, "
          "teacher, teacher_weights, weight, divergence, clip, ...}. "
          "docs/objective.md explains every field."),
      Range("objective.temperature",
            &c.objective.temperature,
            kMillionth,
            100,
            "Temperature T of the student's and the teacher's distribution in "
            "every term."),
      Range("objective.lambda",
            &c.objective.lambda,
            0,
            1,
            "Share of the reference-guided direction in the objective; the "
            "rollout-guided direction has the share 1 - lambda."),
      Above("objective.kappa",
            &c.objective.kappa,
            0,
            kMillion,
            "Sum of the weights of the preset's terms. The two terms of dopd "
            "share the tokens, and those of gkd the steps, so each of them has "
            "this weight."),
      Range("objective.reference_guided.beta_inference",
            &c.objective.reference_guided.beta_inference,
            0,
            kMillion,
            "Weight of the Inference Anchor relative to the entangled term in "
            "the reference-guided direction."),
      Range("objective.reference_guided.beta_privileged",
            &c.objective.reference_guided.beta_privileged,
            0,
            kMillion,
            "Weight of the Privileged Anchor relative to the entangled term in "
            "the reference-guided direction."),
      Range("objective.rollout_guided.beta_inference",
            &c.objective.rollout_guided.beta_inference,
            0,
            kMillion,
            "Weight of the Inference Anchor relative to the entangled term in "
            "the rollout-guided direction."),
      Range("objective.rollout_guided.beta_privileged",
            &c.objective.rollout_guided.beta_privileged,
            0,
            kMillion,
            "Weight of the Privileged Anchor relative to the entangled term in "
            "the rollout-guided direction."),
      OneOf("objective.divergence",
            &c.objective.divergence,
            "Divergence of the preset's terms. The presets dopd and sdpo "
            "ignore it, since they have their own divergences.")
          .CountsUnlessDefault(),
      Range("objective.beta",
            &c.objective.beta,
            0,
            1,
            "Share of the target distribution in the mixture of "
            "jensen_shannon. It must be above 0 and below 1.")
          .CountsUnlessDefault(),
      Above("objective.component_clip",
            &c.objective.component_clip,
            0,
            kInfinity,
            "Upper limit of the contribution of each vocabulary entry to a "
            "divergence. .inf: no limit."),
      OneOf("objective.support",
            &c.objective.support,
            "Vocabulary entries over which the divergence of the preset's "
            "terms is summed. For dopd this applies to the reverse KL only. "
            "sdpo ignores it.")
          .CountsUnlessDefault(),
      Range("objective.top_k",
            &c.objective.top_k,
            1,
            kMillion,
            "Number of vocabulary entries in a support that is not full.")
          .CountsUnlessDefault(),
      Any("objective.tail",
          &c.objective.tail,
          "Whether the rest of the vocabulary counts as one more entry of a "
          "support that is not full. If false, both distributions are "
          "normalised over the support.")
          .CountsUnlessDefault(),
      OneOf("objective.reduction",
            &c.objective.reduction,
            "How the preset's terms average the tokens of a micro-batch.")
          .CountsUnlessDefault(),
      Range("objective.skip_tokens",
            &c.objective.skip_tokens,
            0,
            kMillion,
            "Number of scored tokens at the beginning of every answer that the "
            "preset's terms leave out.")
          .CountsUnlessDefault(),
      Any("objective.teacher_weights",
          &c.objective.teacher_weights,
          "Teacher of the preset's terms, in the presets opd, gkd, opsd, "
          "opsd_v1, privileged_anchor, sdft, purified_opsd and dopd: the "
          "student's own "
          "model with one of its sets of weights (base, snapshot, ema, live), "
          "the name of a teacher in `teachers`, or row, the teacher that "
          "data.teacher_column names in each row. A list of several: every "
          "one of them teaches, in terms of its own with an equal share of "
          "objective.kappa.")
          .CountsUnlessDefault(),
      Text("objective.dapd.cross_weights",
           &c.objective.dapd.cross_weights,
           "dapd: weights with which the teacher of its four terms with a "
           "Cross view reads them: the name of a teacher in `teachers`, row, "
           "or a set of weights (base, snapshot, ema, live). Empty: the "
           "snapshot in the entangled terms, and the base in the Privileged "
           "Anchors.")
          .CountsUnlessDefault(),
      Any("objective.purified.recentre",
          &c.objective.purified.recentre,
          "purified_opsd: whether the mean over the vocabulary is subtracted "
          "from the difference between reference and probe.")
          .CountsUnlessDefault(),
      Range("objective.purified.soft_clip",
            &c.objective.purified.soft_clip,
            kMillionth,
            kInfinity,
            "purified_opsd: the bound c of the difference, applied as c "
            "tanh(difference / c). .inf: no bound.")
          .CountsUnlessDefault(),
      Range("objective.purified.beta",
            &c.objective.purified.beta,
            kMillionth,
            kMillion,
            "purified_opsd: divisor of the difference before it is added to "
            "the base.")
          .CountsUnlessDefault(),
      Range("objective.dopd.likely_factor",
            &c.objective.dopd.likely_factor,
            0,
            kMillion,
            "dopd: factor of the tokens that both passes find likely, and of "
            "the tokens about which the student is surer (beta_l).")
          .CountsUnlessDefault(),
      Range(
          "objective.dopd.unlikely_factor",
          &c.objective.dopd.unlikely_factor,
          0,
          kMillion,
          "dopd: factor of the tokens that both passes find unlikely (beta_w).")
          .CountsUnlessDefault(),
      Range("objective.dopd.trim",
            &c.objective.dopd.trim,
            0,
            0.5,
            "dopd: share of the largest values that each mean over a "
            "micro-batch leaves out.")
          .CountsUnlessDefault(),
      Range("objective.gkd.reference_share",
            &c.objective.gkd.reference_share,
            0,
            1,
            "gkd: share of the steps that train the references instead of the "
            "student's own answers, and sample nothing. Which steps they are "
            "follows from run.seed.")
          .CountsUnlessDefault(),
      OneOf("objective.sdpo.divergence",
            &c.objective.sdpo.divergence,
            "sdpo: divergence of its term. jensen_shannon: with "
            "objective.beta. reverse_kl: the divergence that the authors of "
            "SDPO use together with feedback.",
            {DivergenceKind::kJensenShannon, DivergenceKind::kReverseKl}),
      Range("objective.sdpo.top_k",
            &c.objective.sdpo.top_k,
            1,
            kMillion,
            "sdpo: number of the student's most probable tokens over which the "
            "divergence is summed; the rest of the vocabulary counts as one "
            "more entry."),
      OneOf("objective.sdpo.feedback",
            &c.objective.sdpo.feedback,
            "sdpo: when sibling_rollout contains the feedback on the answer "
            "(prompts.feedback_wrong, prompts.feedback_unboxed, "
            "prompts.feedback_truncated): never, only if no sibling is right "
            "(without_sibling), or always."),
      OneOf("objective.self_rollout",
            &c.objective.self_rollout,
            "How the Self view shows a rollout. append: as a second copy after "
            "the first. template: inside the privileged prompt."),
      Range("objective.max_reference_tokens",
            &c.objective.max_reference_tokens,
            1,
            kMillion,
            "Maximum number of scored tokens of a reference solution."),
  };
}

}  // namespace dapd
