// Requests to the server. A failure is an Error whose message can be shown to the user.

export const SAMPLES = 8;

export const runs = () => request("/api/runs");
export const explain = (body) => request("/api/explain", body);
export const samples = (body) => request("/api/samples", { ...body, count: SAMPLES });
export const compare = (body) => request("/api/compare", body);
export const predictions = (body) => request("/api/predictions", body);
export const expected = (body) => request("/api/expected", body);
export const style = () => request("/static/picture.css", undefined, (response) => response.text());

async function request(path, body, read = (response) => response.json()) {
  const options = body && {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer. Is `permalign serve` still running?");
  }
  if (response.ok) return read(response);
  const failure = await response.json().catch(() => ({}));
  throw new Error(failure.error ?? `The server answered with status ${response.status}.`);
}
