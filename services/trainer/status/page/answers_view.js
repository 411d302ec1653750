// Shows the answers of the last step, and held-out answers before and after
// training side by side. `data` comes from /answers.json. All texts come from a
// model or from its data: they are shown as plain text, and LaTeX as it is
// written.

const gradeLooks = {
  right: ["\u2713", "right"], wrong: ["\u2715", "wrong"], no_answer: ["\u25cb", "no answer"],
  cut: ["\u2026", "cut off"], ungraded: ["\u2013", "not graded"] };

// This many pairs are visible; a click shows the others.
const pairsInSight = 3;

// Matches characters that a browser would leave out, or that would turn the
// direction of reading, as common/base/printable.h does; keeps tabs and ends of
// lines.
function visibleText(text) {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function policyText(version) {
  return version === 0 ? "before training" : `after step ${version}`;
}

// Shows a grade by its shape as well as by its colour.
function gradeMark(grade) {
  const [symbol, text] = gradeLooks[grade] ?? ["?", grade];
  return html("span", { class: `grade ${grade}` }, html("span", { "aria-hidden": "true" }, symbol), ` ${text}`);
}

function result(label, text) {
  return text ? html("span", { class: "result" }, `${label} `, html("span", { class: "code" }, visibleText(text))) : null;
}

// A long answer scrolls by itself, with the keyboard as well.
function answerView(answer, label) {
  if (!answer) return html("div", { class: "answer" }, html("p", { class: "answer-head" }, html("b", {}, label)), html("p", { class: "empty-text" }, "No answer."));
  return html("div", { class: "answer", "data-grade": answer.grade },
    html("p", { class: "answer-head" }, label && html("b", {}, label), gradeMark(answer.grade),
      result("answers", answer.extracted), html("span", { class: "note" }, `${answer.tokens} ${answer.tokens === 1 ? "token" : "tokens"}`)),
    html("pre", { class: "answer-text", dir: "auto", tabindex: 0, role: "group", "aria-label": `${label || "answer"} to problem ${visibleText(answer.id)}` },
      visibleText(answer.text)));
}

function problemView(answer) {
  return [
    html("h3", {}, `Problem ${visibleText(answer.id)}`),
    html("p", { class: "problem-text", dir: "auto" }, visibleText(answer.problem)),
    answer.expected ? html("p", { class: "expected" }, result("expected:", answer.expected)) : null];
}

function pairView({ before, after }, held) {
  return html("article", { class: "card pair", "data-problem": (before ?? after).id },
    problemView(before ?? after),
    html("div", { class: "answer-columns" },
      answerView(before, policyText(held.before)),
      held.after !== null && answerView(after, policyText(held.after))));
}

function showHeldOutAnswers(held) {
  const isShown = JSON.stringify(held);
  if (showHeldOutAnswers.shown === isShown) return;
  showHeldOutAnswers.shown = isShown;
  const pairs = held.pairs.map((pair) => pairView(pair, held));
  const more = pairs.slice(pairsInSight);
  byId("held-out-answers-section").hidden = pairs.length === 0;
  setText(byId("held-out-answers-note"), `the same ${pairs.length} problems in every evaluation, chosen by their place in the data`);
  byId("held-out-answers").replaceChildren(
    ...pairs.slice(0, pairsInSight),
    ...(more.length > 0 ? [html("details", { class: "more" }, html("summary", {}, `${more.length} more`), html("div", { class: "answers" }, more))] : []));
}

function showStepAnswers(data) {
  const isShown = JSON.stringify([data.step, data.answers]);
  if (showStepAnswers.shown === isShown) return;
  showStepAnswers.shown = isShown;
  const count = data.answers.length;
  setText(byId("step-answers-title"), count > 0 ? `Answers of step ${data.step}` : "Answers of the last step");
  setText(byId("step-answers-note"), count > 0 ? "a few of the batch, chosen by their place in it; all are in samples/" : "");
  byId("step-answers").replaceChildren(...(count > 0
    ? data.answers.map((answer) => html("article", { class: "card", "data-problem": answer.id }, problemView(answer), answerView(answer, null)))
    : [html("p", { class: "card empty-text" }, "No answer yet. An objective that reads references alone samples none.")]));
}
