// What is shown, kept in the page's address: whoever opens it sees the same.

const TEXTS = ["sentence", "target", "run", "with", "checkpoint", "with-checkpoint"];
const COUNTS = ["sample", "with-sample"];

export function read() {
  const given = new URLSearchParams(location.search);
  const state = {};
  for (const name of TEXTS) state[name] = given.get(name) ?? "";
  for (const name of COUNTS) state[name] = Math.max(0, Number.parseInt(given.get(name) ?? "0", 10) || 0);
  return state;
}

// A new question is a new entry of the browser's history; turning a dial is not.
export function write(state, isNew) {
  const kept = new URLSearchParams();
  for (const name of [...TEXTS, ...COUNTS]) if (state[name]) kept.set(name, state[name]);
  const address = kept.size ? `?${kept}` : location.pathname;
  if (address === location.search) return;
  if (isNew) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}
