// Drives a Hub with the JavaScript client: publishes, proposes, reads, and is refused. Prints what it saw as JSON.
// Arguments: the Hub's URL, a token of a member of acme, one of a stranger.
import { commit, createRepo, downloadFile, fileExists, listFiles, whoAmI } from "@huggingface/hub";

const [hubUrl, accessToken, stranger] = process.argv.slice(2);
const repo = { type: "dataset", name: "acme/from-js" };
const row = '{"responses_create_params": {"input": "2+2?"}, "expected_answer": "4"}\n';
const add = (path, text) => ({ operation: "addOrUpdate", path, content: new Blob([text]) });
const send = (token, operations, more = {}) =>
  commit({ hubUrl, accessToken: token, repo, title: "rows", useXet: false, operations, ...more });
const status = (promise) => promise.then(() => 200, (error) => error.statusCode);
const text = async (path, revision, repository = repo) =>
  (await downloadFile({ hubUrl, accessToken, repo: repository, path, revision })).text();

await createRepo({ hubUrl, accessToken, repo, private: false });
const main = await send(accessToken, [add("train.jsonl", row), add("data/large.parquet", "PAR1PAR1")]);
const pull = await send(stranger, [add("train.jsonl", row + row)], { isPullRequest: true });
const files = [];
for await (const file of listFiles({ hubUrl, repo, recursive: true })) if (file.type === "file") files.push(file.path);
console.log(
  JSON.stringify({
    me: (await whoAmI({ hubUrl, accessToken })).name,
    commit: main.commit.oid,
    pull: pull.pullRequestUrl,
    files,
    rows: [await text("train.jsonl", "main"), await text("train.jsonl", "refs/pr/1")].map((rows) => rows.split("\n").length - 1),
    large: await text("data/large.parquet", "main"),
    published: await text("train.jsonl", "refs/pr/1", { type: "dataset", name: "acme/sums" }),
    missing: await fileExists({ hubUrl, repo, path: "none.jsonl" }),
    withoutRights: await status(send(stranger, [{ operation: "delete", path: "train.jsonl" }])),
    stale: await status(send(accessToken, [add("a", "b")], { parentCommit: "0".repeat(40) })),
  }),
);
