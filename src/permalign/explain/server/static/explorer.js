// The explorer: a question, a panel for each run that answers it, and an address that says it all.

import * as api from "./api.js";
import { Panel } from "./panel.js";
import * as address from "./state.js";

const find = (name) => document.getElementById(name);
const message = find("message");
let runs = [];
let state = address.read();
let accepted = state; // what the address says: a state that was answered

function say(text, wrong = false) {
  message.textContent = text;
  message.classList.toggle("wrong", wrong);
}

function fillText() {
  find("sentence").value = state.sentence;
  find("target").value = state.target;
}

function choose() {
  find("run").value = runs.some((run) => run.name === state.run) ? state.run : runs[0].name;
  find("with").value = runs.some((run) => run.name === state.with) ? state.with : "";
}

function fillChoices() {
  for (const run of runs) {
    find("run").append(new Option(run.name, run.name));
    find("with").append(new Option(run.name, run.name));
  }
  find("with").closest("label").hidden = runs.length < 2;
  const examples = [...new Set(runs.flatMap((run) => run.examples))].slice(0, 5);
  for (const example of examples) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = example;
    button.addEventListener("click", () => {
      find("sentence").value = example;
      find("target").value = "";
      submit();
    });
    find("examples").append(button);
  }
}

// What a shared address asks for that is not here; nothing else is shown in its place.
function missing() {
  for (const [name, key] of [[state.run, ""], [state.with, "with-"]]) {
    if (!name && key) continue;
    const run = name ? runs.find((one) => one.name === name) : runs[0];
    if (!run) return `There is no run “${name.slice(0, 80)}” here. Choose one above.`;
    const checkpoint = state[`${key}checkpoint`];
    if (checkpoint && !run.checkpoints.includes(checkpoint)) {
      return `${run.name} has no checkpoint “${checkpoint.slice(0, 80)}” here. Press Show to see its best model.`;
    }
  }
  return "";
}

// The panels for a state: one, or two beside (below) each other. True if anybody answered.
async function show() {
  const wrong = missing();
  say(wrong, wrong !== "");
  if (wrong) {
    find("panels").replaceChildren();
    for (const key of ["checkpoint", "with-checkpoint"]) state[key] = "";
    return false;
  }
  const names = [state.run || runs[0].name, state.with].filter(Boolean);
  const keys = ["", "with-"];
  const panels = names.map((name, place) => {
    const run = runs.find((one) => one.name === name) ?? runs[0];
    return new Panel(run, {
      changed: (sample, checkpoint) => {
        state[`${keys[place]}sample`] = sample;
        state[`${keys[place]}checkpoint`] = checkpoint;
        if (accepted === state) address.write(state, false);
      },
      failed: (error) => say(error.message, true),
    });
  });
  find("panels").replaceChildren(...panels.map((panel) => panel.element));
  document.title = state.sentence ? `${state.sentence} · permalign` : "permalign explorer";
  await Promise.all(
    panels.map((panel, place) => {
      const [sample, checkpoint] = [state[`${keys[place]}sample`], state[`${keys[place]}checkpoint`]];
      return panel.ask(state.sentence, state.target, sample, checkpoint);
    }),
  );
  if (panels.some((panel) => !panel.choice)) find("panels").replaceChildren(...panels.filter((one) => one.choice).map((one) => one.element));
  else say("");
  return panels.some((panel) => panel.choice);
}

// What the form says becomes the state; dials start anew with another sentence, and with another run.
async function submit() {
  if (!(await loaded)) return;
  const sentence = find("sentence").value.trim();
  if (!sentence) return;
  const target = find("target").value.trim();
  const same = sentence === state.sentence && target === state.target;
  const next = { sentence, target, run: find("run").value, with: find("with").value };
  for (const [key, run] of [["", "run"], ["with-", "with"]]) {
    const kept = next[run] === state[run];
    next[`${key}checkpoint`] = kept ? state[`${key}checkpoint`] : "";
    next[`${key}sample`] = kept && same ? state[`${key}sample`] : 0;
  }
  state = next;
  if ((await show()) && state === next) {
    accepted = state;
    address.write(state, true);
  }
}

find("question").addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
for (const name of ["run", "with"]) find(name).addEventListener("change", submit);
window.addEventListener("popstate", () => {
  state = accepted = address.read();
  fillText();
  choose();
  if (state.sentence) show();
  else find("panels").replaceChildren();
});

// Whoever types while the runs are still being asked for keeps what they typed, and is answered afterwards.
async function load() {
  try {
    runs = await api.runs();
  } catch (error) {
    say(error.message, true);
    return false;
  }
  fillChoices();
  choose();
  return true;
}

fillText();
const loaded = load();
if (await loaded) {
  if (state.sentence) await show();
  else find("sentence").focus();
}
