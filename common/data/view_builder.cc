#include "common/data/view_builder.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"

namespace dapd {
namespace {

constexpr char kInstruction[] =
    "Please reason step by step, and put your final answer within \\boxed{}.";

// The None view's user message.
std::string NoneMessage(const std::string& problem) {
  return absl::StrCat("Problem: ", problem, "\n\n", kInstruction);
}

// The user message that shows `shown` as privileged context.
std::string PrivilegedMessage(const std::string& problem,
                              const std::string& shown) {
  return absl::StrCat(
      "Problem: ",
      problem,
      "\n\nHere is a reference solution to this problem:\n"
      "=== Reference Solution Begin ===\n",
      shown,
      "\n=== Reference Solution End ===\n\n\n"
      "After reading the reference solution above, make sure you truly "
      "understand the reasoning behind each step \xE2\x80\x94 do not copy or "
      "paraphrase it. Now, using your own words and independent reasoning, "
      "derive the same final answer to the problem above. Think step by step, "
      "explore different approaches, and don't be afraid to backtrack or "
      "reconsider if something doesn't work out:\n\n",
      kInstruction);
}

View MakeView(const std::vector<int32_t>& prefix,
              const std::vector<int32_t>& scored) {
  View view;
  view.input_ids = prefix;
  view.scored_from = static_cast<int64_t>(prefix.size());
  view.scored_count = static_cast<int64_t>(scored.size());
  view.input_ids.insert(view.input_ids.end(), scored.begin(), scored.end());
  return view;
}

// A rendered conversation cut behind the assistant's preamble.
struct Conversation {
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> completion_ids;
};

// One problem's texts through tokenizer and template.
class Renderer {
 public:
  Renderer(const Tokenizer& tokenizer, const ChatTemplate& chat_template)
      : tokenizer_(tokenizer), chat_template_(chat_template) {}

  absl::StatusOr<std::string> PromptText(const std::string& message,
                                         bool thinking) const {
    return chat_template_.Render(
        {{"user", message}},
        {.add_generation_prompt = true, .enable_thinking = thinking});
  }

  absl::StatusOr<std::vector<int32_t>> Prompt(const std::string& message,
                                              bool thinking) const {
    ASSIGN_OR_RETURN(const std::string text, PromptText(message, thinking));
    return tokenizer_.Encode(text);
  }

  absl::StatusOr<Conversation> Split(const std::string& message,
                                     const std::string& reference) const {
    ASSIGN_OR_RETURN(const std::string full,
                     chat_template_.Render(
                         {{"user", message}, {"assistant", reference}}, {}));
    // The preamble holds the empty think block where the template writes one;
    // a reference that brings its own thoughts begins right behind the role.
    ASSIGN_OR_RETURN(std::string prompt, PromptText(message, false));
    if (!absl::StartsWith(full, prompt)) {
      ASSIGN_OR_RETURN(prompt, PromptText(message, true));
    }
    if (!absl::StartsWith(full, prompt)) {
      return absl::InvalidArgumentError(
          "the chat template does not write an assistant turn behind its "
          "generation prompt, so the reference's tokens cannot be told apart");
    }
    Conversation split;
    ASSIGN_OR_RETURN(split.prompt_ids, tokenizer_.Encode(prompt));
    ASSIGN_OR_RETURN(const std::vector<int32_t> all, tokenizer_.Encode(full));
    const bool is_prefix =
        split.prompt_ids.size() <= all.size() &&
        std::equal(
            split.prompt_ids.begin(), split.prompt_ids.end(), all.begin());
    if (is_prefix) {
      split.completion_ids.assign(
          all.begin() + static_cast<int64_t>(split.prompt_ids.size()),
          all.end());
    } else {
      // A token spans the boundary: the completion is tokenized by itself.
      ASSIGN_OR_RETURN(split.completion_ids,
                       tokenizer_.Encode(full.substr(prompt.size())));
    }
    return split;
  }

