"""Runs the jobs of a workflow in the way of GitHub, as far as this project needs it.

Each `run:` runs in bash with GitHub's flags and variables. Conditions and expressions are evaluated, and artifacts go from
job to job. `stand_in.py` replaces programs that need a network, a GPU or minutes, and records their calls.
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
STOOD_IN = "cargo cargo-vram rustc rustup gh curl wget git strip npm pip docker sudo apt-get ssh nvidia-smi".split()
SYSTEM = "/usr/bin:/bin"


# The commands that GitHub knows, from `ActionCommandManager.cs` of actions/runner.
COMMANDS = {"add-mask", "add-matcher", "add-path", "debug", "echo", "endgroup", "error", "group", "notice",
            "remove-matcher", "save-state", "set-env", "set-output", "stop-commands", "warning"}


class Failed(Exception):
    """GitHub would refuse this, or the result differs from the test's expectation."""


def load(path):
    """Reads a workflow or an action. In YAML 1.1, the key `on` is the boolean true."""
    text = yaml.safe_load((ROOT / path).read_text())
    if True in text:
        text["on"] = text.pop(True)
    return text


TOKEN = re.compile(r"\s*(?:('(?:[^']|'')*')|(-?\d+(?:\.\d+)?)\b|([A-Za-z_][\w-]*(?:\.(?:[\w-]+|\*))*)|(&&|\|\||==|!=|[!(),<>]))")
FUNCTIONS = {"contains", "always", "success", "failure", "cancelled", "format"}


def evaluate(expression, contexts):
    """Evaluates a GitHub expression by translating it to Python, which is similar."""

    def look_up(path):
        here, many = contexts, False
        if path.split(".")[0] not in contexts:
            raise Failed(f"no context has `{path}`, in `{expression}`")
        for name in path.split("."):
            if name == "*":
                many, here = True, here or []
            elif many:
                here = [one.get(name) for one in here]
            else:
                here = here.get(name) if isinstance(here, dict) else None
        return "" if here is None else here

    def contains(where, what):
        return what in where

    python, at = [], 0
    while expression[at:].strip():
        token = TOKEN.match(expression, at)
        if token is None:
            raise Failed(f"cannot read `{expression[at:]}`")
        text, number, name, sign = token.groups()
        at = token.end()
        if text is not None:
            python.append(repr(text[1:-1].replace("''", "'")))
        elif number is not None:
            python.append(number)
        elif name in FUNCTIONS:
            python.append(name)
        elif name is not None:
            python.append({"true": "True", "false": "False"}.get(name, f"look_up({name!r})"))
        else:
            python.append({"&&": " and ", "||": " or ", "!": " not "}.get(sign, sign))
    failed = contexts["job"].get("failed", False)
    known = {
        "look_up": look_up,
        "contains": contains,
        "format": str.format,
        "always": lambda: True,
        "cancelled": lambda: False,
        "failure": lambda: failed,
        "success": lambda: not failed,
    }
    return eval("".join(python), {"__builtins__": {}}, known)  # noqa: S307, all expressions are from this repository


def filled_in(value, contexts):
    """Replaces each `${{ … }}` in a value; the result is always a text."""

    def text(value):
        return str(value).lower() if isinstance(value, bool) else str(value)

    return re.sub(r"\$\{\{(.*?)\}\}", lambda found: text(evaluate(found.group(1), contexts)), text(value), flags=re.DOTALL)


def commands(stdout, stderr):
    """The lines of a step's output that GitHub takes for workflow commands.

    `::` counts at the start of a line, after spaces, and `##[` counts anywhere. GitHub reads lines of stderr before
    waiting lines of stdout. After `::stop-commands::TOKEN`, it ignores commands until the end of the step.
    """
    for line in (stderr + stdout).splitlines():
        new = re.match(r"\s*::([\w-]+)(?: .*?)?::", line)
        old = re.search(r"##\[([\w-]+)(?: [^\]]*)?\]", line)
        names = {one[1].lower() for one in (new, old) if one}
        if "stop-commands" in names:
            return
        if names & COMMANDS:
            yield line


