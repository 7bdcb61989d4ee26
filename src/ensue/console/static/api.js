// Requests to the service; rejected ones throw a Problem.

const BASE = "/api/v1";

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `The service answered ${status}.`);
    this.status = status;
    this.hint = body.hint ?? null;
    this.start = body.start ?? null;
    this.end = body.end ?? null;
    this.line = body.line ?? null;
    this.column = body.column ?? null;
    this.body = body;
  }
}

function token() {
  return document.querySelector('meta[name="csrf-token"]').content;
}

async function ask(method, path, body, { signal, headers = {} } = {}) {
  const options = { method, signal, headers: { Accept: "application/json", ...headers } };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  if (method !== "GET") options.headers["X-CSRF-Token"] = token();
  let answer;
  try {
    answer = await fetch(BASE + path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, {
      detail: "The service does not answer.",
      hint: "It may be restarting.",
    });
  }
  if (answer.status === 401) location.assign(signIn());
  if (answer.status === 204) return null;
  const type = answer.headers.get("Content-Type") ?? "";
  const content = type.includes("json") ? await answer.json() : { detail: await answer.text() };
  if (!answer.ok) throw new Problem(answer.status, content);
  return content;
}

export function signIn() {
  return `/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`;
}

export const get = (path, options) => ask("GET", path, undefined, options);
export const post = (path, body = {}, options) => ask("POST", path, body, options);
export const put = (path, body) => ask("PUT", path, body);
export const patch = (path, body) => ask("PATCH", path, body);
export const remove = (path) => ask("DELETE", path);
