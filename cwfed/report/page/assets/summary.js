"use strict";
// The conclusions in words, worked out when the page was made.

function drawSummary() {
  const element = body("summary");
  element.replaceChildren();
  const current = setting();
  if (!current) return element.append(gone("No run matches the filter."));
  const { headline, points } = current.summary[`${state.metric}/${state.choice}`];
  element.append(
    make("p", { class: "note" }, current.label),
    make("p", { class: "headline" }, tight(headline)),
    hiddenWords(current) ? make("p", { class: "note hidden-ranked" }, hiddenWords(current)) : "",
    make("dl", { class: "points" }, points.flatMap(({ title, text }) => [
      make("dt", {}, title), make("dd", {}, tight(text)),
    ])),
    make("details", { class: "rules" }, make("summary", {}, "By which rules this is said"),
      make("dl", { class: "points" }, Object.entries(DATA.rules).flatMap(([title, text]) => [
        make("dt", {}, title), make("dd", {}, tight(text)),
      ]))),
  );
  const others = visibleSettings().filter((s) => s !== current);
  if (others.length) element.append(otherSettings(others));
  return undefined;
}

function otherSettings(others) {
  const buttons = others.map((other) => make("button", {
    type: "button",
    onclick: () => {
      chooseSetting(DATA.settings.indexOf(other));
      document.getElementById("main").focus();
    },
  }, make("strong", {}, tight(other.summary[`${state.metric}/${state.choice}`].headline)), other.label));
  return make("div", { class: "others" },
    make("h3", {}, "Other settings, never compared with this one"), buttons);
}

const visibleSettings = () =>
  DATA.settings.filter((s) => !state.dataset || s.dataset === state.dataset);