def holds(condition, contexts):
    """Evaluates a condition. Without a status function, it requires success, too."""
    if condition is None:
        return not contexts["job"].get("failed", False)
    condition = str(condition).strip()
    if condition.startswith("${{"):
        condition = condition[3:-2]
    asks = re.search(r"\b(always|success|failure|cancelled)\(\)", condition)
    value = evaluate(condition, contexts)
    return bool(value) and (bool(asks) or not contexts["job"].get("failed", False))


class Run:
    """One run of a workflow for one event."""

    def __init__(self, folder, path, github, *, variables=None, artifacts=None, environment=None):
        self.folder = Path(folder)
        self.path = path
        self.workflow = load(path)
        self.github = {"repository": "owner/project", "token": "not-a-token", "workflow": self.workflow["name"], **github}
        self.github.setdefault("ref", "refs/heads/main")
        self.variables = variables or {}
        # The artifacts of another run, for steps with `run-id`, and those of this run.
        self.theirs, self.own = artifacts or {}, {}
        self.environment = environment or {}
        self.record = self.folder / "record.jsonl"
        self.record.touch()
        self.results, self.outputs, self.ran = {}, {}, []
        self.summary, self.log = "", ""
        # The workflow commands of all steps.
        self.commands = []

    def all(self):
        """Runs all jobs in the order of their needs; returns their results."""
        waiting = dict(self.workflow["jobs"])
        while waiting:
            for name, job in list(waiting.items()):
                needs = job.get("needs", [])
                needs = [needs] if isinstance(needs, str) else needs
                if all(one in self.results for one in needs):
                    del waiting[name]
                    self.results[name] = self.job(name, job, needs)
        return self.results

    def job(self, name, job, needs):
        if "permissions" not in job and "permissions" not in self.workflow:
            raise Failed(f"{self.path}: {name} has all permissions")
        if "timeout-minutes" not in job:
            raise Failed(f"{self.path}: {name} has no timeout, so it may run for six hours")
        needed = {one: {"result": self.results[one], "outputs": self.outputs.get(one, {})} for one in needs}
        before = {"failed": any(one["result"] != "success" for one in needed.values())}
        contexts = {"github": self.github, "vars": self.variables, "needs": needed, "job": before}
        if not holds(job.get("if"), contexts):
            return "skipped"
        matrix = job.get("strategy", {}).get("matrix", {})
        rows = matrix.get("include") or [{key: one} for key, values in matrix.items() for one in values] or [{}]
        results = [self.row(f"{name}-{number}", name, job, needed, row) for number, row in enumerate(rows)]
        return "failure" if "failure" in results else "success"

    def row(self, folder, name, job, needed, matrix):
        home = self.folder / folder
        for part in ("workspace", "temp", "home", "bin"):
            (home / part).mkdir(parents=True)
        for program in STOOD_IN:
            stand_in(home / "bin" / program)
        contexts = {
            "github": self.github,
            "vars": self.variables,
            "needs": needed,
            "matrix": matrix,
            "runner": {"temp": str(home / "temp"), "os": "Linux", "arch": "X64"},
            "steps": {},
            "job": {"failed": False},
            "env": {},
        }
        where = filled_in(job["runs-on"], contexts)
        if not where:
            raise Failed(f"{self.path}: {name} has an empty `runs-on`")
        job_environment = {key: filled_in(value, contexts) for key, value in
                           {**self.workflow.get("env", {}), **job.get("env", {})}.items()}
        for step in job["steps"]:
            self.step(home, step, contexts, job_environment, self.path)
        self.outputs[name] = {key: filled_in(value, contexts) for key, value in job.get("outputs", {}).items()}
        return "failure" if contexts["job"]["failed"] else "success"

    def step(self, home, step, contexts, environment, file):
        """Runs a step, and adds its outcome and outputs to the contexts."""
        if not holds(step.get("if"), contexts):
            if "id" in step:
                contexts["steps"][step["id"]] = {"outcome": "skipped", "outputs": {}}
            return
        outputs, failed = {}, False
        try:
            if "run" in step:
                failed, outputs = self.script(home, step, contexts, environment, file)
            else:
                outputs = self.uses(home, step, contexts, environment)
        except FileNotFoundError:
            failed = True
        if "id" in step:
            contexts["steps"][step["id"]] = {"outcome": "failure" if failed else "success", "outputs": outputs}
        if failed and not step.get("continue-on-error"):
            contexts["job"]["failed"] = True

    def script(self, home, step, contexts, environment, file):
        workspace = home / "workspace"
        shell = step.get("shell") or self.workflow.get("defaults", {}).get("run", {}).get("shell")
        if shell != "bash":
            raise Failed(f"{file}: without `shell: bash` there is no pipefail:\n{step['run']}")
        files = {name: home / "temp" / f"_{name}" for name in ("output", "summary", "env", "path")}
        for one in files.values():
            one.write_text("")
        script = home / "temp" / "_script.sh"
        script.write_text(step["run"])
        own = {key: filled_in(value, contexts) for key, value in step.get("env", {}).items()}
        (home / "temp" / "_event.json").write_text(json.dumps(self.github.get("event", {})))
        result = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=workspace / filled_in(step.get("working-directory", "."), contexts),
            env={
                "PATH": f"{home / 'bin'}:{SYSTEM}",
                "HOME": str(home / "home"),
                "CI": "true",
                "ImageOS": "ubuntu24",
                "GITHUB_ACTIONS": "true",
                "GITHUB_WORKSPACE": str(workspace),
                "GITHUB_REPOSITORY": self.github["repository"],
                "GITHUB_SERVER_URL": "https://github.invalid",
                "GITHUB_RUN_ID": "6",
                "GITHUB_REF_NAME": self.github["ref"].rsplit("/", 1)[-1],
                "GITHUB_BASE_REF": self.github.get("base_ref", ""),
                "GITHUB_EVENT_NAME": self.github["event_name"],
                "GITHUB_EVENT_PATH": str(home / "temp" / "_event.json"),
                "GITHUB_ACTION_PATH": str(ROOT / ".github/actions/vram"),
                "GITHUB_OUTPUT": str(files["output"]),
                "GITHUB_STEP_SUMMARY": str(files["summary"]),
                "GITHUB_ENV": str(files["env"]),
                "GITHUB_PATH": str(files["path"]),
                "RUNNER_TEMP": str(home / "temp"),
                "RUNNER_OS": "Linux",
                "STAND_IN_RECORD": str(self.record),
                **self.environment,
                **environment,
                **own,
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.ran.append((file, step["run"], result.returncode))
        self.log += result.stdout + result.stderr
        self.commands += commands(result.stdout, result.stderr)
        self.summary += files["summary"].read_text()
        outputs = dict(line.split("=", 1) for line in files["output"].read_text().splitlines())
        return result.returncode != 0, outputs

    def uses(self, home, step, contexts, environment):
        """Runs this project's action, or does what another action would do."""
        workspace, action = home / "workspace", step["uses"]
        given = {key: filled_in(value, contexts) for key, value in step.get("with", {}).items()}
        if action == "./.github/actions/vram":
            if not (workspace / ".github/actions/vram/action.yml").is_file():
                raise Failed(f"{self.path}: the action is used before it is checked out")
            return self.composite(home, given, contexts, environment)
        if not re.fullmatch(r"actions/[\w/-]+@[0-9a-f]{40}", action):
            raise Failed(f"{self.path}: {action} is not pinned by commit")
        kind = action.split("@")[0].removeprefix("actions/")
        if kind == "checkout":
            if given.get("persist-credentials") != "false":
                raise Failed(f"{self.path}: a checkout leaves its token behind")
            check_out(workspace, given.get("fetch-depth", "1"))
            self.checked_out(given)
        elif kind == "upload-artifact":
            return self.upload(workspace, given)
        elif kind == "download-artifact":
            self.download(workspace, given)
        elif not kind.startswith("cache/"):
            raise Failed(f"{self.path}: this runner does not know {action}")
        elif not all(given.get(key) for key in ("path", "key")):
            raise Failed(f"{self.path}: {kind} needs a path and a key")
        else:
            self.log += f"[{kind} {given['key']}]\n"
        return {}

    def checked_out(self, given):
        """A `workflow_run` must not check out a pull request's code, so its `ref` must be the main branch."""
        if self.github["event_name"] == "workflow_run" and given.get("ref") != "main":
            raise Failed(f"{self.path}: checks out {given.get('ref')} instead of main")

    def composite(self, home, given, contexts, environment):
        path = ".github/actions/vram/action.yml"
        action = load(path)
        unknown = set(given) - set(action["inputs"])
        if unknown:
            raise Failed(f"{self.path}: the action has no inputs {sorted(unknown)}")
        inputs = {name: given.get(name, filled_in(one["default"], contexts)) for name, one in action["inputs"].items()}
        inner = {**contexts, "inputs": inputs, "steps": {}, "job": {"failed": False}}
        for step in action["runs"]["steps"]:
            self.step(home, step, inner, environment, path)
        contexts["job"]["failed"] |= inner["job"]["failed"]
        return {name: filled_in(one["value"], inner) for name, one in action["outputs"].items()}

    def upload(self, workspace, given):
        patterns = [str(workspace / line.strip()) for line in given["path"].splitlines() if line.strip()]
        files = [Path(one) for pattern in patterns for one in glob.glob(pattern)]
        if not files and given.get("if-no-files-found") == "error":
            raise Failed(f"{self.path}: there is nothing to upload at {given['path']}")
        if files:
            kept = self.folder / "artifacts" / given["name"]
            kept.mkdir(parents=True)
            for one in files:
                (shutil.copytree if one.is_dir() else shutil.copy)(one, kept / one.name)
                # GitHub's artifacts do not keep permissions either.
                if one.is_file():
                    (kept / one.name).chmod(0o644)
            self.own[given["name"]] = kept
        return {}

    def download(self, workspace, given):
        there = self.theirs if "run-id" in given else self.own
        if "run-id" in given and not given.get("github-token"):
            raise Failed(f"{self.path}: another run's artifacts need a token")
        wanted = given.get("name")
        pattern = given.get("pattern", "*").replace("*", ".*")
        names = [wanted] if wanted else [name for name in there if re.fullmatch(pattern, name)]
        target = workspace / given.get("path", ".")
        for name in names:
            if name not in there:
                raise FileNotFoundError(name)
            shutil.copytree(there[name], target, symlinks=True, dirs_exist_ok=True)

    def calls(self, program):
        """The arguments of each call of a replaced program."""
        lines = [json.loads(line) for line in self.record.read_text().splitlines()]
        return [line["arguments"] for line in lines if line["program"] == program]


def stand_in(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n" + (Path(__file__).parent / "stand_in.py").read_text())
    path.chmod(0o755)


def check_out(workspace, depth):
    """Copies the files that the workflows use. `tests/run` is replaced, so that its calls are only recorded."""
    (workspace / ".git").mkdir(exist_ok=True)
    if depth != "0":
        (workspace / ".git/shallow").touch()
    (workspace / "fixtures/zoo").mkdir(parents=True, exist_ok=True)
    zoo = ("fixtures/zoo/Cargo.toml", "fixtures/zoo/Cargo.lock")
    for name in ("Cargo.toml", "Cargo.lock", "README.md", "LICENSE-MIT", "LICENSE-APACHE", *zoo):
        shutil.copy(ROOT / name, workspace / name)
    shutil.copytree(ROOT / ".github", workspace / ".github", dirs_exist_ok=True)
    if os.access(ROOT / "tests/run", os.X_OK):
        stand_in(workspace / "tests/run")
