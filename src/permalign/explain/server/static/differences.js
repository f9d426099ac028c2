// Differences between two outputs, and between the trees, orders, alignments and outputs of two runs.

// For each of two lists of words, the indices of those that are not part of their longest common subsequence.
export function changedWords(words, others) {
  const lengths = Array.from({ length: words.length + 1 }, () => new Array(others.length + 1).fill(0));
  for (let i = words.length - 1; i >= 0; i -= 1) {
    for (let j = others.length - 1; j >= 0; j -= 1) {
      lengths[i][j] = words[i] === others[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const [changed, otherChanged] = [new Set(words.keys()), new Set(others.keys())];
  for (let i = 0, j = 0; i < words.length && j < others.length; ) {
    if (words[i] === others[j]) {
      changed.delete(i);
      otherChanged.delete(j);
      i += 1;
      j += 1;
    } else if (lengths[i + 1][j] >= lengths[i][j + 1]) i += 1;
    else j += 1;
  }
  return [changed, otherChanged];
}

// The words of an output, which its tokens (characters, subwords) may only be parts of.
export const outputWords = (trace) => trace.words ?? trace.target;

// Words as elements, each with its own text direction; those that are changed are marked.
export function markedWords(words, changed = new Set()) {
  if (!words.length) return ["∅"];
  return words.flatMap((word, index) => {
    const element = document.createElement("bdi");
    element.textContent = word;
    element.classList.toggle("differs", changed.has(index));
    return index ? [" ", element] : [element];
  });
}

const keyOf = (node) => `${node.start} ${node.end} ${node.rule} ${node.children.length}`;
const segmentKey = (trace, source, target) => `${source.join(" ")} → ${target.map((word) => trace.target[word]).join(" ")}`;
const segmentKeys = (trace) => new Set(trace.segments.map(({ source, target }) => segmentKey(trace, source, target)));
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);

// Mark in one panel the words of the output, the words of the new order, the nodes and the segments that the other does
// not have. Returns how many nodes and how many segments these are.
function mark(panel, output, order, known, knownSegments) {
  const picture = panel.find(".permalign-picture");
  panel.showOutput(output);
  picture.querySelectorAll(".written").forEach((word, index) => {
    word.classList.toggle("differs", output.has(Number(word.dataset.words ?? index)));
  });
  picture.querySelectorAll(".reordered .word").forEach((word, index) => word.classList.toggle("differs", order.has(index)));
  const nodes = panel.shown.trace.nodes.filter((node) => node.rule !== null);
  picture.querySelectorAll(".node").forEach((element, index) => {
    element.classList.toggle("differs", known.size > 0 && !known.has(keyOf(nodes[index])));
  });
  let segments = 0;
  picture.querySelectorAll(".segment").forEach((element) => {
    const source = element.dataset.tokens.split(" ").filter(Boolean);
    const target = [...element.querySelectorAll(".written")].map((word) => Number(word.dataset.words));
    const differs = knownSegments !== null && !knownSegments.has(segmentKey(panel.shown.trace, source, target));
    element.classList.toggle("differs", differs);
    segments += differs;
  });
  return [nodes.filter((node) => known.size > 0 && !known.has(keyOf(node))).length, segments];
}

// Mark what differs between two panels; returns it in words. Trees over different tokens are not compared.
export function markDifferences(one, other) {
  const [a, b] = [one.shown.trace, other.shown.trace];
  const comparable = same(a.source, b.source);
  const outputs = changedWords(a.target, b.target);
  const orders = comparable && a.order && b.order ? changedWords(a.order, b.order) : [new Set(), new Set()];
  const keys = (trace) => new Set(comparable ? trace.nodes.map(keyOf) : []);
  const aligned = comparable && a.segments && b.segments;
  const [nodes, segments] = mark(one, outputs[0], orders[0], keys(b), aligned ? segmentKeys(b) : null);
  const [, otherSegments] = mark(other, outputs[1], orders[1], keys(a), aligned ? segmentKeys(a) : null);
  const parts = [same(a.target, b.target) ? "the outputs are the same" : "the outputs differ"];
  if (comparable && a.order && b.order) parts.push(same(a.order, b.order) ? "the orders are the same" : "the orders differ");
  if (comparable && a.nodes.length && b.nodes.length) {
    const count = a.nodes.filter((node) => node.rule !== null).length;
    parts.push(nodes ? `${nodes} of ${count} nodes differ` : "the trees are the same");
  }
  if (aligned) parts.push(segments + otherSegments ? "the alignments differ" : "the alignments are the same");
  const text = `${parts.join(", ")}.`;
  return text[0].toUpperCase() + text.slice(1);
}
