// A panel shows how one run reads the sentence: its own choice or a sample, at one of its checkpoints.

import * as api from "./api.js";
import { changedWords, markedWords, outputWords } from "./differences.js";
import { savePng, saveSvg } from "./export.js";
import { fit, glide, makeInteractive, play, withStyle } from "./picture.js";

const BEST = "best";

export class Panel {
  // `changed` is called with the new sample and checkpoint when a slider is moved, `drawn` when a picture was drawn,
  // `failed` with an Error.
  constructor(run, { changed, drawn, failed }) {
    this.run = run;
    this.changed = changed;
    this.onDrawn = drawn;
    this.failed = failed;
    this.requests = { picture: 0, variants: 0, file: 0 }; // counted, so that outdated answers are dropped
    this.busy = new Set();
    this.element = document.getElementById("panel").content.cloneNode(true).querySelector("section");
    this.element.setAttribute("aria-label", run.name);
    this.element.classList.add("empty");
    this.find("h2").textContent = run.name;
    this.find(".about").textContent = run.about;
    // the best model is at the right end, where training ended
    this.checkpoints = [...run.checkpoints.filter((name) => name !== BEST), BEST];
    this.prepareSliders();
    this.find(".replay").addEventListener("click", () => play(this.find(".permalign-picture")));
    this.find(".variants").addEventListener("click", () => this.toggleVariants());
    this.find(".save.svg").addEventListener("click", () => this.save(saveSvg));
    this.find(".save.png").addEventListener("click", () => this.save(savePng));
  }

  find(selector) {
    return this.element.querySelector(selector);
  }

  prepareSliders() {
    this.sampleSlider = this.find(".sample input");
    this.sampleSlider.max = api.SAMPLES;
    this.sampleSlider.addEventListener("input", () => this.sliderMoved(false));
    this.checkpointSlider = this.find(".checkpoint input");
    this.checkpointSlider.max = this.checkpoints.length - 1;
    this.find(".checkpoint").hidden = this.checkpoints.length < 2;
    this.checkpointSlider.addEventListener("input", () => {
      this.labelSliders(); // at once; the request waits until the slider rests
      clearTimeout(this.restTimer);
      this.restTimer = setTimeout(() => this.sliderMoved(true), 150);
    });
  }

  get sample() {
    return Number(this.sampleSlider.value);
  }

  get checkpoint() {
    return this.checkpoints[Number(this.checkpointSlider.value)];
  }

  get request() {
    return { run: this.run.name, checkpoint: this.checkpoint, sentence: this.sentence };
  }

  async ask(sentence, target, sample, checkpoint) {
    this.sentence = sentence;
    this.target = target || null;
    const index = this.checkpoints.indexOf(checkpoint || BEST);
    this.checkpointSlider.value = index < 0 ? this.checkpoints.length - 1 : index;
    this.sampleSlider.value = this.target ? 0 : Math.min(sample, api.SAMPLES);
    this.expected = null;
    await Promise.all([this.load(play), this.lookUp()]);
  }

  // What the data says the output should be; nothing is shown if it does not know the sentence.
  async lookUp() {
    if (!this.run.splits.length || this.target) return;
    try {
      const { expected } = await api.expected({ run: this.run.name, sentence: this.sentence });
      this.expected = expected;
    } catch {
      this.expected = null; // a convenience; the request for the picture says what is wrong
    }
    this.showVerdict();
  }

  showVerdict() {
    const verdict = this.find(".verdict");
    verdict.hidden = this.expected === null || !this.shown;
    if (verdict.hidden) return;
    const [expected, output] = [this.expected.split(" ").filter(Boolean), outputWords(this.shown.trace)];
    const right = expected.join(" ") === output.join(" ");
    verdict.className = right ? "verdict right" : "verdict wrong";
    verdict.replaceChildren(right ? "✓ as expected" : "✗ expected ");
    if (!right) verdict.append(...markedWords(expected, changedWords(expected, output)[0]));
  }

  // The words of the output; some of them may be marked, or all of them if what differs is known for their tokens only.
  showOutput(changed = new Set()) {
    const { trace } = this.shown;
    const words = outputWords(trace);
    const marked = trace.words && changed.size ? new Set(words.keys()) : changed;
    this.find(".output bdi").replaceChildren(...markedWords(words, marked));
  }

  async sliderMoved(reload) {
    this.changed(this.sample, this.checkpoint === BEST ? "" : this.checkpoint);
    if (reload) await this.load(glide);
    else await this.show(glide);
  }

  // Request the model's own choice; samples are requested when they are first shown.
  async load(animate) {
    this.drawn = null;
    this.closeVariants();
    await this.guarded("picture", async (current) => {
      const choice = await api.explain({ ...this.request, target: this.target });
      if (!current()) return;
      this.choice = choice;
      this.find(".sample").hidden = this.target !== null || choice.trace.nodes.length < 2;
      await this.show(animate);
    });
  }

