// The explorer: a form, a panel for each run, and an address that contains the whole state.

import * as api from "./api.js";
import { Browser } from "./browser.js";
import { markDifferences } from "./differences.js";
import { Panel } from "./panel.js";
import * as address from "./state.js";

const find = (name) => document.getElementById(name);
const message = find("message");
let runs = [];
let shows = 0;
let state = address.read();
let accepted = state; // the state in the address, which was answered

function showMessage(text, wrong = false) {
  message.textContent = text;
  message.classList.toggle("wrong", wrong);
}

function fillText() {
  find("sentence").value = state.sentence;
  find("target").value = state.target;
}

function selectRuns() {
  find("run").value = runs.some((run) => run.name === state.run) ? state.run : runs[0].name;
  find("with").value = runs.some((run) => run.name === state.with) ? state.with : "";
}

function fillChoices() {
  for (const run of runs) {
    find("run").append(new Option(run.name, run.name));
    find("with").append(new Option(run.name, run.name));
  }
  // two checkpoints of one run can be compared as well
  find("with").closest("label").hidden = runs.length < 2 && runs.every((run) => run.checkpoints.length < 2);
}

const chosenRun = () => runs.find((run) => run.name === find("run").value) ?? runs[0];

// Offer the chosen run's own sentences, and its stored predictions.
function offer() {
  const run = chosenRun();
  find("examples").replaceChildren(
    ...run.examples.map((example) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = example;
      if (example === state.sentence) button.setAttribute("aria-current", "true");
      button.addEventListener("click", () => choose(example));
      return button;
    }),
  );
  browser.open(run);
}

function choose(sentence) {
  find("sentence").value = sentence;
  find("target").value = "";
  return submit();
}

const browser = new Browser(find("browser"), {
  chosen: async (sentence) => {
    await choose(sentence);
    const behavior = matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth";
    find("panels").scrollIntoView({ behavior, block: "start" });
    find("panels").focus({ preventScroll: true });
  },
  failed: (error) => showMessage(error.message, true),
});

// When both panels have a picture, what differs between them is marked.
function compareShown(panels) {
  const line = find("difference");
  line.hidden = panels.length < 2 || panels.some((panel) => !panel.shown);
  if (!line.hidden) line.textContent = markDifferences(...panels);
}

// The legend explains labels only if a tree has some.
function showLegend(panels) {
  find("legend").hidden = false;
  find("label-legend").hidden = !panels.some((panel) => panel.shown?.trace.nodes.some((node) => node.label !== null));
}

// What a shared address asks for but this server does not have; nothing is shown in its place.
function findMissing() {
  for (const [name, key] of [[state.run, ""], [state.with, "with-"]]) {
    if (!name && key) continue;
    const run = name ? runs.find((candidate) => candidate.name === name) : runs[0];
    if (!run) return `There is no run “${name.slice(0, 80)}” here. Choose one above.`;
    const checkpoint = state[`${key}checkpoint`];
    if (checkpoint && !run.checkpoints.includes(checkpoint)) {
      return `${run.name} has no checkpoint “${checkpoint.slice(0, 80)}” here. Press Show to see its best model.`;
    }
  }
  return "";
}

// Show the panels of a state: one, or two next to (or below) each other. Returns whether any run answered.
async function show() {
  const number = ++shows; // a later call replaces this one
  const problem = findMissing();
  offer();
  find("difference").hidden = true;
  showMessage(problem, problem !== "");
  if (problem) {
    find("panels").replaceChildren();
    find("legend").hidden = true;
    for (const key of ["checkpoint", "with-checkpoint"]) state[key] = "";
    return false;
  }
  const names = [state.run || runs[0].name, state.with].filter(Boolean);
  const keys = ["", "with-"];
  const panels = names.map((name, index) => {
    const run = runs.find((candidate) => candidate.name === name) ?? runs[0];
    return new Panel(run, {
      changed: (sample, checkpoint) => {
        state[`${keys[index]}sample`] = sample;
        state[`${keys[index]}checkpoint`] = checkpoint;
        if (accepted === state) address.write(state, false);
      },
      drawn: () => {
        showLegend(panels);
        if (number === shows) compareShown(panels);
      },
      failed: (error) => showMessage(error.message, true),
    });
  });
  find("panels").replaceChildren(...panels.map((panel) => panel.element));
  document.title = state.sentence ? `${state.sentence} · permalign` : "permalign explorer";
  await Promise.all(
    panels.map((panel, index) => {
      const [sample, checkpoint] = [state[`${keys[index]}sample`], state[`${keys[index]}checkpoint`]];
      return panel.ask(state.sentence, state.target, sample, checkpoint);
    }),
  );
  if (number !== shows) return false;
  if (panels.some((panel) => !panel.choice)) find("panels").replaceChildren(...panels.filter((panel) => panel.choice).map((panel) => panel.element));
  else showMessage("");
  const answered = panels.some((panel) => panel.choice);
  if (!answered) find("legend").hidden = true;
  return answered;
}

// The form becomes the state; another sentence or another run resets the sliders.
async function submit() {
  if (!(await loaded)) return;
  const sentence = find("sentence").value.trim();
  if (!sentence) return showMessage("The sentence is empty. Type at least one word.", true);
  const target = find("target").value.trim();
  const sameText = sentence === state.sentence && target === state.target;
  const next = { sentence, target, run: find("run").value, with: find("with").value };
  for (const [key, run] of [["", "run"], ["with-", "with"]]) {
    const sameRun = next[run] === state[run];
    next[`${key}checkpoint`] = sameRun ? state[`${key}checkpoint`] : "";
    next[`${key}sample`] = sameRun && sameText ? state[`${key}sample`] : 0;
  }
  state = next;
  if ((await show()) && state === next) {
    accepted = state;
    address.write(state, true);
  }
}

find("form").addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
find("with").addEventListener("change", submit);
find("run").addEventListener("change", () => {
  // an example of the run before means little to another run, which has its own
  const before = runs.find((run) => run.name === state.run) ?? runs[0];
  const [first] = chosenRun().examples;
  const isExample = before.examples.includes(find("sentence").value.trim());
  if (first && isExample && !chosenRun().examples.includes(find("sentence").value.trim())) choose(first);
  else submit();
});
window.addEventListener("popstate", () => {
  state = accepted = address.read();
  fillText();
  selectRuns();
  begin();
});

// Without a sentence in the address, the run's first example is shown.
async function begin() {
  if (!state.sentence) {
    const [first] = chosenRun().examples;
    if (!first || find("sentence").value || find("target").value) { // what somebody has begun to type stays
      offer();
      find("panels").replaceChildren();
      find("legend").hidden = true;
      find("sentence").focus();
      return;
    }
    state = { ...state, sentence: first };
    fillText();
    accepted = state;
  }
  await show();
}

// What somebody types while the list of runs is loading is kept, and answered afterwards.
async function load() {
  try {
    runs = await api.runs();
  } catch (error) {
    showMessage(error.message, true);
    return false;
  }
  fillChoices();
  selectRuns();
  return true;
}

if (state.sentence) fillText(); // without one in the address, what somebody has typed already stays
const loaded = load();
if (await loaded) await begin();