 private:
  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
};

// Tokens at the end of a text whose boundaries what follows may move.
constexpr size_t kUnsettledTokens = 8;

std::vector<int32_t> CommonPrefix(const std::vector<int32_t>& a,
                                  const std::vector<int32_t>& b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  return {a.begin(), end};
}

View& At(Views& views, ViewName name) {
  return views[static_cast<size_t>(name)];
}

}  // namespace

ViewBuilder::ViewBuilder(const Tokenizer& tokenizer,
                         const ChatTemplate& chat_template,
                         ViewOptions options)
    : tokenizer_(tokenizer), chat_template_(chat_template), options_(options) {}

absl::StatusOr<std::vector<int32_t>> ViewBuilder::RolloutPrompt(
    const std::string& problem) const {
  return Renderer(tokenizer_, chat_template_)
      .Prompt(NoneMessage(problem), /*thinking=*/false);
}

absl::StatusOr<Views> ViewBuilder::BuildReferenceViews(
    const std::string& problem, const std::string& reference) const {
  const Renderer renderer(tokenizer_, chat_template_);
  ASSIGN_OR_RETURN(Conversation none,
                   renderer.Split(NoneMessage(problem), reference));
  ASSIGN_OR_RETURN(
      const Conversation self,
      renderer.Split(PrivilegedMessage(problem, reference), reference));
  std::vector<int32_t>& scored = none.completion_ids;
  if (static_cast<int64_t>(scored.size()) > options_.max_reference_tokens) {
    scored.resize(static_cast<size_t>(options_.max_reference_tokens));
  }
  if (scored.empty()) {
    return absl::InvalidArgumentError("the reference has no tokens");
  }
  Views views;
  At(views, ViewName::kNoneReference) = MakeView(none.prompt_ids, scored);
  At(views, ViewName::kSelfReference) = MakeView(self.prompt_ids, scored);
  return views;
}

absl::StatusOr<Views> ViewBuilder::BuildPrefixes(const Sample& so_far) const {
  const Renderer renderer(tokenizer_, chat_template_);
  const std::vector<int32_t>& rollout = so_far.rollout_ids;
  const auto settled = static_cast<int64_t>(
      rollout.size() - std::min(rollout.size(), kUnsettledTokens));
  ASSIGN_OR_RETURN(
      const std::string shorter,
      tokenizer_.Decode({rollout.begin(), rollout.begin() + settled},
                        /*skip_special_tokens=*/true));
  ASSIGN_OR_RETURN(const std::string text,
                   tokenizer_.Decode(rollout, /*skip_special_tokens=*/true));
  // What two prompts that show different answers have in common is told by the
  // prefix that these share.
  const auto shown =
      [&](bool thinking) -> absl::StatusOr<std::vector<int32_t>> {
    ASSIGN_OR_RETURN(
        const std::vector<int32_t> one,
        renderer.Prompt(PrivilegedMessage(so_far.problem, shorter), thinking));
    ASSIGN_OR_RETURN(
        const std::vector<int32_t> other,
        renderer.Prompt(PrivilegedMessage(so_far.problem, text + " 0"),
                        thinking));
    return CommonPrefix(one, other);
  };
  Views views;
  std::vector<int32_t>& none = At(views, ViewName::kNoneRollout).input_ids;
  ASSIGN_OR_RETURN(none, RolloutPrompt(so_far.problem));
  none.insert(none.end(), rollout.begin(), rollout.end());

  std::vector<int32_t>& self = At(views, ViewName::kSelfRollout).input_ids;
  if (options_.self_rollout == ViewOptions::SelfRollout::kAppend) {
    self = none;
  } else {
    ASSIGN_OR_RETURN(self, shown(/*thinking=*/false));
  }

  std::vector<int32_t>& cross = At(views, ViewName::kCrossRollout).input_ids;
  ASSIGN_OR_RETURN(
      cross,
      renderer.Prompt(PrivilegedMessage(so_far.problem, so_far.reference),
                      /*thinking=*/true));
  cross.insert(cross.end(), rollout.begin(), rollout.end());

  ASSIGN_OR_RETURN(At(views, ViewName::kCrossReference).input_ids,
                   shown(/*thinking=*/true));
  return views;
}

absl::StatusOr<Views> ViewBuilder::Build(const Sample& sample) const {
  std::vector<int32_t> rollout = sample.rollout_ids;
  while (!rollout.empty() && rollout.back() == options_.pad_token_id) {
    rollout.pop_back();
  }
  if (rollout.empty()) {
    return absl::InvalidArgumentError(
        "the rollout is empty: it has no token but padding");
  }
  ASSIGN_OR_RETURN(Views views,
                   BuildReferenceViews(sample.problem, sample.reference));
  ASSIGN_OR_RETURN(const std::string rollout_text,
                   tokenizer_.Decode(rollout, /*skip_special_tokens=*/true));
  const Renderer renderer(tokenizer_, chat_template_);
  ASSIGN_OR_RETURN(const std::vector<int32_t> none,
                   RolloutPrompt(sample.problem));
  At(views, ViewName::kNoneRollout) = MakeView(none, rollout);

  std::vector<int32_t> self;
  if (options_.self_rollout == ViewOptions::SelfRollout::kAppend) {
    self = none;
    self.insert(self.end(), rollout.begin(), rollout.end());
  } else {
    ASSIGN_OR_RETURN(
        self,
        renderer.Prompt(PrivilegedMessage(sample.problem, rollout_text),
                        /*thinking=*/false));
  }
  At(views, ViewName::kSelfRollout) = MakeView(self, rollout);

  ASSIGN_OR_RETURN(
      const std::vector<int32_t> cross,
      renderer.Prompt(PrivilegedMessage(sample.problem, sample.reference),
                      /*thinking=*/true));
  At(views, ViewName::kCrossRollout) = MakeView(cross, rollout);

  ASSIGN_OR_RETURN(
      const std::vector<int32_t> crossed,
      renderer.Prompt(PrivilegedMessage(sample.problem, rollout_text),
                      /*thinking=*/true));
  const View& reference = At(views, ViewName::kNoneReference);
  At(views, ViewName::kCrossReference) =
      MakeView(crossed,
               {reference.input_ids.begin() + reference.scored_from,
                reference.input_ids.end()});
  return views;
}

}  // namespace dapd
