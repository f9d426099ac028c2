// The predictions that a run has stored: wrong ones first, filtered by length; each leads to its tree.

import * as api from "./api.js";
import { changedWords, markedWords } from "./differences.js";

const PAGE = 10;
const words = (text) => text.split(" ").filter(Boolean);

export class Browser {
  // `chosen` is called with the sentence of a prediction that somebody wants to see.
  constructor(element, { chosen, failed }) {
    this.element = element;
    this.chosen = chosen;
    this.failed = failed;
    this.start = 0;
    this.requests = 0;
    for (const name of ["#split", "#only", "#from", "#to"]) {
      this.find(name).addEventListener("change", () => this.load(0));
    }
    this.find(".back").addEventListener("click", () => this.load(this.start - PAGE));
    this.find(".on").addEventListener("click", () => this.load(this.start + PAGE));
  }

  find(selector) {
    return this.element.querySelector(selector);
  }

  // Show the predictions of a run; one that has stored none has no browser.
  open(run) {
    if (this.run === run.name) return;
    this.run = run.name;
    this.element.hidden = run.splits.length === 0;
    this.find("#split").replaceChildren(...run.splits.map((split) => new Option(split, split)));
    if (run.splits.length) this.load(0);
  }

  async load(start) {
    this.start = Math.max(0, start);
    const request = ++this.requests;
    try {
      const page = await api.predictions({
        run: this.run,
        split: this.find("#split").value,
        only_wrong: this.find("#only").value === "wrong",
        min_length: Number(this.find("#from").value) || 0,
        max_length: this.find("#to").value === "" ? null : Number(this.find("#to").value),
        start: this.start,
        count: PAGE,
      });
      if (request === this.requests) this.show(page);
    } catch (error) {
      if (request === this.requests) this.failed(error);
    }
  }

  show(page) {
    const number = (count) => count.toLocaleString("en");
    this.find(".about").textContent = page.wrong
      ? `${this.run}: ${number(page.wrong)} of ${number(page.examples)} are wrong`
      : `${this.run}: all ${number(page.examples)} are right`;
    this.find(".predictions").replaceChildren(...page.predictions.map((prediction) => this.row(prediction)));
    const last = this.start + page.predictions.length;
    this.find(".place").textContent = page.found ? `${number(this.start + 1)}–${number(last)} of ${number(page.found)}` : "none fits";
    this.find(".back").disabled = this.start === 0;
    this.find(".on").disabled = last >= page.found;
  }

  row(prediction) {
    const row = document.createElement("li");
    const button = row.appendChild(document.createElement("button"));
    button.type = "button";
    button.className = prediction.correct ? "prediction right" : "prediction wrong";
    const [output, expected] = [words(prediction.output), words(prediction.expected)];
    const [changed, missed] = prediction.correct ? [] : changedWords(output, expected);
    button.append(
      line("sentence", prediction.correct ? "right" : "wrong", [prediction.sentence]),
      line("given", "output", markedWords(output, changed)),
    );
    if (!prediction.correct) button.append(line("wanted", "expected", markedWords(expected, missed)));
    button.addEventListener("click", () => this.chosen(prediction.sentence));
    return row;
  }
}

function line(kind, name, content) {
  const element = document.createElement("span");
  element.className = kind;
  const label = element.appendChild(document.createElement("span"));
  label.className = "name";
  label.textContent = name;
  const text = element.appendChild(document.createElement("bdi"));
  text.append(...content);
  return element;
}
