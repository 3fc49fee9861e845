// Calls a gateway by its .proto files alone: node client.js PROTO_FOLDER ADDRESS. Prints one JSON object.
"use strict";

const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [folder, address] = process.argv.slice(2);
const loaded = loader.loadSync("saguaro/v1/gateway.proto", { includeDirs: [folder], longs: String, enums: String });
const { GatewayService } = grpc.loadPackageDefinition(loaded).saguaro.v1;
const client = new GatewayService(address, grpc.credentials.createInsecure());
const chat = { messages: [{ role: "user", content: "Größe 🌵?" }] };

function unary(method, request) {
  return new Promise((resolve, reject) =>
    client[method](request, (error, response) => (error ? reject(error) : resolve(response))),
  );
}

// The events of one answer, and the error that ended it. `each` sees every event while the call runs.
function generate(request, options = {}, each = () => {}) {
  return new Promise((resolve) => {
    const events = [];
    const call = client.Generate(request, options);
    call.on("data", (event) => {
      events.push(event);
      each(event, call);
    });
    call.on("error", (error) => resolve({ events, code: error.code, details: error.details }));
    call.on("end", () => resolve({ events, code: 0 }));
  });
}

async function main() {
  const listed = await unary("ListModels", {});
  const tokens = await unary("Tokenize", { text: "Größe 🌵?" });
  const text = await unary("Detokenize", tokens);
  const answer = await generate({ chat, maxTokens: 24, sampling: { seed: "18446744073709551615", temperature: 0.5 } });
  const refused = await generate({ chat, sampling: { temperature: -1 } });
  const cancelled = await generate({ chat, ignoreEos: true }, {}, (event, call) => event.delta && call.cancel());
  const late = await generate({ chat, ignoreEos: true }, { deadline: Date.now() + 300 });
  const deltas = answer.events.filter((event) => event.delta).map((event) => event.delta);
  console.log(
    JSON.stringify({
      model: listed.models[0].model.name,
      detokenized: text.text,
      seed: answer.events[0].started.seed,
      text: deltas.map((delta) => delta.text).join("") + answer.events.at(-1).finished.text,
      token_ids: deltas.flatMap((delta) => delta.tokenIds),
      provenance: [...new Set(deltas.flatMap((delta) => delta.provenance))],
      reason: answer.events.at(-1).finished.reason,
      refused: [refused.code, refused.details],
      cancelled: cancelled.code,
      late: late.code,
    }),
  );
  client.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
