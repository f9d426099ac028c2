// Pictures that answer: what belongs together lights up, a tree grows, words move to their new places.

const numbers = (element) => (element.dataset.tokens ?? "").split(" ").filter(Boolean);

// Light up everything that belongs to some tokens; none puts all lights out.
function light(picture, tokens) {
  const wanted = new Set(tokens);
  for (const element of picture.querySelectorAll("[data-tokens]")) {
    const own = numbers(element);
    element.classList.toggle("lit", own.length > 0 && wanted.size > 0 && own.every((token) => wanted.has(token)));
  }
}

// Hovering over (or moving the focus to) a segment, a word or a node lights up its source words.
export function enliven(picture) {
  const answer = (event) => {
    const part = event.target.closest?.("[data-tokens]");
    light(picture, part ? numbers(part) : []);
  };
  picture.addEventListener("pointerover", answer);
  picture.addEventListener("focusin", answer);
  picture.addEventListener("pointerleave", () => light(picture, []));
  picture.addEventListener("focusout", () => light(picture, []));
}

export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// The tree grows from its leaves, then lines are drawn and words follow them. Nothing moves for those who asked so.
export function play(picture) {
  if (calm()) return;
  const tall = Math.max(0, ...[...picture.querySelectorAll("[data-height]")].map((one) => Number(one.dataset.height)));
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
  picture.querySelectorAll(".segment").forEach((segment, place) => appear(segment, moving + 650 + 60 * place));
}

function appear(part, delay) {
  part.animate([{ opacity: 0 }, { opacity: 1 }], { duration: 220, delay, fill: "backwards" });
}

// From one order to another: words glide from where they stood (`places`) to where they stand now.
export function glide(picture, places) {
  if (calm()) return;
  const now = glide.places(picture);
  for (const word of picture.querySelectorAll("[data-from]")) {
    const [before, after] = [places.get(word.dataset.tokens), now.get(word.dataset.tokens)];
    if (before === undefined || before === after) continue;
    const away = `translate(${before - after}px, 0)`;
    word.animate([{ transform: away }, { transform: "none" }], { duration: 380, easing: "ease-in-out" });
  }
  for (const part of picture.querySelectorAll(".tree, .lines, .segments")) appear(part, 120);
}

// Where each token stands in the reordered row.
glide.places = (picture) => {
  const words = [...picture.querySelectorAll("[data-from]")];
  return new Map(words.map((word) => [word.dataset.tokens, Number(word.querySelector("text").getAttribute("x"))]));
};

// A picture as a file of its own. The first ">" ends its opening tag: in attributes the serialiser escapes them.
export function withStyle(picture, style) {
  const copy = picture.cloneNode(true);
  light(copy, []);
  scale(copy, 1);
  return new XMLSerializer().serializeToString(copy).replace(">", () => `><style>${style}</style>`);
}

const SMALLEST = 0.6;

function scale(picture, factor) {
  const [, , width, height] = picture.getAttribute("viewBox").split(" ").map(Number);
  picture.setAttribute("width", Math.round(width * factor));
  picture.setAttribute("height", Math.round(height * factor));
  return width * factor;
}

// Shrink a picture to the room there is, while it can be read; beyond that it scrolls, beginning at the root.
export function fit(picture) {
  const room = picture.closest(".scroller");
  const full = scale(picture, 1);
  const wide = scale(picture, Math.min(1, Math.max(SMALLEST, room.clientWidth / full)));
  room.classList.toggle("cut", wide > room.clientWidth + 1);
  const root = [...picture.querySelectorAll(".node")].sort((one, other) => other.dataset.height - one.dataset.height)[0];
  const at = root && Number(root.getAttribute("transform").match(/[\d.]+/)[0]);
  if (root && wide > room.clientWidth) room.scrollLeft = (at * wide) / full - room.clientWidth / 2;
}
addEventListener("resize", () => document.querySelectorAll(".permalign-picture").forEach(fit));