  async show(animate) {
    this.labelSliders();
    if (this.sample === 0) {
      this.forget("picture");
      return this.draw(this.choice, animate);
    }
    await this.guarded("picture", async (current) => {
      const drawn = this.drawn ?? (await api.samples(this.request));
      if (!current()) return;
      this.drawn = drawn;
      this.draw(drawn[this.sample - 1] ?? this.choice, animate);
    });
  }

  draw(answer, animate) {
    this.element.classList.remove("empty");
    const markup = new DOMParser().parseFromString(answer.html, "text/html").body;
    const before = this.find(".permalign-picture");
    const positions = before && animate === glide ? glide.positions(before) : null;
    const open = new Set([...this.element.querySelectorAll(".picture details[open] > summary")].map((summary) => summary.textContent));
    this.shown = answer;
    this.showOutput();
    this.showVerdict();
    this.find(".picture").replaceChildren(...markup.childNodes);
    for (const summary of this.element.querySelectorAll(".picture summary")) {
      summary.parentElement.open = open.has(summary.textContent); // what was open stays open
    }
    const picture = this.find(".permalign-picture");
    makeInteractive(picture);
    fit(picture);
    if (positions) glide(picture, positions);
    else play(picture);
    this.onDrawn();
  }

  labelSliders() {
    const own = this.target ? "" : "the model’s choice";
    this.find(".sample .value").textContent = this.sample === 0 ? own : `${this.sample} of ${api.SAMPLES}`;
    const name = this.checkpoint;
    const shown = name === BEST ? "best" : `step ${Number(name.replace("step-", "")).toLocaleString("en")}`;
    this.find(".checkpoint .value").textContent = shown;
    this.sampleSlider.setAttribute("aria-valuetext", this.sample === 0 ? "the model’s choice" : `sample ${this.sample}`);
    this.checkpointSlider.setAttribute("aria-valuetext", shown);
  }

  // Mark the panel as busy, drop answers to older requests of the same kind, and report failures.
  async guarded(kind, work) {
    const request = ++this.requests[kind];
    const current = () => request === this.requests[kind];
    this.busy.add(kind);
    this.element.setAttribute("aria-busy", "true");
    try {
      await work(current);
    } catch (error) {
      if (current()) this.failed(error);
    } finally {
      if (current()) this.forget(kind);
    }
  }

  // Stop waiting for an answer of this kind; one that still arrives is dropped.
  forget(kind) {
    this.requests[kind] += 1;
    this.busy.delete(kind);
    if (!this.busy.size) this.element.removeAttribute("aria-busy");
  }

  closeVariants() {
    this.forget("variants");
    this.find(".comparison").hidden = true;
    this.find(".variants").setAttribute("aria-expanded", "false");
  }

  async toggleVariants() {
    const comparisonElement = this.find(".comparison");
    if (!comparisonElement.hidden) return this.closeVariants();
    await this.guarded("variants", async (current) => {
      const comparison = await api.compare(this.request);
      if (!current()) return;
      const content = comparison ? variantsTable(comparison) : paragraph("This model has only one way of decoding.");
      comparisonElement.replaceChildren(content);
      comparisonElement.hidden = false;
      this.find(".variants").setAttribute("aria-expanded", "true");
    });
  }

  // Save the picture as it is shown, choice or sample, with its style.
  async save(write) {
    await this.guarded("file", async () => {
      await write(withStyle(this.find(".permalign-picture"), await api.style()));
    });
  }
}

function variantsTable(comparison) {
  const container = document.createElement("div");
  let verdict = "All three outputs are the same, but their trees or orders differ.";
  if (!comparison.trees_differ) verdict = "Greedy, Viterbi and the most probable permutation agree on the tree.";
  else if (comparison.outputs_differ) verdict = "The outputs differ.";
  container.append(paragraph(verdict));
  const table = container.appendChild(document.createElement("table"));
  row(table.createTHead(), ["decoding", "tree", "order", "reordered", "output"], "th");
  const body = table.createTBody();
  for (const variant of comparison.variants) {
    const { source, target, order, confidence } = variant.trace;
    const words = [order.map((token) => source[token]).join(" "), target.join(" ")];
    const cells = row(body, [variant.name, probability(confidence.derivation), probability(confidence.order), ...words], "td");
    cells[0].title = variant.meaning;
  }
  return container;
}

function row(parent, texts, kind) {
  const line = parent.insertRow();
  return texts.map((text) => {
    const cell = line.appendChild(document.createElement(kind));
    cell.dir = "auto";
    cell.textContent = text;
    return cell;
  });
}

const probability = (logProb) => (logProb === null ? "–" : Math.exp(logProb).toFixed(3));

function paragraph(text) {
  const element = document.createElement("p");
  element.textContent = text;
  return element;
}
