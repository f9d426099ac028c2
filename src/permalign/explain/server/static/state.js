// The state of the page, kept in its address: whoever opens that address sees the same.

const TEXTS = ["sentence", "target", "run", "with", "checkpoint", "with-checkpoint"];
const COUNTS = ["sample", "with-sample"];

export function read() {
  const parameters = new URLSearchParams(location.search);
  const state = {};
  for (const name of TEXTS) state[name] = parameters.get(name) ?? "";
  for (const name of COUNTS) state[name] = Math.max(0, Number.parseInt(parameters.get(name) ?? "0", 10) || 0);
  return state;
}

// A new sentence is a new entry of the browser's history; moving a slider is not.
export function write(state, isNew) {
  const parameters = new URLSearchParams();
  for (const name of [...TEXTS, ...COUNTS]) if (state[name]) parameters.set(name, state[name]);
  const address = parameters.size ? `?${parameters}` : location.pathname;
  if (address === location.search) return;
  if (isNew) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}
