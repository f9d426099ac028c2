// A panel shows what one run makes of the sentence: its choice or a sample, at a checkpoint.

import * as api from "./api.js";
import { enliven, fit, glide, play, withStyle } from "./picture.js";

const BEST = "best";

export class Panel {
  // `changed` is called with the new sample and checkpoint when a dial is turned, `failed` with an Error.
  constructor(run, { changed, failed }) {
    this.run = run;
    this.changed = changed;
    this.failed = failed;
    this.turns = { picture: 0, variants: 0, file: 0 }; // answers that come back after a newer question are dropped
    this.busy = new Set();
    this.element = document.getElementById("panel").content.cloneNode(true).querySelector("section");
    this.element.setAttribute("aria-label", run.name);
    this.element.classList.add("empty");
    this.find("h2").textContent = run.name;
    this.find(".about").textContent = run.about;
    // the best model stands at the right end, where training ended
    this.checkpoints = [...run.checkpoints.filter((name) => name !== BEST), BEST];
    this.prepareDials();
    this.find(".replay").addEventListener("click", () => play(this.find(".permalign-picture")));
    this.find(".variants").addEventListener("click", () => this.toggleVariants());
    this.find(".save").addEventListener("click", () => this.save());
  }

  find(selector) {
    return this.element.querySelector(selector);
  }

  prepareDials() {
    this.sampleDial = this.find(".sample input");
    this.sampleDial.max = api.SAMPLES;
    this.sampleDial.addEventListener("input", () => this.turned(false));
    this.checkpointDial = this.find(".checkpoint input");
    this.checkpointDial.max = this.checkpoints.length - 1;
    this.find(".checkpoint").hidden = this.checkpoints.length < 2;
    this.checkpointDial.addEventListener("input", () => {
      this.nameDials(); // at once; the model is asked when the hand comes to rest
      clearTimeout(this.resting);
      this.resting = setTimeout(() => this.turned(true), 150);
    });
  }

  get sample() {
    return Number(this.sampleDial.value);
  }

  get checkpoint() {
    return this.checkpoints[Number(this.checkpointDial.value)];
  }

  get question() {
    return { run: this.run.name, checkpoint: this.checkpoint, sentence: this.sentence };
  }

  async ask(sentence, target, sample, checkpoint) {
    this.sentence = sentence;
    this.target = target || null;
    const place = this.checkpoints.indexOf(checkpoint || BEST);
    this.checkpointDial.value = place < 0 ? this.checkpoints.length - 1 : place;
    this.sampleDial.value = this.target ? 0 : Math.min(sample, api.SAMPLES);
    await this.load(play);
  }

  async turned(asksAgain) {
    this.changed(this.sample, this.checkpoint === BEST ? "" : this.checkpoint);
    if (asksAgain) await this.load(glide);
    else await this.show(glide);
  }

  // Ask for the model's own choice; samples are asked for when they are first looked at.
  async load(move) {
    this.drawn = null;
    this.closeVariants();
    await this.guarded("picture", async (current) => {
      const choice = await api.explain({ ...this.question, target: this.target });
      if (!current()) return;
      this.choice = choice;
      this.find(".sample").hidden = this.target !== null || choice.trace.nodes.length < 2;
      await this.show(move);
    });
  }

  async show(move) {
    this.nameDials();
    if (this.sample === 0) {
      this.forget("picture");
      return this.draw(this.choice, move);
    }
    await this.guarded("picture", async (current) => {
      const drawn = this.drawn ?? (await api.samples(this.question));
      if (!current()) return;
      this.drawn = drawn;
      this.draw(drawn[this.sample - 1] ?? this.choice, move);
    });
  }

