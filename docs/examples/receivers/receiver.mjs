// Receives callbacks with Node.js alone, without a package.
//
// Usage: node receiver.mjs SECRET_FILE [SECRET_FILE], two during a rotation. PORT is 9000 unless it is set.

import { createHmac, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const TOLERANCE = 300; // seconds, in either direction
const MAX_BODY = 4 * 1024 * 1024;
const REMEMBERED = 100_000;
// In production a table with a unique id, written in the same transaction as what `handle` does.
const seen = new Set();

// The key is what the base64 after `whsec_` stands for. A short one, above all an empty one, could be guessed.
function readKey(file) {
  const text = readFileSync(file, "utf8").trim();
  const key = text.startsWith("whsec_") ? Buffer.from(text.slice("whsec_".length), "base64") : Buffer.alloc(0);
  if (key.length < 24) throw new Error(`${file}: a secret must be whsec_ and the base64 of at least 24 bytes`);
  return key;
}

// Returns the id of a request that one of the keys has signed. Throws an error that names what is wrong.
function verify(headers, body, keys) {
  const id = headers["webhook-id"] ?? "";
  const timestamp = headers["webhook-timestamp"] ?? "";
  const signatures = headers["webhook-signature"] ?? "";
  // A dot separates the id from the timestamp.
  if (id === "" || id.includes(".")) throw new Error("webhook-id is missing or has a dot");
  if (!/^[0-9]{1,12}$/.test(timestamp)) throw new Error("webhook-timestamp is missing or not a number");
  const signed = Buffer.concat([Buffer.from(`${id}.${timestamp}.`, "latin1"), body]);
  const expected = keys.map((key) => createHmac("sha256", key).update(signed).digest());
  const sent = signatures.split(" ").filter((entry) => entry.startsWith("v1,"));
  // timingSafeEqual takes as long for a wrong signature as for one that is nearly right. During a rotation the sender
  // signs with both keys, and one valid signature is enough.
  const isValid = sent.some((entry) => {
    const theirs = Buffer.from(entry.slice("v1,".length), "base64");
    return expected.some((ours) => ours.length === theirs.length && timingSafeEqual(ours, theirs));
  });
  if (!isValid) throw new Error("no signature is valid");
  // The time is of this attempt: a captured request cannot be sent later.
  if (Math.abs(Date.now() / 1000 - Number(timestamp)) > TOLERANCE) {
    throw new Error(`webhook-timestamp is more than ${TOLERANCE} s from the time here`);
  }
  return id;
}

// Does what the callback is for. An error is answered with 500, so that the sender tries again.
function handle(id, body) {
  console.log(id, body.toString());
}

async function readBody(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts); // the bytes that are signed, not parsed JSON
}

async function receive(request, keys) {
  if (request.url !== "/hooks") return [404, ""];
  if (request.method !== "POST") return [405, ""];
  // Node.js reads no more than this header says. Without one, the comparison is false.
  if (!(Number(request.headers["content-length"]) <= MAX_BODY)) return [413, ""];
  const body = await readBody(request);
  let id;
  try {
    id = verify(request.headers, body, keys);
  } catch (error) {
    return [401, error.message];
  }
  // The sender repeats a request, with the same id, if the answer was lost. If `handle` has to wait for something,
  // write the id first: the same request may arrive meanwhile.
  if (!seen.has(id)) {
    handle(id, body);
    seen.add(id);
    if (seen.size > REMEMBERED) seen.delete(seen.values().next().value);
  }
  return [204, ""];
}

const keys = process.argv.slice(2).map(readKey);
if (keys.length === 0) {
  console.error("usage: node receiver.mjs SECRET_FILE [SECRET_FILE]");
  process.exit(1);
}
const server = createServer(async (request, response) => {
  try {
    const [status, text] = await receive(request, keys);
    response.writeHead(status, status === 413 ? { Connection: "close" } : {}).end(text);
  } catch (error) {
    console.error(error);
    response.writeHead(500).end();
  }
});
server.requestTimeout = 20_000; // milliseconds
server.listen(Number(process.env.PORT ?? 9000), "127.0.0.1");
