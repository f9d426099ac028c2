// Interactive pictures: related parts are highlighted, the tree grows, words move to their new positions.

const tokensOf = (element) => (element.dataset.tokens ?? "").split(" ").filter(Boolean);

// Highlight everything that belongs to some tokens; no tokens remove all highlights.
function highlight(picture, tokens) {
  const highlighted = new Set(tokens);
  for (const element of picture.querySelectorAll("[data-tokens]")) {
    const own = tokensOf(element);
    element.classList.toggle("lit", own.length > 0 && highlighted.size > 0 && own.every((token) => highlighted.has(token)));
  }
}

// Hovering over a segment, a word or a node, or focusing it, highlights its source words.
export function makeInteractive(picture) {
  const react = (event) => {
    const part = event.target.closest?.("[data-tokens]");
    highlight(picture, part ? tokensOf(part) : []);
  };
  picture.addEventListener("pointerover", react);
  picture.addEventListener("focusin", react);
  picture.addEventListener("pointerleave", () => highlight(picture, []));
  picture.addEventListener("focusout", () => highlight(picture, []));
}

const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// The tree grows from its leaves, then lines are drawn and words follow them; nothing moves if the user prefers so.
export function play(picture) {
  if (reducedMotion()) return;
  const tall = Math.max(0, ...[...picture.querySelectorAll("[data-height]")].map((element) => Number(element.dataset.height)));
  const rise = Math.min(90, 600 / Math.max(tall, 1));
  for (const part of picture.querySelectorAll("[data-height]")) {
    appear(part, rise * Number(part.dataset.height));
  }
  const moving = rise * tall + 150;
  for (const line of picture.querySelectorAll(".line")) {
    const timing = { duration: 700, delay: moving, fill: "backwards", easing: "ease-in-out" };
    line.animate(
      [
        { strokeDasharray: "1", strokeDashoffset: 1 },
        { strokeDasharray: "1", strokeDashoffset: 0 },
      ],
      timing,
    );
  }
  for (const word of picture.querySelectorAll("[data-from]")) {
    const [x, y] = word.dataset.from.split(" ");
    word.animate([{ transform: `translate(${x}px, ${y}px)` }, { transform: "none" }], {
      duration: 700,
      delay: moving,
      fill: "backwards",
      easing: "ease-in-out",
    });
  }
  picture.querySelectorAll(".segment").forEach((segment, index) => appear(segment, moving + 650 + 60 * index));
}

function appear(part, delay) {
  part.animate([{ opacity: 0 }, { opacity: 1 }], { duration: 220, delay, fill: "backwards" });
}

// From one order to another: words glide from their old `positions` to their new ones.
export function glide(picture, positions) {
  if (reducedMotion()) return;
  const newPositions = glide.positions(picture);
  for (const word of picture.querySelectorAll("[data-from]")) {
    const [before, after] = [positions.get(word.dataset.tokens), newPositions.get(word.dataset.tokens)];
    if (before === undefined || before === after) continue;
    const offset = `translate(${before - after}px, 0)`;
    word.animate([{ transform: offset }, { transform: "none" }], { duration: 380, easing: "ease-in-out" });
  }
  for (const part of picture.querySelectorAll(".tree, .lines, .segments")) appear(part, 120);
}

// The horizontal position of each token in the reordered row.
glide.positions = (picture) => {
  const words = [...picture.querySelectorAll("[data-from]")];
  return new Map(words.map((word) => [word.dataset.tokens, Number(word.querySelector("text").getAttribute("x"))]));
};

// A picture as a standalone file. The first ">" ends its opening tag, because the serialiser escapes ">" in attributes.
export function withStyle(picture, style) {
  const copy = picture.cloneNode(true);
  highlight(copy, []);
  scale(copy, 1);
  return new XMLSerializer().serializeToString(copy).replace(">", () => `><style>${style}</style>`);
}

const MIN_SCALE = 0.6;

function scale(picture, factor) {
  const [, , width, height] = picture.getAttribute("viewBox").split(" ").map(Number);
  picture.setAttribute("width", Math.round(width * factor));
  picture.setAttribute("height", Math.round(height * factor));
  return width * factor;
}

// Shrink a picture to the available width as long as it is legible; beyond that it scrolls, starting at the root.
export function fit(picture) {
  const scroller = picture.closest(".scroller");
  const full = scale(picture, 1);
  const width = scale(picture, Math.min(1, Math.max(MIN_SCALE, scroller.clientWidth / full)));
  scroller.classList.toggle("cut", width > scroller.clientWidth + 1);
  const root = [...picture.querySelectorAll(".node")].sort((a, b) => b.dataset.height - a.dataset.height)[0];
  const at = root && Number(root.getAttribute("transform").match(/[\d.]+/)[0]);
  if (root && width > scroller.clientWidth) scroller.scrollLeft = (at * width) / full - scroller.clientWidth / 2;
}
addEventListener("resize", () => document.querySelectorAll(".scroller .permalign-picture").forEach(fit));
