#include "common/data/cut_prompts.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/exit_code.h"
#include "common/base/log.h"
#include "common/base/progress.h"
#include "common/base/status_macros.h"
#include "common/config/preset_terms.h"
#include "common/config/prompts.h"
#include "common/data/view_builder.h"
#include "common/terms/term.h"
#include "common/tokenizer/unicode_text.h"

namespace dapd {
namespace {

// Describes a prompt that every row has, with its limit.
struct LimitedPrompt {
  ViewName view = ViewName::kNoneRollout;
  int64_t limit = 0;  // tokens
  int64_t frame_bytes = 0;
  int64_t rows_cut = 0;
  int64_t longest = 0;  // longest cut prompt, in tokens
};

std::vector<LimitedPrompt> PromptsWithLimits(const Config& config) {
  const ViewOptions options = MakeViewOptions(config);
  std::vector<LimitedPrompt> prompts;
  if (StepsNeedAnswers(config)) {
    prompts.push_back({ViewName::kNoneRollout, options.max_sampler_prompt});
  }
  if (config.rollout.source != ReferenceSource::kGiven) return prompts;
  for (const ViewName view : ViewsRead(ExpandTerms(config.objective))) {
    if (view == ViewName::kCrossRollout ||
        view == ViewName::kDemonstrationRollout ||
        view == ViewName::kProbeRollout) {
      prompts.push_back({view, options.max_prompt});
    }
  }
  return prompts;
}

ViewBuilder UncutBuilder(const Config& config, const TextPipeline& text) {
  ViewOptions options = MakeViewOptions(config);
  options.max_sampler_prompt = kUncut;
  options.max_prompt = kUncut;
  return {*text.tokenizer, *text.chat_template, std::move(options)};
}

const std::vector<int32_t>& IdsOf(const LimitedPrompt& prompt,
                                  const Views& views) {
  return views[static_cast<size_t>(prompt.view)].input_ids;
}

std::string Describe(const LimitedPrompt& prompt) {
  return prompt.view == ViewName::kNoneRollout
             ? std::string("the sampler's prompt")
             : absl::StrCat("the prompt of ", ViewNameString(prompt.view));
}

// Returns the key that cuts a prompt, and the value that a prompt of `tokens`
// tokens needs.
std::string DescribeRemedy(const Config& config,
                           const LimitedPrompt& prompt,
                           int64_t tokens) {
  if (prompt.limit == config.prompts.max_tokens) {
    return absl::StrCat("raise prompts.max_tokens (",
                        config.prompts.max_tokens,
                        ") to ",
                        tokens);
  }
  const int64_t answer = config.data.max_prompt_tokens - prompt.limit;
  return absl::StrCat(
      "raise data.max_prompt_tokens (",
      config.data.max_prompt_tokens,
      prompt.view == ViewName::kNoneRollout
          ? ", which holds an answer of rollout.max_new_tokens as well) to "
          : ") to ",
      tokens + answer);
}

// Measures the prompts of an empty problem with the shortest reference.
absl::Status MeasureFrames(const Config& config,
                           const TextPipeline& text,
                           const ViewBuilder& uncut,
                           std::vector<LimitedPrompt>* prompts) {
  ASSIGN_OR_RETURN(const GrowingViews frame, uncut.StartViews("", "0"));
  for (LimitedPrompt& prompt : *prompts) {
    const std::vector<int32_t>& ids = IdsOf(prompt, frame.views());
    const auto tokens = static_cast<int64_t>(ids.size());
    if (tokens > prompt.limit) {
      return ConfigError(
          absl::StrCat(Describe(prompt),
                       " has ",
                       tokens,
                       " tokens around the problem alone and would be cut to ",
                       prompt.limit,
                       ": ",
                       DescribeRemedy(config, prompt, tokens),
                       " and the longest problem's tokens"));
    }
    ASSIGN_OR_RETURN(
        const std::string bytes,
        text.tokenizer->Decode(ids, /*skip_special_tokens=*/false));
    prompt.frame_bytes = MostTokens(bytes);
  }
  return absl::OkStatus();
}

// Returns whether the prompt certainly fits. It costs next to nothing, since it
// does not tokenize.
bool CertainlyFits(const LimitedPrompt& prompt,
                   const Prompts& templates,
                   const Problem& problem,
                   int64_t material) {
  int64_t bytes = prompt.frame_bytes + material +
                  static_cast<int64_t>(templates.most_problems()) *
                      MostTokens(problem.problem);
  if (prompt.view != ViewName::kNoneRollout) {
    bytes += static_cast<int64_t>(templates.most_references()) *
             MostTokens(problem.solution);
  }
  return bytes <= prompt.limit;
}

}  // namespace

absl::Status CheckCutPrompts(const Config& config,
                             const TextPipeline& text,
                             const Dataset& data,
                             MaterialMeter& materials) {
  std::vector<LimitedPrompt> prompts = PromptsWithLimits(config);
  if (prompts.empty()) return absl::OkStatus();
  const ViewBuilder uncut = UncutBuilder(config, text);
  RETURN_IF_ERROR(MeasureFrames(config, text, uncut, &prompts));
  const Prompts templates(config.prompts);
  const auto total = static_cast<int64_t>(data.problems.size());
  Progress progress("prompts measured", total);
  int64_t done = 0;
  for (const Problem& problem : data.problems) {
    progress.Update(++done);
    ASSIGN_OR_RETURN(const int64_t material, materials.MostTokens(problem));
    if (std::all_of(prompts.begin(), prompts.end(), [&](const auto& prompt) {
          return CertainlyFits(prompt, templates, problem, material);
        })) {
      continue;
    }
    ASSIGN_OR_RETURN(const GrowingViews prefixes,
                     uncut.StartViews(problem.source(), problem.solution));
    for (LimitedPrompt& prompt : prompts) {
      const auto tokens =
          static_cast<int64_t>(IdsOf(prompt, prefixes.views()).size());
      if (tokens <= prompt.limit) continue;
      ++prompt.rows_cut;
      prompt.longest = std::max(prompt.longest, tokens);
    }
  }
  for (const LimitedPrompt& prompt : prompts) {
    if (prompt.rows_cut == 0) continue;
    LogWarning(
        absl::StrCat(config.data.path,
                     ": ",
                     prompt.rows_cut,
                     " of ",
                     total,
                     " rows: ",
                     Describe(prompt),
                     " is cut to ",
                     prompt.limit,
                     " tokens and loses ",
                     config.prompts.truncation_side == TruncationSide::kLeft
                         ? "its beginning, where the problem is; "
                         : "its end, where the instruction is; ",
                     DescribeRemedy(config, prompt, prompt.longest)));
  }
  return absl::OkStatus();
}

}  // namespace dapd