  draw(explained, move) {
    this.element.classList.remove("empty");
    const markup = new DOMParser().parseFromString(explained.html, "text/html").body;
    const before = this.find(".permalign-picture");
    const places = before && move === glide ? glide.places(before) : null;
    const open = new Set([...this.element.querySelectorAll(".picture details[open] > summary")].map((one) => one.textContent));
    const words = explained.trace.target.flatMap((word) => [isolated(word), " "]).slice(0, -1);
    this.find(".output bdi").replaceChildren(...(words.length ? words : ["∅"]));
    this.find(".picture").replaceChildren(...markup.childNodes);
    for (const summary of this.element.querySelectorAll(".picture summary")) {
      summary.parentElement.open = open.has(summary.textContent); // what was unfolded stays so
    }
    const picture = this.find(".permalign-picture");
    enliven(picture);
    fit(picture);
    if (places) glide(picture, places);
    else play(picture);
  }

  nameDials() {
    const own = this.target ? "" : "the model’s choice";
    this.find(".sample .value").textContent = this.sample === 0 ? own : `${this.sample} of ${api.SAMPLES}`;
    const name = this.checkpoint;
    const shown = name === BEST ? "best" : `step ${Number(name.replace("step-", "")).toLocaleString("en")}`;
    this.find(".checkpoint .value").textContent = shown;
    this.sampleDial.setAttribute("aria-valuetext", this.sample === 0 ? "the model’s choice" : `sample ${this.sample}`);
    this.checkpointDial.setAttribute("aria-valuetext", shown);
  }

  // Mark the panel as busy, drop answers to older questions of the same kind, and report failures.
  async guarded(kind, work) {
    const turn = ++this.turns[kind];
    const current = () => turn === this.turns[kind];
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

  // Wait no longer for an answer of this kind; one that still comes is dropped.
  forget(kind) {
    this.turns[kind] += 1;
    this.busy.delete(kind);
    if (!this.busy.size) this.element.removeAttribute("aria-busy");
  }

  closeVariants() {
    this.forget("variants");
    this.find(".comparison").hidden = true;
    this.find(".variants").setAttribute("aria-expanded", "false");
  }

  async toggleVariants() {
    const place = this.find(".comparison");
    if (!place.hidden) return this.closeVariants();
    await this.guarded("variants", async (current) => {
      const comparison = await api.compare(this.question);
      if (!current()) return;
      place.replaceChildren(comparison ? variantsTable(comparison) : paragraph("This model has one way to decode only."));
      place.hidden = false;
      this.find(".variants").setAttribute("aria-expanded", "true");
    });
  }

  // The picture as it is shown, choice or sample, with its style.
  async save() {
    await this.guarded("file", async () => {
      const file = withStyle(this.find(".permalign-picture"), await api.style());
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([file], { type: "image/svg+xml" }));
      link.download = "permalign.svg";
      link.click();
      URL.revokeObjectURL(link.href);
    });
  }
}

// A word that cannot turn those beside it around.
function isolated(word) {
  const element = document.createElement("bdi");
  element.textContent = word;
  return element;
}

function variantsTable(comparison) {
  const parts = document.createElement("div");
  let verdict = "All three outputs are the same; their trees or orders differ.";
  if (!comparison.trees_differ) verdict = "Greedy, Viterbi and the most probable permutation agree on the tree.";
  else if (comparison.outputs_differ) verdict = "The outputs differ.";
  parts.append(paragraph(verdict));
  const table = parts.appendChild(document.createElement("table"));
  row(table.createTHead(), ["way", "tree", "order", "reads", "writes"], "th");
  const body = table.createTBody();
  for (const variant of comparison.variants) {
    const { source, target, order, confidence } = variant.trace;
    const words = [order.map((token) => source[token]).join(" "), target.join(" ")];
    const cells = row(body, [variant.name, figure(confidence.derivation), figure(confidence.order), ...words], "td");
    cells[0].title = variant.meaning;
  }
  return parts;
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

const figure = (logProb) => (logProb === null ? "–" : Math.exp(logProb).toFixed(3));

function paragraph(text) {
  const element = document.createElement("p");
  element.textContent = text;
  return element;
}
